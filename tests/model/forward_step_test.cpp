// Whole models on a device over host memory, which runs nothing before it is waited for and lets the host touch none of
// its memory: a forward step enqueues and reads nothing, so that its graph can be replayed. Operations and kernels are
// the host's, and so are the bits.
#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <map>
#include <numeric>
#include <optional>
#include <set>

#include "base/random/random.h"
#include "format/rules/tensor_check.h"
#include "generate/scheduler.h"
#include "model/forward/transformer.h"
#include "model/load/build.h"
#include "model/load/plan.h"
#include "support/device_modules.h"
#include "support/fake_device.h"
#include "support/model_fixture.h"

namespace moracle::test {
namespace {

constexpr std::size_t kStateBytes = std::size_t{48} << 20;

// Packs for the host what a plan decided, and hands it out as modules of a device.
class ModulesOnDevice final : public ModuleSource {
 public:
  ModulesOnDevice(const Plan& plan, const std::shared_ptr<const Device>& device, ThreadPool& pool)
      : plan_(plan), pool_(pool), upload_(*device), store_(std::make_shared<WeightStore>(device, &upload_)) {}

  Result<Embedding> embedding(const LinearSpec& spec) override {
    MORACLE_ASSIGN(const CanonicalLinear linear, plan_.read_linear(plan_.index_of(spec.path)));
    return read_embedding(*linear.weight, pool_, *store_);
  }
  Result<std::unique_ptr<PackedLinear>> linear(const LinearSpec& spec) override {
    const std::size_t index = plan_.index_of(spec.path);
    MORACLE_ASSIGN(const CanonicalLinear linear, plan_.read_linear(index));
    MORACLE_ASSIGN(auto packed,
                   find_implementation(plan_.opened(index).winner->id)->pack_linear(linear, {.pool = pool_}));
    return on_device(std::move(packed), pool_);
  }
  Result<std::unique_ptr<PackedLinear>> head(const LinearSpec& spec) override { return linear(spec); }
  Result<PlacedExperts> experts(const MoeSpec& spec) override {
    const std::size_t index = plan_.index_of(spec.experts.name);
    MORACLE_ASSIGN(const CanonicalExperts experts, plan_.read_experts(index));
    MORACLE_ASSIGN(auto packed, find_implementation(plan_.opened(index).winner->id)
                                    ->pack_experts(experts, {.pool = pool_,
                                                             .activation = spec.activation,
                                                             .batch_invariant = plan_.policy().batch_invariant}));
    return PlacedExperts(on_device(std::move(packed), pool_));
  }
  Result<Router> router(const MoeSpec& spec) override {
    MORACLE_ASSIGN(const CanonicalLinear stored, plan_.read_linear(plan_.index_of(spec.router.front())));
    MORACLE_ASSIGN(const std::vector<float> weight, dequantize(*stored.weight));
    Router router;
    MORACLE_ASSIGN(router.weight, store_->add(std::span(weight)));
    MORACLE_ASSIGN(router.bias, store_->add(std::span(stored.bias)));
    return router;
  }
  Result<LatentProjection> latent(const LatentAttentionSpec& spec) override {
    MORACLE_ASSIGN(const CanonicalLinear linear, plan_.read_linear(plan_.index_of(spec.kv_b.path)));
    return read_latent(linear, spec.shape, pool_, *store_);
  }
  Result<DeviceArray<float>> array(const std::string& module, std::int64_t rows, std::int64_t /*cols*/, ArrayForm form,
                                   float factor) override {
    MORACLE_ASSIGN(std::vector<float> numbers, read_floats(*plan_.opened(plan_.index_of(module)).tensor));
    bring_into(form, rows, numbers, factor);
    return store_->add(std::span<const float>(numbers));
  }
  Result<Rope> rope(const RopeSpec& spec) override {
    Rope rope{.scale = spec.scale};
    MORACLE_ASSIGN(rope.inv_freq, store_->add(std::span(spec.inv_freq)));
    return rope;
  }
  [[nodiscard]] std::shared_ptr<const void> store() const { return store_; }

