// The hot path allocates nothing: once buffers have their sizes, a forward, a decode step and a layer's run ask the
// system for no memory. A sequence that grows maps one block in 64 positions, and nothing else.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <numeric>
#include <set>

#include "allocations/allocation_counter.h"
#include "base/memory.h"
#include "base/random/random.h"
#include "generate/generate.h"
#include "model/state/state.h"
#include "moe/layer_runner.h"
#include "support/model_fixture.h"
#include "synth/layer_shapes.h"
#include "synth/synthetic_experts.h"

namespace moracle::test {
namespace {

// The counter itself: a test that counts nothing would pass whatever the code does.
TEST(AllocationCounter, CountsEveryWayAndEveryThread) {
  const auto count = [](const auto& allocate) {
    const Allocations before = allocations();
    allocate();
    return allocations() - before;
  };
  void* volatile at = nullptr;  // a pair of malloc and free that nobody looks at may be left out
  const auto keep_and_free = [&](void* got) {
    at = got;
    std::free(at);
  };
  EXPECT_EQ(count([&] { keep_and_free(std::malloc(100)); }).heap, 1);
  EXPECT_EQ(count([&] { keep_and_free(std::calloc(10, 10)); }).heap, 1);
  EXPECT_EQ(count([&] { keep_and_free(std::realloc(nullptr, 100)); }).heap, 1);
  EXPECT_EQ(count([&] { keep_and_free(std::aligned_alloc(64, 128)); }).heap, 1);
  EXPECT_EQ(count([&] {
              auto* const value = new int(1);
              at = value;
              delete value;
            }).heap,
            1);
  EXPECT_EQ(count([] { std::vector<int> values(100, 1); }).heap, 1);
  EXPECT_EQ(count([] { ASSERT_TRUE(PageBuffer::allocate(100).ok()); }).mappings, 1);
  ThreadPool pool(3);
  EXPECT_EQ(count([&] { pool.parallel_for(64, [](std::int64_t, int) { std::vector<int> values(100, 1); }); }).heap, 64);
  EXPECT_EQ(count([&] { pool.parallel_for(64, [](std::int64_t, int) {}); }).heap, 0);
}

std::vector<std::string> folders() {
  std::vector<std::string> names;
  for (const auto& entry : std::filesystem::directory_iterator(data_dir() / "families")) {
    names.push_back(entry.path().filename().string());
  }
  std::sort(names.begin(), names.end());
  return names;
}

std::string name_of(const testing::TestParamInfo<std::string>& info) {
  std::string name = info.param;
  std::replace_if(name.begin(), name.end(), [](char c) { return c == '-' || c == '.'; }, '_');
  return name;
}

class AllocationsTest : public testing::TestWithParam<std::string> {
 protected:
  // Of a whole context at most: several blocks, and token runs of every kind.
  static std::int64_t prompt_size(const Model& model) {
    return std::min<std::int64_t>(150, model.info().max_context - kSteps);
  }
  static constexpr std::int64_t kSteps = 60;  // past the end of a block

