// The priority tables of this build.
#include <gtest/gtest.h>

#include <map>
#include <set>
#include <tuple>
#include <vector>

#include "kernels/cards.h"
#include "kernels/kernel.h"
#include "kernels/tables/table_list.h"

namespace moracle {
namespace {

Scheme int4(Granularity granularity, bool symmetric = true) {
  return {.weight = {
              .element = Element::int4, .scale = ScaleType::f16, .granularity = granularity, .symmetric = symmetric}};
}

TEST(Tables, EveryCardOnceAndIdsAreUnique) {
  std::map<std::string_view, const KernelCard*> by_id;
  std::set<std::string_view> names;
  for (const Table* table : all_tables()) {
    EXPECT_TRUE(names.insert(table->name).second) << table->name;
    ASSERT_FALSE(table->rows.empty());
    std::set<std::string_view> here;
    for (const TableRow& row : table->rows) {
      EXPECT_TRUE(here.insert(row.card->id).second) << table->name << ": " << row.card->id;
      EXPECT_FALSE(row.why.empty()) << row.card->id;
      EXPECT_FALSE(row.card->backend.empty()) << row.card->id;
      EXPECT_FALSE(row.card->summary.empty()) << row.card->id;
      EXPECT_FALSE(row.card->schemes.empty()) << row.card->id;
      const auto [at, fresh] = by_id.emplace(row.card->id, row.card);
      EXPECT_TRUE(fresh || at->second == row.card) << "two cards are called " << row.card->id;
    }
    EXPECT_TRUE(table->rows.back().card->any_device_of_host) << table->name << ": the reference is last";
  }
}

TEST(Tables, OfAScheme) {
  for (const auto& scheme :
       {int4(Granularity::group(128)), int4(Granularity::channel()), int4(Granularity::group(32), false)})
    EXPECT_EQ((*table_for(scheme))->name, "wna16");
  for (const Element element : {Element::bf16, Element::f16, Element::f32})
    EXPECT_EQ((*table_for({.weight = {.element = element}}))->name, "unquantized");
  Scheme w4a8 = int4(Granularity::group(128));
  w4a8.activation =
      QuantKey{.element = Element::int8, .scale = ScaleType::f32, .granularity = Granularity::token(), .dynamic = true};
  EXPECT_EQ((*table_for(w4a8))->name, "w4a8");
  const Scheme mxfp4{
      .weight = {.element = Element::e2m1, .scale = ScaleType::e8m0, .granularity = Granularity::group(32)}};
  EXPECT_EQ((*table_for(mxfp4))->name, "mxfp4");
  const Scheme fp8{
      .weight = {.element = Element::e4m3, .scale = ScaleType::f32, .granularity = Granularity::block(128, 128)}};
  EXPECT_EQ((*table_for(fp8))->name, "fp8");
  for (const auto& [element, name] :
       {std::pair{Element::e4m3, "mxfp8"}, std::pair{Element::e2m3, "mxfp6"}, std::pair{Element::e3m2, "mxfp6"}}) {
    const Scheme mx{.weight = {.element = element, .scale = ScaleType::e8m0, .granularity = Granularity::group(32)}};
    EXPECT_EQ((*table_for(mx))->name, name);
  }
  const Scheme fp8_e8m0{
      .weight = {.element = Element::e4m3, .scale = ScaleType::e8m0, .granularity = Granularity::block(128, 128)}};
  EXPECT_EQ((*table_for(fp8_e8m0))->name, "fp8");
  const Scheme unknown{
      .weight = {.element = Element::e5m2, .scale = ScaleType::f32, .granularity = Granularity::tensor()}};
  const auto none = table_for(unknown);
  ASSERT_FALSE(none.ok());
  EXPECT_EQ(none.error().code, "oracle.no_table");
  EXPECT_NE(none.error().wanted.find("wna16"), std::string::npos);
}

// What each level of x86 gets, and that linears go the same way as experts.
TEST(Tables, MachinesGetTheKernelOfTheirLevel) {
  struct Expected {
    Scheme scheme;
    std::map<std::string, std::string> backends;
    std::vector<std::string_view> first;
  };
  const std::vector<Expected> rows{{int4(Granularity::group(128)),
                                    {{"zen4", "avx512vnni"},
                                     {"sapphire-rapids", "amx"},
                                     {"icelake-server", "avx512vnni"},
                                     {"skylake-x", "avx512"},
                                     {"alder-lake", "avxvnni"},
                                     {"zen3", "avx2"},
                                     {"generic-x86-64", "ref"}},
                                    {"amx", "avx512vnni", "avx512bf16"}},
                                   {Scheme{},
                                    {{"zen4", "avx512bf16"},
                                     {"sapphire-rapids", "amx"},
                                     {"icelake-server", "avx512"},
                                     {"skylake-x", "avx512"},
                                     {"alder-lake", "avx2"},
                                     {"zen3", "avx2"},
                                     {"generic-x86-64", "ref"}},
                                    {"amx", "avx512bf16", "avx512"}}};
  for (const auto& [scheme, expected, first] : rows) {
    for (const ProblemKind kind : {ProblemKind::experts, ProblemKind::linear}) {
      const Problem problem{
          .kind = kind, .scheme = scheme, .experts = 128, .top_k = 8, .hidden = 2048, .intermediate = 768};
      for (const auto& [name, backend] : expected) {
        const Decision decision = decide(problem, *resolve_machine(name), {}, **table_for(scheme));
        ASSERT_NE(decision.best_if_built, nullptr) << name;
        EXPECT_EQ(decision.best_if_built->backend, backend) << name;
        const auto names = backend_names(**table_for(scheme));
        EXPECT_EQ((std::vector<std::string_view>(names.begin(), names.begin() + 3)), first);
        EXPECT_EQ(names.back(), "ref");
#if defined(__x86_64__)
        EXPECT_EQ(decision.winner, decision.best_if_built) << name;
#endif
      }
    }
  }
}

// Arm's cards follow from the target's entry on any machine; its kernels are in builds for it.
TEST(Tables, ArmGetsNeon) {
  const QuantKey mxfp4{.element = Element::e2m1, .scale = ScaleType::e8m0, .granularity = Granularity::group(32)};
  for (const Scheme& scheme : {int4(Granularity::group(128)), Scheme{.weight = mxfp4}}) {
    const Problem problem{.kind = ProblemKind::experts,
                          .scheme = scheme,
                          .experts = 128,
                          .top_k = 8,
                          .hidden = 2048,
                          .intermediate = 768};
    const Decision decision = decide(problem, *resolve_machine("graviton3"), {}, **table_for(scheme));
    ASSERT_NE(decision.best_if_built, nullptr);
    EXPECT_EQ(decision.best_if_built->backend, "neon") << to_string(scheme);
    const Decision lesser = decide(problem, *resolve_machine("generic-aarch64"), {}, **table_for(scheme));
    ASSERT_NE(lesser.winner, nullptr);
    EXPECT_EQ(lesser.winner->backend, "ref") << "no dot product";
  }
}

// Other devices, also such as only layouts are known of: what they would choose, and that nothing runs there by itself.
TEST(Tables, OtherDevicesGetTheirKernelsIfBuilt) {
  const QuantKey mxfp4{.element = Element::e2m1, .scale = ScaleType::e8m0, .granularity = Granularity::group(32)};
  const std::vector<std::tuple<std::string, Scheme, std::string>> expected{
      {"t4", int4(Granularity::group(128)), "marlin"},
      {"t4", int4(Granularity::group(32), false), "marlin"},
      {"a100", int4(Granularity::group(128)), "portable"},
      {"rtx4090", int4(Granularity::group(32), false), "portable"},
      {"h200", int4(Granularity::group(128)), "sm90-stream"},
      {"h200", int4(Granularity::group(32)), "portable"},
      {"h100", {.weight = mxfp4}, "sm90-stream"},
      {"pvc", int4(Granularity::group(128)), "xpu"},
      {"mi355x", int4(Granularity::group(128)), "triton"},
      {"rtx3090", {.weight = mxfp4}, "portable"},
      {"b200", {.weight = mxfp4}, "portable"},
      {"mi355x", {.weight = mxfp4}, "aiter"}};
  const bool cuda_here = missing("cuda.portable.wna16").empty();
  for (const auto& [name, scheme, backend] : expected) {
    const Problem problem{.kind = ProblemKind::experts,
                          .scheme = scheme,
                          .experts = 128,
                          .top_k = 8,
                          .hidden = 2048,
                          .intermediate = 768};
    const Decision decision = decide(problem, *resolve_machine(name), {}, **table_for(scheme));
    ASSERT_NE(decision.best_if_built, nullptr) << name;
    EXPECT_EQ(decision.best_if_built->backend, backend) << name << " " << to_string(scheme);
    const bool own = backend == "portable" || backend == "sm90-stream";
    EXPECT_EQ(decision.best_if_built->kind, own ? CardKind::native : CardKind::external);
    ASSERT_NE(decision.winner, nullptr);
    EXPECT_EQ(decision.winner->backend, cuda_here && own ? backend : "ref") << "of this host";
  }
}

}  // namespace
}  // namespace moracle