 private:
  const Plan& plan_;
  ThreadPool& pool_;
  UploadBuffer upload_;
  std::shared_ptr<WeightStore> store_;
};

// A checkpoint as a model of the host and as one of the device.
class Pair {
 public:
  Pair(const std::filesystem::path& folder, const Policy& policy) : pool_(2) {
    host_ = load(folder, policy);
    fake_.late_work = true;
    fake_.guarded = true;
    auto device = GpuDevice::open(fake_.api(), 0);
    EXPECT_TRUE(device.ok());
    device_ = std::move(*device);
    auto checkpoint = Checkpoint::open(folder);
    EXPECT_TRUE(checkpoint.ok());
    auto plan = LoadPlan::make(*checkpoint, probe_machine(), policy);
    EXPECT_TRUE(plan.ok());
    const Plan& opened = (*plan)->opened();
    ModulesOnDevice modules(opened, device_, pool_);
    const bool reference = policy.pinned == "ref";
    ops_ = ops_on_device(reference ? ref_ops() : host_ops(probe_machine().cpu_features), pool_);
    auto parts = build_transformer(opened.spec(), modules, *ops_, {.kv = default_kv_type(policy)});
    if (!parts.ok()) {
      ADD_FAILURE() << parts.error().message();
      return;
    }
    parts->owners.push_back(modules.store());
    parts->device = device_;
    model_ = std::make_unique<Transformer>(std::move(*parts), pool_);
    const Result<> made = model_->make_pool(kStateBytes);
    EXPECT_TRUE(made.ok()) << made.error().message();
  }

  [[nodiscard]] bool ok() const { return host_.model != nullptr && model_ != nullptr; }
  [[nodiscard]] Model& host() { return *host_.model; }
  [[nodiscard]] Transformer& on_device() { return *model_; }
  [[nodiscard]] ThreadPool& pool() { return pool_; }
  [[nodiscard]] FakeDevice& fake() { return fake_; }
  [[nodiscard]] std::int64_t vocabulary() { return host().info().vocab_size; }
  [[nodiscard]] std::vector<std::int32_t> random_ids(std::int64_t count) {
    std::vector<std::int32_t> ids(static_cast<std::size_t>(count));
    for (std::int32_t& id : ids)
      id = static_cast<std::int32_t>(random_.below(static_cast<std::uint32_t>(vocabulary())));
    return ids;
  }

 private:
  FakeDevice fake_;
  ThreadPool pool_;
  Random random_{7};
  Loaded host_;
  std::shared_ptr<GpuDevice> device_;
  std::unique_ptr<Ops> ops_;
  std::unique_ptr<Transformer> model_;
};

// Sequences that both models have.
struct Sequences {
  std::vector<std::unique_ptr<SequenceState>> host;
  std::vector<std::unique_ptr<SequenceState>> device;

