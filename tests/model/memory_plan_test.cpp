// What `plan` foretells from headers is what a load comes to.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <map>
#include <set>
#include <string>

#include "model/forward/transformer.h"
#include "model/load/memory_plan.h"
#include "support/fake_device.h"
#include "support/model_fixture.h"
#include "support/test_device.h"
#include "support/tiny_model.h"

namespace moracle::test {
namespace {

std::unique_ptr<LoadPlan> plan_of(const std::filesystem::path& folder, const Policy& policy = {},
                                  const Place& place = {.host = probe_machine()}) {
  auto checkpoint = Checkpoint::open(folder);
  if (!checkpoint.ok()) {
    ADD_FAILURE() << checkpoint.error().message();
    return nullptr;
  }
  auto plan = LoadPlan::make(*checkpoint, place, policy);
  if (!plan.ok()) {
    ADD_FAILURE() << plan.error().message();
    return nullptr;
  }
  return std::move(*plan);
}

// Before anything asks which object there is: cards of a device lack none.
const int kNamed = ::setenv("MORACLE_CUDA_LIBRARY", MORACLE_HOST_OBJECT, 1);

std::vector<std::filesystem::path> folders() {
  std::vector<std::filesystem::path> all;
  for (const char* kind : {"checkpoints", "families"}) {
    for (const auto& entry : std::filesystem::directory_iterator(data_dir() / kind)) {
      if (entry.is_directory()) all.push_back(entry.path());
    }
  }
  std::sort(all.begin(), all.end());
  return all;
}

class MemoryPlanTest : public testing::TestWithParam<std::filesystem::path> {};

TEST_P(MemoryPlanTest, IsWhatALoadComesTo) {
  constexpr int kThreads = 2;
  constexpr std::int64_t kTokens = 33;
  for (const Policy& policy : {Policy{}, pinned("ref")}) {
    const auto plan = plan_of(GetParam(), policy);
    ASSERT_NE(plan, nullptr);
    const auto foretold = memory_plan(*plan, {.context = 100, .batch_tokens = kTokens, .threads = kThreads});
    ASSERT_TRUE(foretold.ok()) << foretold.error().message();
    EXPECT_TRUE(foretold->packed);
    const Loaded loaded = load(GetParam(), policy, kThreads);
    const auto* const model = dynamic_cast<const Transformer*>(loaded.model.get());
    ASSERT_NE(model, nullptr);
    const Transformer::Parts& parts = model->parts();
    EXPECT_EQ(foretold->embedding, parts.embedding.bytes());
    EXPECT_EQ(foretold->head, parts.head->bytes());
    EXPECT_EQ(foretold->final_norm, parts.final_norm.bytes());
    ASSERT_EQ(foretold->layers.size(), parts.layers.size());
    for (std::size_t l = 0; l < parts.layers.size(); ++l) {
      const TransformerLayer& layer = parts.layers[l];
      EXPECT_EQ(foretold->layers[l].mixer, layer.mixer != nullptr ? layer.mixer->bytes() : 0) << l;
      EXPECT_EQ(foretold->layers[l].feed_forward, layer.feed_forward != nullptr ? layer.feed_forward->bytes() : 0) << l;
      EXPECT_EQ(foretold->layers[l].state > 0U, layer.mixer != nullptr) << l;
    }
    EXPECT_EQ(foretold->state, model->state_bytes(100));
    EXPECT_EQ(foretold->workspace, model->workspace_bytes(kTokens));
  }
}

INSTANTIATE_TEST_SUITE_P(Checkpoints, MemoryPlanTest, testing::ValuesIn(folders()), [](const auto& info) {
  std::string name = info.param.filename().string();
  std::replace_if(name.begin(), name.end(), [](char c) { return c == '-' || c == '.'; }, '_');
  return name;
});

// Two ranks of two experts' halves hold what one holds of everything that is cut.
TEST(MemoryPlanRanks, ShareWhatIsCut) {
  const TemporaryFolder folder;
  TinyBuilder(tiny_mixtral(), {}).build().write(folder.path());
  const auto plan = plan_of(folder.path(), pinned("ref"));
  ASSERT_NE(plan, nullptr);
  const auto whole = memory_plan(*plan, {.context = 64});
  const auto experts = memory_plan(*plan, {.ep = 2, .context = 64});
  const auto halves = memory_plan(*plan, {.tp = 2, .context = 64});
  ASSERT_TRUE(whole.ok() && experts.ok() && halves.ok());
  const std::uint64_t all = whole->layers[0].feed_forward;
  const std::uint64_t router = 2 * experts->layers[0].feed_forward - all;
  EXPECT_GT(router, 0U);
  EXPECT_EQ(2 * (experts->layers[0].feed_forward - router), all - router);
  EXPECT_EQ(experts->layers[0].mixer, whole->layers[0].mixer);
  EXPECT_EQ(2 * (halves->layers[0].feed_forward - router), all - router);
  EXPECT_EQ(2 * halves->layers[0].mixer, whole->layers[0].mixer);
  EXPECT_EQ(2 * halves->layers[0].state, whole->layers[0].state);
  EXPECT_EQ(2 * halves->head, whole->head);
}

const Degree& at(const std::vector<Degree>& degrees, int degree) {
  return *std::find_if(degrees.begin(), degrees.end(), [&](const Degree& row) { return row.degree == degree; });
}

TEST(MemoryPlanDegrees, NameTheRule) {
  // 4 heads, 2 key heads, 16 experts of 128 columns in groups of 128.
  const auto plan = plan_of(data_dir() / "checkpoints" / "qwen3moe-gptq-w4g128-sym");
  ASSERT_NE(plan, nullptr);
  const auto tensor = tensor_degrees(*plan);
  EXPECT_TRUE(at(tensor, 1).legal());
  EXPECT_NE(at(tensor, 2).wanted.find("groups of 128 columns"), std::string::npos) << at(tensor, 2).wanted;
  EXPECT_EQ(at(tensor, 2).module, "model.layers.0.mlp.experts");
  EXPECT_EQ(at(tensor, 3).found, "tp 3 does not divide 4 attention heads");
  const auto experts = expert_degrees(*plan);
  for (const int degree : {1, 2, 4, 8, 16}) EXPECT_TRUE(at(experts, degree).legal()) << degree;
  EXPECT_NE(at(experts, 3).found.find("16 experts"), std::string::npos) << at(experts, 3).found;
}

TEST(MemoryPlanDegrees, ActOrderIsNotCut) {
  const auto shared = shared_dir();
  if (!shared) GTEST_SKIP() << "needs the reference collection";
  const auto plan = plan_of(*shared / "checkpoints" / "qwen3moe-gptq-w4g32-actorder");
  ASSERT_NE(plan, nullptr);
  EXPECT_NE(at(tensor_degrees(*plan), 2).found.find("act-order"), std::string::npos);
}

TEST(MemoryPlanErrors, AreNamed) {
  const auto plan = plan_of(data_dir() / "checkpoints" / "qwen3moe-gptq-w4g128-sym");
  ASSERT_NE(plan, nullptr);
  EXPECT_EQ(memory_plan(*plan, {.tp = 2}).error().code, "plan.tp");
  EXPECT_EQ(memory_plan(*plan, {.ep = 3}).error().code, "plan.ep");
  EXPECT_EQ(memory_plan(*plan, {.context = 1 << 20}).error().code, "plan.context");
}

// No kernel of this build runs there. Of the experts the layout is known, and this one pads none of these sizes.
TEST(MemoryPlanElsewhere, NamesTheKernelThatWouldServe) {
  const auto machine = resolve_machine("t4");
  ASSERT_TRUE(machine.ok());
  const auto plan = plan_of(data_dir() / "checkpoints" / "qwen3moe-gptq-w4g128-sym", {}, {.host = *machine});
  ASSERT_NE(plan, nullptr);
  const auto foretold = memory_plan(*plan, {.context = 64});
  ASSERT_TRUE(foretold.ok()) << foretold.error().message();
  EXPECT_FALSE(foretold->packed);
  for (const LayerMemory& layer : foretold->layers) {
    ASSERT_NE(layer.experts.card, nullptr);
    EXPECT_EQ(layer.experts.card->kind, CardKind::external);
    EXPECT_TRUE(layer.experts.packed);
  }
  // 16 experts x 3 matrices of 256 x 128: a nibble a weight and a 2-byte scale a group, and the f32 router.
  EXPECT_EQ(foretold->layers[0].feed_forward,
            16U * 3U * (256U * 128U / 2U + 256U * 128U / 128U * 2U) + 16U * 256U * 4U);
}

// What is foretold of a known layout is what packing the layer's own weights comes to.
TEST(MemoryPlanElsewhere, CountsKnownLayoutsExactly) {
  ThreadPool pool(2);
  std::set<std::string> compared;
  for (const std::filesystem::path& folder : folders()) {
    for (const std::string& name : named_machines()) {
      SCOPED_TRACE(folder.filename().string() + " on " + name);
      const auto plan = plan_of(folder, {}, {.host = *resolve_machine(name)});
      ASSERT_NE(plan, nullptr);
      const auto foretold = memory_plan(*plan, {.context = 64});
      ASSERT_TRUE(foretold.ok()) << foretold.error().message();
      for (const LayerMemory& layer : foretold->layers) {
        const KernelCard* const card = layer.experts.card;
        if (card == nullptr || find_implementation(card->id) == nullptr) continue;
        EXPECT_TRUE(layer.experts.packed) << card->id;
        if (!compared.insert(folder.filename().string() + " " + std::string(card->id)).second) continue;
        const auto module = std::find_if(plan->modules().begin(), plan->modules().end(), [&](const ModuleReport& m) {
          return m.kind == "experts" && m.name.starts_with(layer.name + ".");
        });
        ASSERT_NE(module, plan->modules().end());
        const auto experts = plan->read_experts(static_cast<std::size_t>(module - plan->modules().begin()));
        ASSERT_TRUE(experts.ok()) << experts.error().message();
        const auto packed = find_implementation(card->id)->pack_experts(
            *experts, {.pool = pool, .activation = module->problem->activation, .device = device_for(*card)});
        ASSERT_TRUE(packed.ok()) << packed.error().message();
        EXPECT_EQ(layer.experts.bytes, (*packed)->bytes()) << card->id;
        EXPECT_GE(layer.feed_forward, layer.experts.bytes);
      }
    }
  }
  EXPECT_GE(compared.size(), 8U);
}

// With experts on a device, its memory holds what was foretold, to the byte, at no time more, and the host the rest.
TEST(MemoryPlanOnDevice, IsWhatALoadTakesThere) {
  ASSERT_EQ(kNamed, 0);
  constexpr std::int64_t kTokens = 33;
  ThreadPool pool(2);
  std::map<std::string, int> compared;  // by backend
  for (const std::filesystem::path& folder : folders()) {
    SCOPED_TRACE(folder.filename().string());
    FakeDevice fake;
    auto device = GpuDevice::open(fake.api(), 0);
    ASSERT_TRUE(device.ok());
    const auto plan = plan_of(folder, {}, {probe_machine(), *device});
    ASSERT_NE(plan, nullptr);
    const bool served = std::all_of(plan->modules().begin(), plan->modules().end(), [](const ModuleReport& module) {
      return module.kind != "experts" || module.decision->winner->device == DeviceKind::cuda;
    });
    if (!served || plan->info().experts == 0) continue;  // a format that `ref` alone has, or a model without experts
    const auto foretold = memory_plan(*plan, {.context = 64, .batch_tokens = kTokens, .threads = 2});
    ASSERT_TRUE(foretold.ok()) << foretold.error().message();
    const auto alone = memory_plan(*plan_of(folder), {.context = 64, .batch_tokens = kTokens, .threads = 2});
    ASSERT_TRUE(alone.ok());
    EXPECT_EQ(foretold->state, alone->state);
    EXPECT_LT(foretold->on_host(), alone->total());
    auto model = load_model(*plan, pool);
    ASSERT_TRUE(model.ok()) << model.error().message();
    ASSERT_TRUE((*model)->reserve(kTokens).ok());
    EXPECT_GT(foretold->on_device.workspace, 0U);
    EXPECT_EQ(foretold->on_device.total(), fake.live_bytes());
    EXPECT_EQ(foretold->on_device.total(), fake.peak_bytes());
    for (const ModuleReport& module : plan->modules())
      if (module.kind == "experts") ++compared[std::string(module.decision->winner->backend)];
  }
  EXPECT_GT(compared["portable"], 0);
  EXPECT_GT(compared["sm90-stream"], 0);
}

// Unquantized experts on another device: its kernel is named, and its layout, which pads nothing here, is counted.
TEST(MemoryPlanElsewhere, NamesTheKernelOfUnquantizedExperts) {
  const TemporaryFolder folder;
  TinyBuilder(tiny_mixtral(), {}).build().write(folder.path());
  const auto plan = plan_of(folder.path(), {}, {.host = *resolve_machine("t4")});
  ASSERT_NE(plan, nullptr);
  const auto foretold = memory_plan(*plan, {.context = 64});
  ASSERT_TRUE(foretold.ok()) << foretold.error().message();
  const ExpertsKernel& experts = foretold->layers[0].experts;
  ASSERT_NE(experts.card, nullptr);
  EXPECT_EQ(experts.card->kind, CardKind::external);
  EXPECT_TRUE(experts.packed);
  const auto module = std::find_if(plan->modules().begin(), plan->modules().end(),
                                   [](const ModuleReport& m) { return m.kind == "experts"; });
  EXPECT_EQ(experts.bytes, module->bytes);
}

// A block of 128 x 128 has one scale, not one a row.
TEST(MemoryPlanElsewhere, CountsAScaleABlock) {
  const auto shared = shared_dir();
  if (!shared) GTEST_SKIP() << "needs the reference collection";
  const auto machine = resolve_machine("mi300x");
  ASSERT_TRUE(machine.ok());
  const auto plan = plan_of(*shared / "checkpoints" / "dsv3-ct-fp8-block", {}, {.host = *machine});
  ASSERT_NE(plan, nullptr);
  const auto one = memory_plan(*plan, {.context = 64});
  const auto halves = memory_plan(*plan, {.ep = 2, .context = 64});
  ASSERT_TRUE(one.ok() && halves.ok());
  // Four of eight experts: 3 matrices of 256 x 128 bytes and 2 scales each, which are stored as bf16 or f32.
  const std::uint64_t four = one->layers[1].feed_forward - halves->layers[1].feed_forward;
  EXPECT_GT(four, 4U * 3U * 256U * 128U);
  EXPECT_LE(four, 4U * 3U * (256U * 128U + 2U * 4U));
}

}  // namespace
}  // namespace moracle::test