  static Loaded load_model_of(const Policy& policy) { return load(data_dir() / "families" / GetParam(), policy); }
  static std::vector<std::int32_t> prompt(const Model& model) {
    std::vector<std::int32_t> ids(static_cast<std::size_t>(prompt_size(model)));
    Random random(3);
    for (std::int32_t& id : ids) {
      id = static_cast<std::int32_t>(random.below(static_cast<std::uint32_t>(model.info().vocab_size)));
    }
    return ids;
  }
};

// Both the kernels that the oracle chooses and those that everything is held against.
TEST_P(AllocationsTest, ForwardsOfAKnownSizeAllocateNothing) {
  for (const Policy& policy : {Policy{}, pinned("ref")}) {
    const Loaded loaded = load_model_of(policy);
    ASSERT_NE(loaded.model, nullptr);
    const auto ids = prompt(*loaded.model);
    const std::int64_t count = std::ssize(ids);
    std::vector<std::int32_t> positions(ids.size());
    std::iota(positions.begin(), positions.end(), 0);
    const Batch::Span whole{.begin = 0, .count = count};
    const Batch batch{.ids = ids, .positions = positions, .spans = {&whole, 1}};
    std::vector<float> logits;
    const auto first = new_state(*loaded.model);
    SequenceState* state = first.get();
    const Allocations cold = allocations();
    ASSERT_TRUE(loaded.model->forward(batch, {&state, 1}, LogitRows::last_of_each, logits).ok());
    EXPECT_GT((allocations() - cold).mappings, 0) << "the first forward sizes the workspace";

    const auto second = new_state(*loaded.model);
    state = second.get();
    const Allocations before = allocations();
    const Result<> done = loaded.model->forward(batch, {&state, 1}, LogitRows::last_of_each, logits);
    const Allocations during = allocations() - before;
    ASSERT_TRUE(done.ok());
    EXPECT_EQ(during.heap, 0);
    EXPECT_EQ(during.mappings, 0) << "the pool was mapped with the model";
  }
}

TEST_P(AllocationsTest, DecodeStepsAllocateNothing) {
  for (const auto& [temperature, top_k] : {std::pair{0.0, true}, {0.8, true}, {0.8, false}}) {
    const Loaded loaded = load_model_of(Policy{});
    ASSERT_NE(loaded.model, nullptr);
    const auto state = new_state(*loaded.model);
    // From the third token on: the first one's choice sizes the sampler, the second step the logits of one row.
    std::int64_t tokens = 0;
    Allocations before;
    Allocations after;
    GenerateOptions options;
    options.max_tokens = kSteps;
    options.sampling.temperature = temperature;
    options.sampling.top_k = top_k ? 20 : 0;
    options.sampling.top_p = 0.9;
    options.on_token = [&](std::int32_t) {
      ++tokens;
      if (tokens == 2) before = allocations();
      after = allocations();
    };
    const auto ids = prompt(*loaded.model);
    const auto generated = generate(*loaded.model, *loaded.pool, *state, ids, options);
    ASSERT_TRUE(generated.ok());
    ASSERT_EQ(tokens, kSteps);
    EXPECT_EQ((after - before).heap, 0) << "temperature " << temperature;
    EXPECT_EQ((after - before).mappings, 0);
  }
}

INSTANTIATE_TEST_SUITE_P(Models, AllocationsTest, testing::ValuesIn(folders()), name_of);

// Every scheme that benchmarks know, and those of cards that no name of theirs reaches.
std::vector<NamedScheme> schemes() {
  std::vector<NamedScheme> all;
  for (const std::string& name : scheme_names()) all.push_back(*find_scheme(name));
  const auto mx = [](Element element) {
    return QuantKey{.element = element, .scale = ScaleType::e8m0, .granularity = Granularity::group(32)};
  };
  all.push_back({.name = "mxfp6", .scheme = {mx(Element::e2m3), {}}});
  all.push_back({.name = "mxfp8", .scheme = {mx(Element::e4m3), {}}});
  return all;
}

// Runs of a packed layer, as `bench layer` times them, with every own card that this machine can run.
TEST(LayerAllocations, RunsOfEveryOwnCardAllocateNothing) {
  const LayerShape shape{.name = "t", .experts = 8, .hidden = 256, .intermediate = 128, .top_k = 2};
  const std::vector<std::int64_t> sizes = {1, 4, 70, 200};
  const Machine machine = probe_machine();
  ThreadPool pool(3);
  std::set<std::string_view> ran;
  std::vector<std::int32_t> all_experts(static_cast<std::size_t>(shape.experts));
  std::iota(all_experts.begin(), all_experts.end(), 0);
  for (const NamedScheme& scheme : schemes()) {
    const auto experts = synthetic_experts(shape, scheme, 1, all_experts);
    ASSERT_TRUE(experts.ok()) << scheme.name << ": " << experts.error().message();
    const auto table = table_for(scheme.scheme);
    ASSERT_TRUE(table.ok()) << scheme.name;
    // The policy that allows most: exact cards serve under it, too.
    const Decision decision = decide(layer_problem(shape, scheme), machine, {.numerics = Numerics::fast}, **table);
    for (const Candidate& candidate : decision.trace) {
      if (!candidate.reasons.empty() || candidate.card->kind != CardKind::native) continue;
      SCOPED_TRACE(scheme.name + " " + std::string(candidate.card->id));
      ran.insert(candidate.card->id);
      auto runner = LayerRunner::pack(*candidate.card, *experts, {.pool = pool, .activation = shape.activation});
      ASSERT_TRUE(runner.ok()) << runner.error().message();
      ASSERT_TRUE(runner->reserve(sizes.back(), shape.top_k).ok());
      for (const std::int64_t tokens : sizes) {
        LayerInput input;
        input.tokens = tokens;
        input.hidden = shape.hidden;
        input.top_k = shape.top_k;
        input.x.assign(static_cast<std::size_t>(tokens * shape.hidden), 0.01F);
        input.weights.assign(static_cast<std::size_t>(tokens * shape.top_k), 0.5F);
        for (std::int64_t slot = 0; slot < tokens * shape.top_k; ++slot) {
          input.ids.push_back(static_cast<std::int32_t>(slot % shape.experts));
        }
        std::vector<float> out(input.x.size());
        const Allocations before = allocations();
        runner->run(input.view(), out.data());
        const Allocations during = allocations() - before;
        EXPECT_EQ(during.heap, 0) << tokens << " tokens";
        EXPECT_EQ(during.mappings, 0) << tokens << " tokens";
      }
    }
  }
  // Every own CPU card of the tables was among them, but those whose instructions this machine lacks.
  for (const Table* table : all_tables()) {
    for (const TableRow& row : table->rows) {
      const KernelCard& card = *row.card;
      if (card.kind != CardKind::native || card.device != DeviceKind::cpu || !card.serves_experts) continue;
      if ((machine.cpu_features & card.cpu_features) != card.cpu_features) continue;
      EXPECT_EQ(ran.count(card.id), 1U) << card.id;
    }
  }
}

}  // namespace
}  // namespace moracle::test