  void add(Pair& pair) {
    host.push_back(new_state(pair.host()));
    device.push_back(new_state(pair.on_device()));
  }
  void fork(std::size_t from) {
    host.push_back(host[from]->fork());
    device.push_back(device[from]->fork());
  }
};

std::string forward(Model& model, const std::vector<std::unique_ptr<SequenceState>>& states,
                    const std::vector<std::vector<std::int32_t>>& ids, LogitRows rows, std::vector<float>& logits) {
  Ragged batch;
  for (std::size_t s = 0; s < ids.size(); ++s) batch.add(*states[s], ids[s]);
  const Result<> done = batch.forward(model, rows, logits);
  return done.ok() ? "" : done.error().message();
}

// Runs the same on both; the logits have the same bits.
void expect_same(Pair& pair, const Sequences& sequences, const std::vector<std::vector<std::int32_t>>& ids,
                 LogitRows rows = LogitRows::last_of_each) {
  std::vector<float> wanted;
  std::vector<float> found;
  ASSERT_EQ(forward(pair.host(), sequences.host, ids, rows, wanted), "");
  ASSERT_EQ(forward(pair.on_device(), sequences.device, ids, rows, found), "");
  ASSERT_EQ(found.size(), wanted.size());
  ASSERT_EQ(std::memcmp(found.data(), wanted.data(), wanted.size() * sizeof(float)), 0);
}

std::vector<std::filesystem::path> all_checkpoints() {
  std::vector<std::filesystem::path> all;
  std::vector<std::filesystem::path> roots{data_dir() / "checkpoints", data_dir() / "families"};
  if (const auto shared = shared_dir()) roots.push_back(*shared / "checkpoints");
  std::set<std::string> known;
  for (const auto& root : roots) {
    for (const auto& entry : std::filesystem::directory_iterator(root)) {
      if (!std::filesystem::exists(entry.path() / "config.json")) continue;
      if (known.insert(entry.path().filename().string()).second) all.push_back(entry.path());
    }
  }
  std::sort(all.begin(), all.end());
  return all;
}

class ForwardStepTest : public testing::TestWithParam<std::filesystem::path> {};

// A prompt over the end of a block, a fork that copies its last block, then steps of three: eager, and replayed at
// later positions from graphs of three, and of four with a sequence that is missing.
TEST_P(ForwardStepTest, DeviceHasTheHostsBitsEagerAndReplayed) {
  Policy policy;
  policy.batch_invariant = true;  // so that a missing sequence changes no bit of the others
  Pair pair(GetParam(), policy);
  ASSERT_TRUE(pair.ok());
  Sequences sequences;
  sequences.add(pair);
  sequences.add(pair);
  const std::int64_t prompt = std::min<std::int64_t>(70, pair.host().info().max_context - 16);
  expect_same(pair, sequences, {pair.random_ids(prompt), pair.random_ids(3)}, LogitRows::all);
  sequences.fork(0);
  const auto step = [&] { expect_same(pair, sequences, {pair.random_ids(1), pair.random_ids(1), pair.random_ids(1)}); };
  step();
  const int allocations = pair.fake().calls("allocate") + pair.fake().calls("allocate_pinned");
  for (int i = 0; i < 2; ++i) step();
  EXPECT_EQ(pair.fake().calls("launch_graph"), 0);
  EXPECT_EQ(pair.fake().calls("allocate") + pair.fake().calls("allocate_pinned"), allocations);
  for (const std::vector<std::int64_t>& sizes : {std::vector<std::int64_t>{3}, {2, 4, 8}}) {
    const Result<> prepared = pair.on_device().prepare_decode(sizes, true);
    ASSERT_TRUE(prepared.ok()) << prepared.error().message();
    EXPECT_EQ(pair.on_device().decode_graphs().captured, std::ssize(sizes));
    const int before = pair.fake().calls("launch_graph");
    const int kernels = pair.fake().calls("kernel");
    for (int i = 0; i < 3; ++i) step();
    EXPECT_EQ(pair.fake().calls("launch_graph"), before + 3);
    EXPECT_EQ(pair.on_device().decode_graphs().replayed, 3);
    EXPECT_EQ(pair.fake().calls("kernel"), kernels) << "all of a step is in its graph";
  }
}

// Kernels whose bits depend on how many tokens a call has: a decode step of five sequences has eight, enqueued or
// replayed. Larger calls in between, which take memory, change nothing.
TEST_P(ForwardStepTest, ReplayedStepsHaveTheBitsOfEnqueuedOnes) {
  constexpr std::size_t kSequences = 5;
  Pair pair(GetParam(), Policy{});
  ASSERT_TRUE(pair.ok());
  Model& model = pair.on_device();
  std::vector<std::unique_ptr<SequenceState>> states;
  std::vector<std::vector<std::int32_t>> prompts;
  for (std::size_t s = 0; s < kSequences; ++s) {
    states.push_back(new_state(model));
    prompts.push_back(pair.random_ids(2 + static_cast<std::int64_t>(s)));
  }
  std::vector<float> logits;
  ASSERT_EQ(forward(model, states, prompts, LogitRows::last_of_each, logits), "");
  std::vector<std::vector<std::vector<std::int32_t>>> ids(3);
  for (auto& step : ids) {
    for (std::size_t s = 0; s < kSequences; ++s) step.push_back(pair.random_ids(1));
  }
  const std::vector<std::int32_t> other = pair.random_ids(std::min<std::int64_t>(90, model.info().max_context));
  std::vector<std::vector<float>> enqueued;
  for (const bool graphs : {false, true}) {
    const Result<> prepared = pair.on_device().prepare_decode(std::vector<std::int64_t>{4, 8}, graphs);
    ASSERT_TRUE(prepared.ok()) << prepared.error().message();
    std::vector<std::unique_ptr<SequenceState>> forks;
    for (const auto& state : states) forks.push_back(state->fork());
    for (std::size_t i = 0; i < ids.size(); ++i) {
      ASSERT_EQ(forward(model, forks, ids[i], LogitRows::last_of_each, logits), "");
      if (!graphs) enqueued.push_back(logits);
      ASSERT_EQ(logits.size(), enqueued[i].size());
      EXPECT_EQ(std::memcmp(logits.data(), enqueued[i].data(), logits.size() * sizeof(float)), 0) << i;
      std::vector<std::unique_ptr<SequenceState>> alone;
      alone.push_back(new_state(model));
      ASSERT_EQ(forward(model, alone, {other}, LogitRows::all, logits), "");
    }
    EXPECT_EQ(pair.on_device().decode_graphs().replayed, graphs ? std::ssize(ids) : 0);
  }
}

// A span of drafts with the logits of each, behind a checkpoint to which the states go back.
TEST_P(ForwardStepTest, DraftsAreForgotten) {
  Pair pair(GetParam(), Policy{});
  ASSERT_TRUE(pair.ok());
  Sequences sequences;
  sequences.add(pair);
  const std::int64_t prompt = std::min<std::int64_t>(61, pair.host().info().max_context - 16);
  expect_same(pair, sequences, {pair.random_ids(prompt)});
  for (const auto* states : {&sequences.host, &sequences.device}) states->front()->checkpoint();
  for (int round = 0; round < 2; ++round) {
    expect_same(pair, sequences, {pair.random_ids(8)}, LogitRows::all);
    for (const auto* states : {&sequences.host, &sequences.device}) {
      ASSERT_TRUE(states->front()->truncate(prompt).ok());
    }
  }
  expect_same(pair, sequences, {pair.random_ids(2)}, LogitRows::all);
}

// Samples of more rows than a device keeps at a time: scores of a prompt, draws, a bias, banned tokens. Rows of logits
// cross to the host where they are asked for.
TEST(ForwardStepSamples, DeviceChoosesAndScoresAsTheHost) {
  Pair pair(data_dir() / "families" / "qwen3_moe-stacked", Policy{});
  ASSERT_TRUE(pair.ok());
  constexpr std::int64_t kPrompt = 70;
  constexpr std::int32_t kTops = 3;
  std::vector<std::int32_t> ids = pair.random_ids(kPrompt + 1);
  std::vector<std::int32_t> positions(ids.size());
  std::iota(positions.begin(), positions.end() - 1, 0);
  const std::vector<Batch::Span> spans{{.begin = 0, .count = kPrompt, .rows = kPrompt},
                                       {.begin = kPrompt, .count = 1, .rows = 1}};
  std::vector<BatchSamples::Row> rows;
  for (std::int64_t row = 0; row < kPrompt; ++row) rows.push_back({.span = 0, .row = row});
  rows.push_back({.span = 1, .row = 0});
  std::vector<SampleParams> params(rows.size());
  params[kPrompt - 1] = {.temperature = 0.9, .top_p = 0.95, .seed = 11};
  std::vector<std::int32_t> given(ids.begin() + 1, ids.end());  // what follows each row
  given[kPrompt - 1] = -1;
  given.push_back(-1);
  const std::vector<std::int32_t> tops(rows.size(), kTops);
  const std::vector<std::int32_t> counts_start(rows.size() + 1, 0);
  std::vector<std::int32_t> bias_start(rows.size() + 1, 0);
  bias_start.back() = 1;
  const std::vector<LogitBias> bias{{.id = 5, .bias = 1e3F}};
  std::vector<std::uint32_t> mask(rows.size() * static_cast<std::size_t>(mask_words(pair.vocabulary())), ~0U);
  for (std::uint32_t& word : mask) word &= ~std::uint32_t{2};
  const BatchSamples samples{.rows = rows,
                             .args = {.params = params.data(),
                                      .counts_start = counts_start.data(),
                                      .bias = bias.data(),
                                      .bias_start = bias_start.data(),
                                      .mask = mask.data(),
                                      .given = given.data(),
                                      .tops = tops.data(),
                                      .most_tops = kTops}};
  int copies = 0;
  for (const bool logits : {true, false}) {
    const Batch batch{.ids = ids, .positions = positions, .spans = spans, .samples = &samples, .logits = logits};
    Sequences sequences;
    sequences.add(pair);
    sequences.add(pair);
    BatchResult wanted;
    BatchResult found;
    const std::vector<SequenceState*> on_host{sequences.host[0].get(), sequences.host[1].get()};
    const std::vector<SequenceState*> on_device{sequences.device[0].get(), sequences.device[1].get()};
    ASSERT_TRUE(pair.host().run(batch, on_host, wanted).ok());
    const int before = pair.fake().calls("copy");
    ASSERT_TRUE(pair.on_device().run(batch, on_device, found).ok());
    const int copied = pair.fake().calls("copy") - before;
    ASSERT_EQ(wanted.ids.size(), rows.size());
    EXPECT_EQ(wanted.ids.back(), 5);
    EXPECT_GE(wanted.ids[kPrompt - 1], 0);
    EXPECT_EQ(found.ids, wanted.ids);
    EXPECT_EQ(found.logprobs, wanted.logprobs);
    EXPECT_EQ(found.rows, logits);
    EXPECT_EQ(found.logits, logits ? wanted.logits : std::vector<float>());
    if (logits) {
      copies = copied;
    } else {
      EXPECT_EQ(copied, copies - 2) << "of 64 rows, and of the others";
    }
    ASSERT_EQ(found.tops.size(), wanted.tops.size());
    for (std::size_t i = 0; i < found.tops.size(); ++i) {
      EXPECT_EQ(found.tops[i].id, wanted.tops[i].id);
      EXPECT_EQ(found.tops[i].logprob, wanted.tops[i].logprob);
    }
  }
}

// Lets each call of this name fail in turn, in forwards of the device alone, until one has no more of them; that one
// has the host's bits. A failed forward says so and leaves the states as they were.
void fail_each(Pair& pair, const Sequences& sequences, const std::vector<std::vector<std::int32_t>>& ids,
               const std::string& call, int error, const char* code) {
  std::vector<std::int64_t> lengths;
  for (const auto& state : sequences.device) lengths.push_back(state->length());
  std::vector<float> found;
  for (int failed = 0;; ++failed) {
    SCOPED_TRACE(call + " " + std::to_string(failed));
    ASSERT_LT(failed, 1000);
    pair.fake().failure = {.call = call, .at = pair.fake().calls(call) + failed + 1, .error = error};
    const std::string message = forward(pair.on_device(), sequences.device, ids, LogitRows::last_of_each, found);
    pair.fake().failure = {};
    if (message.empty()) {
      EXPECT_GT(failed, 0) << "no forward makes such a call";
      break;
    }
    EXPECT_NE(message.find(code), std::string::npos) << message;
    EXPECT_NE(message.find("cuda:0"), std::string::npos) << message;
    for (std::size_t s = 0; s < lengths.size(); ++s) EXPECT_EQ(sequences.device[s]->length(), lengths[s]);
  }
  std::vector<float> wanted;
  ASSERT_EQ(forward(pair.host(), sequences.host, ids, LogitRows::last_of_each, wanted), "");
  ASSERT_EQ(found.size(), wanted.size());
  EXPECT_EQ(std::memcmp(found.data(), wanted.data(), wanted.size() * sizeof(float)), 0) << call;
}

TEST(ForwardStepFailures, EveryFailingCallEndsItsForwardAlone) {
  for (const char* name : {"qwen3_next", "glm4_moe_lite"}) {
    SCOPED_TRACE(name);
    Pair pair(data_dir() / "families" / name, Policy{});
    ASSERT_TRUE(pair.ok());
    Sequences sequences;
    const auto tokens = [&](std::int64_t count) {
      std::vector<std::vector<std::int32_t>> ids;
      for (std::size_t s = 0; s < sequences.host.size(); ++s) ids.push_back(pair.random_ids(count));
      return ids;
    };
    sequences.add(pair);
    fail_each(pair, sequences, tokens(70), "allocate", kDeviceOutOfMemory, "device.memory");
    sequences.add(pair);
    fail_each(pair, sequences, tokens(140), "allocate_pinned", kDeviceOutOfMemory, "device.pinned");
    for (const char* call : {"copy", "fill", "kernel", "wait"}) {
      sequences.fork(0);  // whose last block the next forward copies
      fail_each(pair, sequences, tokens(1), call, 1, "device.call");
    }
    sequences.fork(0);
    const auto sequence_count = static_cast<std::int64_t>(sequences.host.size());
    ASSERT_TRUE(pair.on_device().prepare_decode(std::vector{sequence_count}, true).ok());
    fail_each(pair, sequences, tokens(1), "launch_graph", 1, "device.call");
  }
}

// A decode step whose sequences want logits, the highest ones, draws by noise, and nothing: from one graph.
TEST(ForwardStepRows, ReplayedStepsGiveWhatEachSequenceAsksFor) {
  Policy policy;
  policy.batch_invariant = true;
  Pair pair(data_dir() / "families" / "qwen3_moe-stacked", policy);
  ASSERT_TRUE(pair.ok());
  Sequences sequences;
  for (int s = 0; s < 4; ++s) sequences.add(pair);
  expect_same(pair, sequences, {pair.random_ids(3), pair.random_ids(4), pair.random_ids(5), pair.random_ids(6)});
  ASSERT_TRUE(pair.on_device().prepare_decode(std::vector<std::int64_t>{8}, true).ok());
  const std::vector<std::int32_t> ids = pair.random_ids(4);
  const std::vector<std::int32_t> positions{3, 4, 5, 6};
  const std::vector<Batch::Span> spans{
      {.begin = 0, .count = 1, .rows = 1, .top_k = 3, .min_share = 1e-30},
      {.begin = 1, .count = 1, .rows = 0},
      {.begin = 2, .count = 1, .rows = 1, .top_k = 2, .seed = 9, .temperature = 0.7},
      {.begin = 3, .count = 1, .rows = 1},
  };
  const Batch batch{.ids = ids, .positions = positions, .spans = spans};
  BatchResult wanted;
  BatchResult found;
  std::vector<SequenceState*> on_host;
  std::vector<SequenceState*> on_device;
  for (std::size_t s = 0; s < 4; ++s) {
    on_host.push_back(sequences.host[s].get());
    on_device.push_back(sequences.device[s].get());
  }
  ASSERT_TRUE(pair.host().run(batch, on_host, wanted).ok());
  ASSERT_TRUE(pair.on_device().run(batch, on_device, found).ok());
  EXPECT_EQ(pair.on_device().decode_graphs().replayed, 1);
  EXPECT_TRUE(found.spans[0].all);
  EXPECT_EQ(found.logits, wanted.logits);
  ASSERT_EQ(found.top.size(), 5U);
  for (std::size_t i = 0; i < found.top.size(); ++i) {
    EXPECT_EQ(found.top[i].id, wanted.top[i].id);
    EXPECT_EQ(found.top[i].logit, wanted.top[i].logit);
  }
}

// Without sequences, more of them than a step has, and a span of two tokens: none is replayed.
TEST(ForwardStepRows, OnlyDecodeStepsAreReplayed) {
  Pair pair(data_dir() / "families" / "qwen3_moe-stacked", Policy{});
  ASSERT_TRUE(pair.ok());
  Sequences sequences;
  for (int s = 0; s < 3; ++s) sequences.add(pair);
  ASSERT_TRUE(pair.on_device().prepare_decode(std::vector<std::int64_t>{1, 2}, true).ok());
  expect_same(pair, sequences, {pair.random_ids(1), pair.random_ids(1), pair.random_ids(1)});
  sequences.host.pop_back();
  sequences.device.pop_back();
  expect_same(pair, sequences, {pair.random_ids(1), pair.random_ids(2)});
  EXPECT_EQ(pair.on_device().decode_graphs().replayed, 0);
  expect_same(pair, sequences, {pair.random_ids(1), pair.random_ids(1)});
  EXPECT_EQ(pair.on_device().decode_graphs().replayed, 1);
}

// Whichever call fails: the steps are not there, nothing else is lost, and the next preparation succeeds.
TEST(ForwardStepFailures, APreparationThatFailsLeavesTheModel) {
  Pair pair(data_dir() / "families" / "qwen3_next", Policy{});
  ASSERT_TRUE(pair.ok());
  Sequences sequences;
  sequences.add(pair);
  expect_same(pair, sequences, {pair.random_ids(5)});
  const std::vector<std::int64_t> sizes{1, 2};
  for (const char* call :
       {"allocate", "allocate_pinned", "copy", "fill", "kernel", "wait", "begin_capture", "end_capture"}) {
    for (int failed = 0;; ++failed) {
      SCOPED_TRACE(std::string(call) + " " + std::to_string(failed));
      ASSERT_LT(failed, 1000);
      pair.fake().failure = {.call = call, .at = pair.fake().calls(call) + failed + 1, .error = 1};
      const Result<> prepared = pair.on_device().prepare_decode(sizes, true);
      pair.fake().failure = {};
      if (prepared.ok()) break;
      EXPECT_EQ(pair.on_device().decode_graphs().sizes, 0);
    }
    expect_same(pair, sequences, {pair.random_ids(1)});
    EXPECT_EQ(pair.on_device().decode_graphs().replayed, 1);
  }
}

// What a request was given, alternatives behind their token.
struct Heard {
  std::vector<std::int32_t> ids;
  std::vector<double> logprobs;
  std::vector<std::uint32_t> routing;
  std::optional<RequestOutcome> outcome;
};

class Listener final : public RequestSink {
 public:
  void on_prompt(RequestId id, std::span<const ScoredToken> tokens) override {
    for (const ScoredToken& token : tokens) take(id, token);
  }
  void on_token(RequestId id, const ScoredToken& token) override {
    take(id, token);
    if (after_token) after_token();
  }
  void on_end(RequestId id, const RequestOutcome& outcome) override {
    heard[id].outcome = outcome;
    const auto counts = scheduler->routing_of(id);
    heard[id].routing.assign(counts.begin(), counts.end());
  }

