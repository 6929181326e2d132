// Models with a recurrent state: what holds for keys and values holds for a state that every token overwrites.
#include <gtest/gtest.h>

#include <fstream>

#include "scheme/codes.h"
#include "support/model_fixture.h"
#include "support/tiny_model.h"

namespace moracle::test {
namespace {

constexpr const char* kFolders[] = {"qwen3_next",  "qwen3_next-mixed",  "qwen3_5_moe",    "qwen3_5_moe-text",
                                    "kimi_linear", "kimi_linear-saved", "bailing_hybrid", "bailing_hybrid-limits"};

std::filesystem::path folder_of(const char* name) {
  return data_dir() / "families" / name;
}

std::vector<std::int32_t> tokens(std::size_t count, unsigned seed) {
  std::mt19937 rng(seed);
  std::vector<std::int32_t> ids(count);
  for (auto& id : ids) id = 2 + static_cast<std::int32_t>(rng() % 126);
  return ids;
}

// Prompts of different length in one batch, alone and on other thread counts: the same bits; and so is what follows.
TEST(Hybrid, RaggedBatchEqualsEachSequenceAlone) {
  for (const char* name : kFolders) {
    SCOPED_TRACE(name);
    const Loaded three = load(folder_of(name), pinned("ref"), 3);
    const Loaded one = load(folder_of(name), pinned("ref"), 1);
    ASSERT_NE(three.model, nullptr);
    ASSERT_NE(one.model, nullptr);
    Ragged batch;
    Ragged next;
    std::vector<std::unique_ptr<SequenceState>> states;
    std::vector<float> alone;
    std::vector<float> alone_next;
    const std::vector<std::vector<std::int32_t>> prompts{tokens(2, 1), tokens(70, 2), tokens(1, 3), tokens(20, 4)};
    for (const auto& prompt : prompts) {
      states.push_back(new_state(*three.model));
      batch.add(*states.back(), prompt);
      const auto state = new_state(*one.model);
      const auto logits = run(*one.model, *state, prompt);
      alone.insert(alone.end(), logits.begin(), logits.end());
      const auto more = run(*one.model, *state, {7, 11}, LogitRows::last_of_each);
      alone_next.insert(alone_next.end(), more.begin(), more.end());
    }
    std::vector<float> together;
    ASSERT_TRUE(batch.forward(*three.model, LogitRows::all, together).ok());
    EXPECT_EQ(together, alone);
    for (const auto& state : states) next.add(*state, {7, 11});
    ASSERT_TRUE(next.forward(*three.model, LogitRows::last_of_each, together).ok());
    EXPECT_EQ(together, alone_next);
  }
}

TEST(Hybrid, ForkGoesItsOwnWay) {
  for (const char* name : {"qwen3_next", "kimi_linear", "bailing_hybrid"}) {
    const Loaded loaded = load(folder_of(name), pinned("ref"));
    ASSERT_NE(loaded.model, nullptr);
    Model& model = *loaded.model;
    for (const std::size_t length : {0U, 2U, 64U, 70U}) {
      SCOPED_TRACE(std::string(name) + " " + std::to_string(length));
      const auto prompt = tokens(length, 5);
      const auto state = new_state(model);
      const auto fresh = new_state(model);
      if (length != 0) run(model, *state, prompt);
      if (length != 0) run(model, *fresh, prompt);
      const auto copy = state->fork();
      ASSERT_NE(copy, nullptr);
      run(model, *state, {2, 3, 4});
      EXPECT_EQ(run(model, *copy, {5, 6, 7}), run(model, *fresh, {5, 6, 7}));
    }
  }
}

// Projections of one to a few rows, narrower than any panel, run on the kernel that the experts run on.
TEST(Hybrid, EveryKernelServesTheNarrowProjections) {
  const std::vector<std::pair<const char*, CpuFeature>> backends{{"avx2", CpuFeature::avx2},
                                                                 {"avx512", CpuFeature::avx512},
                                                                 {"avx512bf16", CpuFeature::avx512_bf16},
                                                                 {"amx", CpuFeature::amx_bf16}};
  for (const auto& [backend, feature] : backends) {
    if (!has(probe_machine().cpu_features, feature)) continue;
    for (const char* name : kFolders) {
      SCOPED_TRACE(std::string(backend) + " " + name);
      auto checkpoint = Checkpoint::open(folder_of(name));
      ASSERT_TRUE(checkpoint.ok());
      auto plan = LoadPlan::make(*checkpoint, probe_machine(), pinned(backend));
      ASSERT_TRUE(plan.ok()) << plan.error().message();
      for (const ModuleReport& module : (*plan)->modules()) {
        if (!module.decision) continue;
        ASSERT_NE(module.decision->winner, nullptr) << module.name;
        EXPECT_EQ(module.decision->winner->backend, backend) << module.name;
      }
      const Loaded loaded = load(folder_of(name), pinned(backend));
      ASSERT_NE(loaded.model, nullptr);
      const Reference want = references(folder_of(name)).at(1);
      const auto state = new_state(*loaded.model);
      const auto width = static_cast<std::size_t>(loaded.model->info().vocab_size);
      const auto errors = relative_errors(run(*loaded.model, *state, want.ids), want.logits, width);
      ASSERT_EQ(errors.size(), want.ids.size());
      EXPECT_LT(median(errors), 5e-3);  // kernels may round activations to bf16
    }
  }
}

// An exclude list may name the modules as engines fuse them. One that does not reach a shard leaves a module that is
// believed to be quantized and whose codes are missing, which is an error. Routers and the gates of shared experts need
// not be listed.
TEST(Hybrid, ExcludeListsMayNameFusedModules) {
  if (!shared_dir()) GTEST_SKIP() << "needs the shared collection";
  const auto original = *shared_dir() / "checkpoints" / "qwen35moe-ct-w4a16-g128";
  auto opened = Checkpoint::open(original);
  ASSERT_TRUE(opened.ok());
  const TemporaryFolder folder;
  std::filesystem::create_symlink(original / "model.safetensors", folder.path() / "model.safetensors");
  Json config = (*opened)->config();
  Json ignore = Json::array({"lm_head"});
  const auto plan = [&] {
    config["quantization_config"]["ignore"] = ignore;
    std::ofstream(folder.path() / "config.json") << config.dump();
    auto checkpoint = Checkpoint::open(folder.path());
    EXPECT_TRUE(checkpoint.ok());
    return LoadPlan::make(*checkpoint, probe_machine(), pinned("ref"));
  };
  for (int l = 0; l < 4; ++l) {
    const std::string layer = "model.layers." + std::to_string(l) + ".";
    std::vector<std::string> modules{"mlp.shared_expert.gate_up_proj", "mlp.shared_expert.down_proj"};
    if (l < 3) {
      modules.insert(modules.end(), {"linear_attn.in_proj_qkvz", "linear_attn.in_proj_ba", "linear_attn.out_proj"});
    } else {
      modules.insert(modules.end(), {"self_attn.qkv_proj", "self_attn.o_proj"});
    }
    for (const std::string& module : modules) ignore.push_back(layer + module);
  }
  auto planned = plan();
  ASSERT_TRUE(planned.ok()) << planned.error().message();
  for (std::size_t i = 0; i < ignore.size(); ++i) {
    if (ignore[i].get<std::string>().find("in_proj") == std::string::npos) continue;
    SCOPED_TRACE(ignore[i].get<std::string>());
    const Json all = ignore;
    ignore.erase(i);
    EXPECT_FALSE(plan().ok());
    ignore = all;
  }
}

TinyTensor widened(const TensorView& view) {
  TinyTensor tensor;
  tensor.shape = view.shape;
  for (const std::uint16_t code : elements<std::uint16_t>(view)) tensor.values.push_back(decode_bf16(code));
  return tensor;
}

// A call that ends in an error after the recurrence has run leaves every sequence of its batch as it was.
TEST(Hybrid, AFailedCallChangesNoState) {
  constexpr std::size_t kColumn = 5;
  constexpr std::size_t kPoison = 9;
  TinyModel tiny;
  auto checkpoint = Checkpoint::open(folder_of("qwen3_next"));
  ASSERT_TRUE(checkpoint.ok());
  tiny.config = (*checkpoint)->config();
  for (const auto& [name, view] : (*checkpoint)->tensors()) {
    if (!name.starts_with("mtp.")) tiny.tensors[name] = widened(view);
  }
  // One column of the residual stream is zero but for one token, up to a router that overflows where it is not.
  auto& embedding = tiny.tensors.at("model.embed_tokens.weight");
  const auto width = static_cast<std::size_t>(embedding.shape[1]);
  for (std::size_t at = kColumn; at < embedding.values.size(); at += width) embedding.values[at] = 0.0F;
  embedding.values[kPoison * width + kColumn] = 100.0F;
  auto& out = tiny.tensors.at("model.layers.0.linear_attn.out_proj.weight");
  const auto columns = static_cast<std::ptrdiff_t>(out.shape[1]);
  std::fill_n(out.values.begin() + static_cast<std::ptrdiff_t>(kColumn) * columns, columns, 0.0F);
  auto& router = tiny.tensors.at("model.layers.0.mlp.gate.weight");
  for (std::size_t at = kColumn; at < router.values.size(); at += width) router.values[at] = 3e38F;
  const TemporaryFolder folder;
  tiny.write(folder.path());
  const Loaded loaded = load(folder.path(), pinned("ref"));
  ASSERT_NE(loaded.model, nullptr);
  Model& model = *loaded.model;

  const auto failing = new_state(model);
  const auto beside = new_state(model);
  const auto fresh = new_state(model);
  const auto prompt = tokens(5, 6);
  ASSERT_EQ(std::count(prompt.begin(), prompt.end(), static_cast<std::int32_t>(kPoison)), 0);
  for (SequenceState* state : {failing.get(), beside.get(), fresh.get()}) run(model, *state, prompt);
  Ragged batch;
  batch.add(*beside, {20, 21});
  batch.add(*failing, {22, static_cast<std::int32_t>(kPoison), 23});
  std::vector<float> logits;
  const Result<> result = batch.forward(model, LogitRows::all, logits);
  ASSERT_FALSE(result.ok());
  EXPECT_EQ(result.error().code, "numeric.nan");
  EXPECT_EQ(result.error().where, "sequence 1, position 6");
  EXPECT_EQ(failing->length(), 5);
  const auto want = run(model, *fresh, {24, 25});
  EXPECT_EQ(run(model, *failing, {24, 25}), want);
  EXPECT_EQ(run(model, *beside, {24, 25}), want);

  // Span by span, the failure ends one sequence; the others are held, with the bits that they have alone.
  const auto kept = new_state(model);
  const std::vector<std::int32_t> ids{30, 31, 22, static_cast<std::int32_t>(kPoison), 23, 40, 41, 99999};
  const std::vector<std::int32_t> positions{7, 8, 7, 8, 9, 0, 1, 7};
  const std::vector<Batch::Span> spans{{.begin = 0, .count = 2, .rows = 2},
                                       {.begin = 2, .count = 3, .rows = 0},
                                       {.begin = 5, .count = 2, .top_k = 3},
                                       {.begin = 7, .count = 1}};
  const std::vector<SequenceState*> states{beside.get(), failing.get(), kept.get(), fresh.get()};
  const auto alone_beside = beside->fork();
  const auto alone_kept = kept->fork();
  BatchResult each;
  const Result<> called = model.run({.ids = ids, .positions = positions, .spans = spans}, states, each);
  ASSERT_TRUE(called.ok()) << called.error().message();
  ASSERT_TRUE(each.spans[1].error && each.spans[3].error);
  EXPECT_EQ(each.spans[1].error->code, "numeric.nan");
  EXPECT_EQ(each.spans[1].error->where, "sequence 1, position 8");
  EXPECT_EQ(each.spans[3].error->code, "model.token");
  EXPECT_FALSE(each.spans[0].error || each.spans[2].error);
  EXPECT_EQ(beside->length(), 9);
  EXPECT_EQ(failing->length(), 7);
  EXPECT_EQ(kept->length(), 2);
  EXPECT_EQ(fresh->length(), 7);
  EXPECT_EQ(each.logits, run(model, *alone_beside, {30, 31}));
  const auto row = run(model, *alone_kept, {40, 41}, LogitRows::last_of_each);
  ASSERT_EQ(each.top.size(), 3U);
  EXPECT_EQ(each.top[0].id, std::max_element(row.begin(), row.end()) - row.begin());
  EXPECT_EQ(each.top[0].logit, *std::max_element(row.begin(), row.end()));
  EXPECT_EQ(run(model, *failing, {24, 25}), run(model, *fresh, {24, 25}));
}

}  // namespace
}  // namespace moracle::test
