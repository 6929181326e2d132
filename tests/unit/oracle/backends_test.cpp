// A decision by backend: variants folded, the one that serves first, reasons in words.
#include "oracle/backends.h"

#include <gtest/gtest.h>

#include "unit/oracle/test_cards.h"

namespace moracle {
namespace {

using test::int4_problem;
using test::int_card;
using test::kTable;
using test::machine;

// Two cards of one backend that need more than the other, one of another device, and the reference.
constexpr KernelCard kTiles =
    int_card("t.tiles", "tiles", CpuFeature::avx2 | CpuFeature::amx_tile | CpuFeature::amx_int8);
constexpr KernelCard kTilesFast = int_card("t.tiles-fast", "tiles", kTiles.cpu_features, Numerics::fast);
constexpr std::array kGpus{DeviceRule{.device = DeviceKind::cuda, .min_capability = 75}};
constexpr KernelCard kGpu = [] {
  KernelCard card = int_card("t.gpu", "gpu", 0);
  card.kind = CardKind::external;
  card.devices = kGpus;
  return card;
}();
constexpr std::array kRows{TableRow{&kTilesFast, "int8 activations"}, TableRow{&kTiles, "tiles"},
                           TableRow{&kGpu, "gpu"}, TableRow{&test::kNarrow, "narrower"},
                           TableRow{&test::kReference, "scalar"}};
constexpr Table kFolded{.name = "folded", .rows = kRows};

std::vector<std::string> names(const Decision& decision) {
  std::vector<std::string> out;
  for (const BackendEntry& entry : fold_backends(decision)) out.emplace_back(entry.backend);
  return out;
}
using Names = std::vector<std::string>;

TEST(FoldBackends, EachBackendOnceTheOneThatServesFirst) {
  const Decision tiles = decide(int4_problem(), machine("sapphire-rapids"), {}, kFolded);
  EXPECT_EQ(names(tiles), (Names{"tiles", "gpu", "narrow", "ref"}));
  const auto entries = fold_backends(tiles);
  EXPECT_EQ(entries[0].verdict, BackendVerdict::chosen);
  ASSERT_EQ(entries[0].variants.size(), 2U);
  EXPECT_EQ(tiles.trace[entries[0].variants[0]].card, &kTiles) << "the variant that serves speaks for the backend";
  EXPECT_EQ(needs_of(tiles.trace[entries[0].variants[1]]), "needs --policy fast");
  EXPECT_EQ(entries[2].verdict, BackendVerdict::can);

  const Decision narrow = decide(int4_problem(), machine("zen4"), {}, kFolded);
  EXPECT_EQ(names(narrow), (Names{"narrow", "tiles", "gpu", "ref"}));
  const BackendEntry lacking = fold_backends(narrow)[1];
  EXPECT_EQ(lacking.verdict, BackendVerdict::cannot);
  EXPECT_EQ(narrow.trace[lacking.variants[0]].card, &kTiles) << "the variant that lacks least speaks for the backend";
  EXPECT_EQ(needs_of(narrow.trace[lacking.variants[0]]), "needs amx_tile, amx_int8");
}

TEST(FoldBackends, ElsewhereTheBestThatIsNotBuiltComesBeforeTheReference) {
  const Decision gpu = decide(int4_problem(), machine("h200"), {}, kFolded);
  EXPECT_EQ(gpu.winner, &test::kReference);
  EXPECT_EQ(gpu.trace[*used_candidate(gpu)].card, &kGpu);
  const auto entries = fold_backends(gpu);
  EXPECT_EQ(entries[0].backend, "gpu");
  EXPECT_EQ(entries[0].verdict, BackendVerdict::if_built);
  EXPECT_EQ(needs_of(gpu.trace[entries[0].variants[0]]), "layout known; this build has no kernel for it");
  EXPECT_EQ(needs_of(gpu.trace[entries[1].variants[0]]), "needs a CPU");
  const Decision cpu = decide(int4_problem(), machine("zen4"), {}, kFolded);
  EXPECT_EQ(needs_of(cpu.trace[fold_backends(cpu)[2].variants[0]]), "needs cuda of capability from 7.5");
}

TEST(FoldBackends, UsableAreThoseThatOnlyThePinKeepsBack) {
  const Decision pinned = decide(int4_problem(), machine("zen4"), {.pinned = "tiles"}, kFolded);
  EXPECT_EQ(usable_backends(pinned), (std::vector<std::string_view>{"narrow", "ref"}));
  EXPECT_TRUE(fold_backends({}).empty());
  EXPECT_EQ(used_candidate({}), std::nullopt);
}

}  // namespace
}  // namespace moracle