  const Scheduler* scheduler = nullptr;
  std::function<void()> after_token;
  std::map<RequestId, Heard> heard;

 private:
  void take(RequestId id, const ScoredToken& token) {
    heard[id].ids.push_back(token.id);
    heard[id].logprobs.push_back(token.logprob.value_or(0.0));
    for (const TokenLogprob& top : token.top) {
      heard[id].ids.push_back(top.id);
      heard[id].logprobs.push_back(top.logprob);
    }
  }
};

// Greedy, drawn from all, from few, scored with an echo, penalized, banned and counted ones.
std::vector<Request> requests(Pair& pair) {
  std::vector<Request> all(6);
  for (std::size_t i = 0; i < all.size(); ++i) {
    all[i].prompt = pair.random_ids(3 + 20 * static_cast<std::int64_t>(i));
    all[i].max_tokens = 4 + static_cast<std::int64_t>(i);
    all[i].sampling.seed = i;
    all[i].count_routing = i % 2 == 0;
  }
  all[1].sampling.temperature = 0.9;
  all[2].sampling = {.temperature = 0.8, .top_k = 5, .seed = 2};
  all[3].sampling = {.temperature = 0.7, .top_p = 0.9, .min_p = 0.05, .seed = 3};
  all[3].logprobs = 2;
  all[3].echo = true;
  all[4].sampling = {.temperature = 1.1, .min_p = 0.1, .seed = 4, .repetition_penalty = 1.2};
  all[5].end_ids = {1, 2, 3};
  all[5].min_tokens = 3;
  all[5].logit_bias = {{.id = 2, .bias = 3.0F}};
  return all;
}

std::map<RequestId, Heard> served(Model& model, ThreadPool& pool, const std::vector<Request>& requests) {
  // Tokens of stored prefixes would not be counted.
  Scheduler scheduler(model, pool, {.reuse_prefixes = false});
  Listener listener;
  listener.scheduler = &scheduler;
  for (const Request& request : requests) EXPECT_TRUE(scheduler.submit(request, listener).ok());
  while (scheduler.step()) {
  }
  return listener.heard;
}

TEST(DeviceScheduler, GivesTheTokensOfTheHost) {
  for (const char* name : {"qwen3_moe-stacked", "qwen3_next", "glm4_moe_lite"}) {
    SCOPED_TRACE(name);
    Policy policy;
    policy.batch_invariant = true;  // steps are cut by the time that they take
    Pair pair(data_dir() / "families" / name, policy);
    ASSERT_TRUE(pair.ok());
    const auto all = requests(pair);
    const auto wanted = served(pair.host(), pair.pool(), all);
    for (const bool replayed : {false, true}) {
      SCOPED_TRACE(replayed);
      const std::vector<std::int64_t> captured =
          replayed ? std::vector<std::int64_t>{1, 2, 4, 8} : std::vector<std::int64_t>{};
      ASSERT_TRUE(pair.on_device().prepare_decode(captured, true).ok());
      const auto found = served(pair.on_device(), pair.pool(), all);
      EXPECT_EQ(pair.on_device().decode_graphs().replayed > 4, replayed);
      ASSERT_EQ(found.size(), wanted.size());
      for (const auto& [id, want] : wanted) {
        const Heard& got = found.at(id);
        ASSERT_TRUE(want.outcome && got.outcome);
        EXPECT_FALSE(got.outcome->error) << got.outcome->error->message();
        EXPECT_EQ(got.outcome->end, want.outcome->end);
        EXPECT_EQ(got.ids, want.ids);
        EXPECT_EQ(got.logprobs, want.logprobs);
        EXPECT_EQ(got.routing, want.routing);
      }
    }
  }
}

TEST(DeviceScheduler, AFailingDeviceEndsItsRequestsAndServesTheNext) {
  Pair pair(data_dir() / "families" / "qwen3_next", Policy{});
  ASSERT_TRUE(pair.ok());
  Scheduler scheduler(pair.on_device(), pair.pool(), {});
  Listener listener;
  listener.scheduler = &scheduler;
  std::vector<RequestId> ids;
  for (int i = 0; i < 3; ++i) {
    auto id = scheduler.submit({.prompt = pair.random_ids(5 + i), .max_tokens = 8}, listener);
    ASSERT_TRUE(id.ok());
    ids.push_back(*id);
  }
  listener.after_token = [&] {
    pair.fake().failure = {.call = "kernel", .at = pair.fake().calls("kernel") + 30, .error = 1};
  };
  while (scheduler.step()) {
  }
  for (const RequestId id : ids) {
    ASSERT_TRUE(listener.heard[id].outcome.has_value());
    ASSERT_TRUE(listener.heard[id].outcome->error.has_value());
    EXPECT_EQ(listener.heard[id].outcome->error->code, "device.call");
    EXPECT_GT(listener.heard[id].ids.size(), 0U);
  }
  EXPECT_EQ(scheduler.status().kv_bytes, scheduler.status().kv_prefix_bytes);
  pair.fake().failure = {};
  listener.after_token = nullptr;
  const auto after = scheduler.submit({.prompt = pair.random_ids(9), .max_tokens = 4}, listener);
  ASSERT_TRUE(after.ok());
  while (scheduler.step()) {
  }
  EXPECT_EQ(listener.heard[*after].outcome->end, RequestEnd::length);
}

INSTANTIATE_TEST_SUITE_P(Checkpoints, ForwardStepTest, testing::ValuesIn(all_checkpoints()), [](const auto& info) {
  std::string name = info.param.filename().string();
  std::replace_if(name.begin(), name.end(), [](char c) { return c == '-' || c == '.'; }, '_');
  return name;
});

}  // namespace
}  // namespace moracle::test
