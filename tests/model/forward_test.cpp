// The forward pass against an independent one in double, and the properties of ragged batches and states.
#include <gtest/gtest.h>

#include <cstring>
#include <numeric>

#include "model/spec/rope.h"
#include "support/cpu_targets.h"
#include "support/model_fixture.h"
#include "support/tiny_model.h"

namespace moracle::test {
namespace {

std::vector<std::int32_t> tokens(std::size_t count, unsigned seed, int vocabulary = 48) {
  std::mt19937 rng(seed);
  std::vector<std::int32_t> ids(count);
  for (auto& id : ids) id = static_cast<std::int32_t>(rng() % static_cast<unsigned>(vocabulary));
  return ids;
}

Loaded load_tiny(const TinyModel& model, int threads = 2, const Policy& policy = pinned("ref")) {
  const TemporaryFolder folder;
  model.write(folder.path());
  return load(folder.path(), policy, threads);  // the folder goes before the first forward: nothing may need it
}

bool same_bits(const std::vector<float>& a, const std::vector<float>& b) {
  return a.size() == b.size() && std::memcmp(a.data(), b.data(), a.size() * sizeof(float)) == 0;
}

// f32 against double: a few hundred roundings of 6e-8 each, in 2 layers.
constexpr double kTolerance = 5e-6;

struct Variant {
  const char* name;
  Json config;
  std::int64_t window = 0;
};

std::vector<Variant> variants() {
  std::vector<Variant> all;
  all.push_back({"qwen3_moe", tiny_qwen3_moe()});
  all.push_back({"mixtral", tiny_mixtral()});
  Variant biased{"bias_dense_tied", tiny_qwen3_moe()};
  biased.config["attention_bias"] = true;
  biased.config["mlp_only_layers"] = {1};
  biased.config["tie_word_embeddings"] = true;
  biased.config["norm_topk_prob"] = false;
  all.push_back(biased);
  Variant sliding{"sliding", tiny_qwen3_moe(), 20};
  sliding.config["use_sliding_window"] = true;
  sliding.config["sliding_window"] = 20;
  all.push_back(sliding);
  Variant wide{"window_over_blocks", tiny_mixtral(), 70};
  wide.config["sliding_window"] = 70;
  all.push_back(wide);
  Variant heads{"one_kv_head", tiny_qwen3_moe()};
  heads.config["num_key_value_heads"] = 1;
  all.push_back(heads);
  Variant plain{"no_grouping", tiny_qwen3_moe()};
  plain.config["num_key_value_heads"] = 4;
  plain.config["num_experts_per_tok"] = 6;
  all.push_back(plain);
  return all;
}

TEST(Forward, MatchesDouble) {
  for (const Variant& variant : variants()) {
    SCOPED_TRACE(variant.name);
    const TinyModel tiny = TinyBuilder(variant.config, {}).build();
    const Loaded loaded = load_tiny(tiny);
    ASSERT_NE(loaded.model, nullptr);
    TinyForward forward(tiny, plain_frequencies(10000.0, 16), 1.0, variant.window);
    // Lengths around the 64 positions of a block.
    const auto ids = tokens(130, 3);
    const auto want = forward.run(ids);
    for (const std::size_t length : {1U, 63U, 64U, 65U, 129U, 130U}) {
      SCOPED_TRACE(length);
      const auto state = new_state(*loaded.model);
      const auto got = run(*loaded.model, *state, {ids.begin(), ids.begin() + static_cast<std::ptrdiff_t>(length)});
      ASSERT_EQ(got.size(), length * 48);
      const auto errors = relative_errors(got, want, 48);
      EXPECT_LT(*std::max_element(errors.begin(), errors.end()), kTolerance);
    }
  }
}

TEST(Forward, MatchesDoubleWithEveryVectorWidth) {
  const TinyModel tiny = TinyBuilder(tiny_qwen3_moe(), {}).build();
  TinyForward forward(tiny, plain_frequencies(10000.0, 16));
  const auto ids = tokens(100, 4);
  const auto want = forward.run(ids);
  int ran = 0;
  for (const CpuTarget& target : cpu_targets()) {
    const std::string backend(target.facts.name);
    const bool widens = backend == "avx2" || backend == "avx512" || backend == "neon";  // others serve fewer schemes
    if (!widens || !target.runs_here()) continue;
    SCOPED_TRACE(backend);
    ++ran;
    const TemporaryFolder folder;
    tiny.write(folder.path());
    auto checkpoint = Checkpoint::open(folder.path());
    ASSERT_TRUE(checkpoint.ok());
    auto plan = LoadPlan::make(*checkpoint, probe_machine(), pinned(backend.c_str()));
    ASSERT_TRUE(plan.ok()) << plan.error().message();
    ThreadPool pool(2);
    auto model = load_model(**plan, pool);
    ASSERT_TRUE(model.ok()) << model.error().message();
    const auto state = new_state(**model);
    const auto errors = relative_errors(run(**model, *state, ids), want, 48);
    ASSERT_EQ(errors.size(), ids.size());
    EXPECT_LT(median(errors), 5e-3);  // kernels may round activations to bf16
  }
  EXPECT_GT(ran, 0);
}

TEST(Forward, YarnMatchesDouble) {
  Json config = tiny_qwen3_moe();
  config["rope_scaling"] = {{"type", "yarn"}, {"factor", 4.0}, {"original_max_position_embeddings", 32}};
  const TinyModel tiny = TinyBuilder(config, {}).build();
  const Loaded loaded = load_tiny(tiny);
  ASSERT_NE(loaded.model, nullptr);
  const YarnSpec yarn{.factor = 4.0, .original_positions = 32.0};
  TinyForward forward(tiny, yarn_frequencies(yarn, 10000.0, 16), 0.1 * std::log(4.0) + 1.0);
  const auto ids = tokens(90, 5);
  const auto state = new_state(*loaded.model);
  const auto errors = relative_errors(run(*loaded.model, *state, ids), forward.run(ids), 48);
  ASSERT_EQ(errors.size(), ids.size());
  EXPECT_LT(*std::max_element(errors.begin(), errors.end()), kTolerance);
}

TEST(Forward, SpellingsOfTheSameModelAgree) {
  const auto ids = tokens(20, 6);
  std::vector<float> first;
  const std::vector<TinyNames> spellings{
      {},
      {.root = "model.language_model."},
      {.root = ""},
      {.stacked = true},
      {.moe = "block_sparse_moe", .gate = "w1", .up = "w3", .down = "w2"},
      {.moe = "block_sparse_moe"},
  };
  for (const TinyNames& names : spellings) {
    SCOPED_TRACE(names.root + " " + names.moe + " " + names.gate + (names.stacked ? " stacked" : ""));
    const TinyModel tiny = TinyBuilder(tiny_mixtral(), names).build();  // draws in the same order for every spelling
    const Loaded loaded = load_tiny(tiny);
    ASSERT_NE(loaded.model, nullptr);
    const auto state = new_state(*loaded.model);
    const auto logits = run(*loaded.model, *state, ids);
    ASSERT_FALSE(logits.empty());
    if (first.empty()) first = logits;
    EXPECT_TRUE(same_bits(logits, first));
  }
}

TEST(Forward, NestedConfigAndBothGenerationsOfKeysAgree) {
  const auto ids = tokens(20, 7);
  const TinyModel old = TinyBuilder(tiny_qwen3_moe(), {}).build();
  TinyModel modern = old;
  modern.config.erase("rope_theta");
  modern.config.erase("torch_dtype");
  modern.config["rope_parameters"] = {{"rope_theta", 10000.0}, {"rope_type", "default"}};
  modern.config["num_local_experts"] = 6;
  modern.config["dtype"] = "float32";
  TinyModel nested = old;
  nested.config = Json{{"model_type", "some_multimodal"}, {"text_config", old.config}};
  nested.tensors["visual.patch_embed.weight"] = {{2, 2}, {1, 2, 3, 4}};
  std::vector<float> first;
  for (const TinyModel* tiny : std::initializer_list<const TinyModel*>{&old, &modern, &nested}) {
    const Loaded loaded = load_tiny(*tiny);
    ASSERT_NE(loaded.model, nullptr);
    const auto state = new_state(*loaded.model);
    const auto logits = run(*loaded.model, *state, ids);
    if (first.empty()) first = logits;
    EXPECT_TRUE(same_bits(logits, first));
  }
}

// Prompts of different length in one batch, alone, cut in pieces, and on other thread counts: the same bits.
TEST(Forward, RaggedBatchEqualsEachSequenceAlone) {
  const TinyModel tiny = TinyBuilder(tiny_qwen3_moe(), {}).build();
  const Loaded two = load_tiny(tiny, 2);
  const Loaded one = load_tiny(tiny, 1);
  ASSERT_NE(two.model, nullptr);
  ASSERT_NE(one.model, nullptr);
  const std::vector<std::vector<std::int32_t>> prompts{tokens(5, 8), tokens(70, 9), tokens(33, 10)};
  Ragged batch;
  std::vector<std::unique_ptr<SequenceState>> states;
  for (const auto& prompt : prompts) {
    states.push_back(new_state(*two.model));
    batch.add(*states.back(), prompt);
  }
  std::vector<float> together;
  ASSERT_TRUE(batch.forward(*two.model, LogitRows::all, together).ok());
  std::vector<float> alone;
  for (const auto& prompt : prompts) {
    const auto state = new_state(*one.model);
    const auto logits = run(*one.model, *state, prompt);
    alone.insert(alone.end(), logits.begin(), logits.end());
  }
  EXPECT_TRUE(same_bits(together, alone));

  // Each sequence goes on in one batch; the last rows equal those of a single long prompt cut anywhere.
  Ragged next;
  for (std::size_t s = 0; s < prompts.size(); ++s) next.add(*states[s], {7, 11});
  std::vector<float> continued;
  ASSERT_TRUE(next.forward(*two.model, LogitRows::last_of_each, continued).ok());
  std::vector<float> pieces;
  for (auto prompt : prompts) {
    prompt.insert(prompt.end(), {7, 11});
    const auto state = new_state(*one.model);
    const auto cut = prompt.begin() + static_cast<std::ptrdiff_t>(prompt.size() / 3);
    run(*one.model, *state, {prompt.begin(), cut});
    const auto logits = run(*one.model, *state, {cut, prompt.end()}, LogitRows::last_of_each);
    pieces.insert(pieces.end(), logits.begin(), logits.end());
  }
  EXPECT_TRUE(same_bits(continued, pieces));
}

TEST(Forward, QuantizedRaggedBatchEqualsEachSequenceAlone) {
  const auto folder = data_dir() / "checkpoints" / "qwen3moe-gptq-w4g128-sym";
  const Loaded loaded = load(folder, pinned("ref"));
  ASSERT_NE(loaded.model, nullptr);
  Ragged batch;
  std::vector<std::unique_ptr<SequenceState>> states;
  std::vector<float> alone;
  for (const Reference& reference : references(folder)) {
    states.push_back(new_state(*loaded.model));
    batch.add(*states.back(), reference.ids);
    const auto state = new_state(*loaded.model);
    const auto logits = run(*loaded.model, *state, reference.ids, LogitRows::last_of_each);
    alone.insert(alone.end(), logits.begin(), logits.end());
  }
  std::vector<float> together;
  ASSERT_TRUE(batch.forward(*loaded.model, LogitRows::last_of_each, together).ok());
  EXPECT_TRUE(same_bits(together, alone));
}

TEST(Forward, ForkGoesItsOwnWay) {
  const TinyModel tiny = TinyBuilder(tiny_qwen3_moe(), {}).build();
  const Loaded loaded = load_tiny(tiny);
  ASSERT_NE(loaded.model, nullptr);
  Model& model = *loaded.model;
  for (const std::size_t length : {0U, 10U, 64U, 100U}) {
    SCOPED_TRACE(length);
    const auto prompt = tokens(length, 12);
    const auto state = new_state(model);
    if (length != 0) run(model, *state, prompt);
    const auto copy = state->fork();
    ASSERT_NE(copy, nullptr);
    EXPECT_EQ(copy->length(), static_cast<std::int64_t>(length));
    const auto left = run(model, *state, {1, 2, 3});
    const auto right = run(model, *copy, {4, 5, 6});
    const auto fresh = new_state(model);
    if (length != 0) run(model, *fresh, prompt);
    EXPECT_TRUE(same_bits(run(model, *fresh, {4, 5, 6}), right));
    EXPECT_FALSE(same_bits(left, right));
    EXPECT_EQ(state->length(), static_cast<std::int64_t>(length) + 3);
  }
}

TEST(Forward, BadBatchesAreRefusedAndChangeNothing) {
  const TinyModel tiny = TinyBuilder(tiny_qwen3_moe(), {}).build();
  const Loaded loaded = load_tiny(tiny);
  const Loaded other = load_tiny(tiny);
  ASSERT_NE(loaded.model, nullptr);
  ASSERT_NE(other.model, nullptr);
  Model& model = *loaded.model;
  const auto state = new_state(model);
  const auto foreign = new_state(*other.model);
  std::vector<float> logits;
  const auto attempt = [&](std::vector<std::int32_t> ids, std::vector<std::int32_t> positions,
                           std::vector<Batch::Span> spans, std::vector<SequenceState*> states) -> std::string {
    const Result<> result = model.forward({ids, positions, spans}, states, LogitRows::all, logits);
    return result.ok() ? "" : result.error().code;
  };
  SequenceState* const s = state.get();
  EXPECT_EQ(attempt({48}, {0}, {{0, 1}}, {s}), "model.token");
  EXPECT_EQ(attempt({-1}, {0}, {{0, 1}}, {s}), "model.token");
  EXPECT_EQ(attempt({1}, {1}, {{0, 1}}, {s}), "model.positions");
  EXPECT_EQ(attempt({1, 2}, {0, 2}, {{0, 2}}, {s}), "model.positions");
  EXPECT_EQ(attempt({1}, {0}, {{0, 2}}, {s}), "model.batch");
  EXPECT_EQ(attempt({1}, {0}, {{0, 0}}, {s}), "model.batch");
  EXPECT_EQ(attempt({1}, {0}, {{1, 1}}, {s}), "model.batch");
  EXPECT_EQ(attempt({1}, {0}, {{0, INT64_MAX}}, {s}), "model.batch");
  EXPECT_EQ(attempt({1, 2}, {0, 1}, {{0, 1}}, {s}), "model.batch");
  EXPECT_EQ(attempt({}, {}, {}, {}), "model.batch");
  EXPECT_EQ(attempt({1}, {0}, {{0, 1}}, {}), "model.batch");
  EXPECT_EQ(attempt({1}, {}, {{0, 1}}, {s}), "model.batch");
  EXPECT_EQ(attempt({1}, {0}, {{0, 1}}, {nullptr}), "model.batch");
  EXPECT_EQ(attempt({1}, {0}, {{0, 1}}, {foreign.get()}), "model.batch");
  EXPECT_EQ(attempt({1, 2}, {0, 0}, {{0, 1}, {1, 1}}, {s, s}), "model.batch");
  std::vector<std::int32_t> many(257, 1);
  std::vector<std::int32_t> positions(257);
  std::iota(positions.begin(), positions.end(), 0);
  EXPECT_EQ(attempt(many, positions, {{0, 257}}, {s}), "model.context");
  EXPECT_EQ(state->length(), 0);
  many.pop_back();
  positions.pop_back();
  EXPECT_EQ(attempt(many, positions, {{0, 256}}, {s}), "");  // the whole context is fine
  EXPECT_EQ(attempt({1}, {256}, {{0, 1}}, {s}), "model.context");
  EXPECT_EQ(state->length(), 256);
}

// Weights so large that activations overflow: an error that names the sequence, no crash, the state as before.
TEST(Forward, OverflowIsANumericError) {
  TinyModel tiny = TinyBuilder(tiny_qwen3_moe(), {}).build();
  for (float& value : tiny.tensors["model.layers.0.mlp.gate.weight"].values) value = 1e38F;
  const Loaded loaded = load_tiny(tiny);
  ASSERT_NE(loaded.model, nullptr);
  const auto state = new_state(*loaded.model);
  Ragged batch;
  batch.add(*state, {1, 2, 3});
  std::vector<float> logits;
  const Result<> result = batch.forward(*loaded.model, LogitRows::all, logits);
  ASSERT_FALSE(result.ok());
  EXPECT_EQ(result.error().code, "numeric.nan");
  EXPECT_EQ(result.error().where, "sequence 0, position 0");
  EXPECT_EQ(state->length(), 0);
}

TEST(Forward, ReserveKeepsResults) {
  const TinyModel tiny = TinyBuilder(tiny_qwen3_moe(), {}).build();
  const Loaded loaded = load_tiny(tiny);
  ASSERT_NE(loaded.model, nullptr);
  const auto ids = tokens(40, 13);
  const auto before = new_state(*loaded.model);
  const auto first = run(*loaded.model, *before, ids);
  ASSERT_TRUE(loaded.model->reserve(200).ok());
  const auto after = new_state(*loaded.model);
  EXPECT_TRUE(same_bits(run(*loaded.model, *after, ids), first));
  EXPECT_EQ(loaded.model->reserve(INT64_MAX).error().code, "model.batch");
}

}  // namespace
}  // namespace moracle::test
