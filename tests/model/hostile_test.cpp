// Configs and checkpoints that must be refused, with the rule and the place.
#include <gtest/gtest.h>

#include <limits>

#include "support/model_fixture.h"
#include "support/tiny_model.h"
#include "verify/verify.h"

namespace moracle::test {
namespace {

// The error of planning or loading, empty when both succeed.
Error refusal(const TinyModel& model, const Policy& policy = pinned("ref")) {
  const TemporaryFolder folder;
  model.write(folder.path());
  auto checkpoint = Checkpoint::open(folder.path());
  if (!checkpoint.ok()) return checkpoint.error();
  auto plan = LoadPlan::make(*checkpoint, probe_machine(), policy);
  if (!plan.ok()) return plan.error();
  ThreadPool pool(2);
  auto loaded = load_model(**plan, pool);
  return loaded.ok() ? Error{} : loaded.error();
}

struct Row {
  const char* pointer;  // in config.json
  Json value;           // null erases the key
  const char* code;
  const char* where = nullptr;  // when it differs from the pointer
};

TEST(Hostile, Configs) {
  const std::vector<Row> rows{
      {"/model_type", "gpt2", "config.unsupported"},
      {"/model_type", nullptr, "config.missing"},
      {"/model_type", 7, "config.type"},
      {"/text_config", "none", "config.type"},
      {"/num_hidden_layers", 1000000000, "config.range"},
      {"/num_hidden_layers", 0, "config.range"},
      {"/num_hidden_layers", -1, "config.range"},
      {"/num_hidden_layers", 2.5, "config.type"},
      {"/num_hidden_layers", "2", "config.type"},
      {"/num_hidden_layers", 1e300, "config.type"},
      {"/num_hidden_layers", 18446744073709551615ULL, "config.type"},
      {"/num_hidden_layers", Json::array(), "config.type"},
      {"/hidden_size", 0, "config.range"},
      {"/hidden_size", 1LL << 40, "config.range"},
      {"/hidden_size", 33, "tensor.shape", "model.embed_tokens.weight"},
      {"/num_attention_heads", 5, "config.range", "/num_key_value_heads"},
      {"/num_attention_heads", 0, "config.range"},
      {"/num_key_value_heads", 3, "config.range"},
      {"/num_key_value_heads", 0, "config.range"},
      {"/head_dim", 15, "config.range"},
      {"/head_dim", 1 << 20, "config.range"},
      {"/vocab_size", 0, "config.range"},
      {"/vocab_size", 1LL << 32, "config.range"},
      {"/vocab_size", 49, "tensor.shape", "model.embed_tokens.weight"},
      {"/max_position_embeddings", 0, "config.range"},
      {"/max_position_embeddings", 1LL << 31, "config.range"},
      {"/rms_norm_eps", 0, "config.range"},
      {"/rms_norm_eps", -1e-6, "config.range"},
      {"/rms_norm_eps", "tiny", "config.type"},
      {"/hidden_act", "relu", "config.unsupported"},
      {"/torch_dtype", "int8", "config.unsupported"},
      {"/num_experts", 1LL << 30, "config.range"},
      {"/num_experts", 7, "tensor.shape", "model.layers.0.mlp.gate.weight"},
      {"/num_local_experts", 8, "tensor.shape", "model.layers.0.mlp.gate.weight"},
      {"/num_experts_per_tok", 7, "config.range"},
      {"/num_experts_per_tok", 0, "config.range"},
      {"/moe_intermediate_size", 0, "config.range"},
      {"/moe_intermediate_size", 1LL << 50, "config.range"},
      {"/decoder_sparse_step", 0, "config.range"},
      {"/mlp_only_layers", 3, "config.type"},
      {"/mlp_only_layers", Json::array({2}), "config.range"},
      {"/mlp_only_layers", Json::array({-1}), "config.range"},
      {"/mlp_only_layers", Json::array({18446744073709551615ULL}), "config.range"},
      {"/mlp_only_layers", Json::array({"a"}), "config.type"},
      {"/tie_word_embeddings", "yes", "config.type"},
      {"/norm_topk_prob", 1, "config.type"},
      {"/attention_bias", true, "tensor.missing", "model.layers.0.self_attn.q_proj.bias"},
      {"/rope_theta", 0, "config.range"},
      {"/rope_theta", -1, "config.range"},
      {"/rope_theta", Json::array({1.0}), "config.type"},
      {"/rope_scaling", "linear", "config.type"},
      {"/rope_scaling", {{"type", "spiral"}}, "config.unsupported", "/rope_scaling/type"},
      {"/rope_scaling", {{"type", "longrope"}}, "config.range", "/rope_scaling/short_factor"},
      {"/rope_scaling", {{"type", "linear"}, {"factor", 0}}, "config.range", "/rope_scaling/factor"},
      {"/rope_scaling", {{"type", "yarn"}, {"factor", 1e300}}, "config.range", "/rope_scaling/factor"},
      {"/rope_scaling", {{"rope_type", "yarn"}, {"beta_fast", -1}}, "config.range", "/rope_scaling/beta_fast"},
      {"/rope_parameters",
       {{"rope_type", "llama3"}, {"low_freq_factor", 4}, {"high_freq_factor", 4}},
       "config.range",
       "/rope_parameters/high_freq_factor"},
      {"/rope_parameters", {{"sliding_attention", Json::object()}}, "config.missing"},
      {"/rope_parameters", {{"partial_rotary_factor", 2.0}}, "config.range", "/rope_parameters/partial_rotary_factor"},
      {"/rope_parameters", {{"partial_rotary_factor", 0.01}}, "config.range", "/rope_parameters/partial_rotary_factor"},
  };
  const TinyModel good = TinyBuilder(tiny_qwen3_moe(), {}).build();
  ASSERT_EQ(refusal(good).code, "");
  for (const Row& row : rows) {
    SCOPED_TRACE(std::string(row.pointer) + " = " + row.value.dump());
    TinyModel bad = good;
    const std::string key = row.pointer + 1;
    if (row.value.is_null()) {
      bad.config.erase(key);
    } else {
      bad.config[key] = row.value;
    }
    const Error error = refusal(bad);
    EXPECT_EQ(error.code, row.code) << error.message();
    EXPECT_EQ(error.where, row.where != nullptr ? row.where : row.pointer) << error.message();
  }
}

TEST(Hostile, UnknownFamilyListsTheKnownOnes) {
  TinyModel model = TinyBuilder(tiny_qwen3_moe(), {}).build();
  model.config["model_type"] = "gpt2";
  const Error error = refusal(model);
  EXPECT_NE(error.wanted.find("mixtral"), std::string::npos);
  EXPECT_NE(error.wanted.find("qwen3_moe"), std::string::npos);
  EXPECT_EQ(error.advice, "");
}

TEST(Hostile, KnownFamilyTellsWhatItNeeds) {
  TinyModel model = TinyBuilder(tiny_qwen3_moe(), {}).build();
  model.config["model_type"] = "deepseek_v4";
  EXPECT_NE(refusal(model).advice.find("hyper-connections"), std::string::npos);
}

TEST(Hostile, MissingTensors) {
  const TinyModel good = TinyBuilder(tiny_qwen3_moe(), {}).build();
  for (const auto& [name, tensor] : good.tensors) {
    SCOPED_TRACE(name);
    TinyModel bad = good;
    bad.tensors.erase(name);
    const Error error = refusal(bad);
    const bool expert = name.find(".experts.") != std::string::npos;
    EXPECT_EQ(error.code, expert ? "experts.count" : "tensor.missing") << error.message();
    if (!expert) {
      EXPECT_EQ(error.where, name);
    }
  }
}

// Every matrix and vector with one value that is not a number, and with one dimension off by one.
TEST(Hostile, BadValuesAndShapes) {
  const TinyModel good = TinyBuilder(tiny_qwen3_moe(), {}).build();
  for (const auto& [name, tensor] : good.tensors) {
    if (name.find("layers.1.") != std::string::npos) continue;  // as layer 0
    for (const float value : {std::numeric_limits<float>::quiet_NaN(), std::numeric_limits<float>::infinity()}) {
      SCOPED_TRACE(name + " holds " + std::to_string(value));
      TinyModel bad = good;
      bad.tensors[name].values[3] = value;
      const Error error = refusal(bad);
      EXPECT_EQ(error.code, "value.nan") << error.message();
      EXPECT_NE(error.where.find(name), std::string::npos) << error.message();
    }
    SCOPED_TRACE(name + " one row longer");
    TinyModel bad = good;
    TinyTensor& longer = bad.tensors[name];
    longer.values.resize(longer.values.size() / static_cast<std::size_t>(longer.shape[0]) *
                         static_cast<std::size_t>(longer.shape[0] + 1));
    longer.shape[0] += 1;
    const Error error = refusal(bad);
    EXPECT_EQ(error.code, "tensor.shape") << error.message();
  }
}

TEST(Hostile, UnusedTensors) {
  const TinyModel good = TinyBuilder(tiny_qwen3_moe(), {}).build();
  TinyModel bad = good;
  const std::string extra = "model.layers.0.extra.";
  for (int i = 0; i < 12; ++i) bad.tensors[extra + std::to_string(i)] = {{1}, {0.0F}};
  const Error error = refusal(bad);
  EXPECT_EQ(error.code, "tensor.unused");
  EXPECT_EQ(error.where, extra + "0");
  EXPECT_NE(error.found.find("12 unused"), std::string::npos) << error.found;
  EXPECT_NE(error.found.find("..."), std::string::npos) << error.found;

  // A layer more than the config says is a wrong config, not an extra.
  TinyModel shallow = good;
  shallow.config["num_hidden_layers"] = 1;
  EXPECT_EQ(refusal(shallow).code, "tensor.unused");
  EXPECT_NE(refusal(shallow).advice.find("num_hidden_layers = 1"), std::string::npos) << refusal(shallow).advice;

  TinyModel ignored = good;
  for (const char* name : {"visual.blocks.0.weight", "mtp.fc.weight", "model.layers.0.self_attn.rotary_emb.inv_freq",
                           "model.layers.0.self_attn.attn.k_scale", "model.layers.1.self_attn.attn.v_scale"}) {
    ignored.tensors[name] = {{1}, {1.0F}};
  }
  EXPECT_EQ(refusal(ignored).code, "");
}

TEST(Hostile, ExpertNumbersWithGapsAndExtras) {
  const TinyModel good = TinyBuilder(tiny_qwen3_moe(), {}).build();
  const std::string experts = "model.layers.1.mlp.experts.";
  TinyModel gap = good;
  for (const char* part : {"gate_proj", "up_proj", "down_proj"}) {
    gap.tensors.erase(experts + "2." + part + ".weight");
  }
  Error error = refusal(gap);
  EXPECT_EQ(error.code, "experts.count");
  EXPECT_NE(error.found.find("missing: 2"), std::string::npos) << error.found;
  TinyModel extra = good;
  extra.tensors[experts + "6.gate_proj.weight"] = good.tensors.at(experts + "5.gate_proj.weight");
  EXPECT_EQ(refusal(extra).code, "experts.count");
}

TEST(Hostile, PinnedBackendThatDoesNotExist) {
  const TinyModel good = TinyBuilder(tiny_qwen3_moe(), {}).build();
  EXPECT_EQ(refusal(good, pinned("warp9")).code, "oracle.pinned");
}

TEST(Plan, ReportsEveryModule) {
  TinyModel tiny = TinyBuilder(tiny_qwen3_moe(), {}).build();
  tiny.tensors["model.layers.0.self_attn.attn.k_scale"] = {{1}, {1.0F}};
  const TemporaryFolder folder;
  tiny.write(folder.path());
  auto checkpoint = Checkpoint::open(folder.path());
  ASSERT_TRUE(checkpoint.ok());
  auto made = LoadPlan::make(*checkpoint, probe_machine(), Policy{});
  ASSERT_TRUE(made.ok()) << made.error().message();
  const LoadPlan& plan = **made;
  EXPECT_EQ(plan.info().architecture, "qwen3_moe");
  EXPECT_EQ(plan.info().format, "none");
  EXPECT_EQ(plan.info().experts, 6);
  EXPECT_EQ(plan.warnings().size(), 1U);
  std::map<std::string, int> kinds;
  std::uint64_t bytes = 4;  // the scale that nobody uses
  for (std::size_t i = 0; i < plan.modules().size(); ++i) {
    const ModuleReport& module = plan.modules()[i];
    ++kinds[module.kind];
    bytes += module.bytes;
    EXPECT_EQ(module.decision.has_value(), module.kind == "experts" || module.kind == "linear") << module.name;
    if (module.kind == "experts") {
      EXPECT_EQ(plan.read_experts(i)->experts.size(), 6U);
    }
    if (module.kind == "linear") {
      EXPECT_NE(plan.read_linear(i)->weight, nullptr);
    }
  }
  EXPECT_EQ(kinds,
            (std::map<std::string, int>{{"embedding", 1}, {"experts", 2}, {"linear", 9}, {"norm", 9}, {"router", 2}}));
  EXPECT_EQ(bytes, (*checkpoint)->total_bytes());
  EXPECT_EQ(plan.parameters() * 4 + 4, (*checkpoint)->total_bytes());

  ThreadPool pool(2);
  std::vector<LoadProgress> seen;
  auto model = load_model(**made, pool, {.progress = [&](const LoadProgress& progress) {
    seen.push_back(progress);
    return true;
  }});
  ASSERT_TRUE(model.ok()) << model.error().message();
  ASSERT_FALSE(seen.empty());
  EXPECT_TRUE(std::is_sorted(seen.begin(), seen.end(),
                             [](const auto& a, const auto& b) { return a.bytes_done < b.bytes_done; }));
  EXPECT_EQ(seen.back().bytes_done, seen.back().bytes_total);

  int asked = 0;
  EXPECT_EQ(load_model(**made, pool, {.progress = [&](const LoadProgress&) { return ++asked < 3; }}).error().code,
            "interrupted");
  EXPECT_EQ(asked, 3);
}

TEST(Plan, FileThatChangesDuringTheLoadIsRefused) {
  const TinyModel tiny = TinyBuilder(tiny_qwen3_moe(), {}).build();
  const TemporaryFolder folder;
  tiny.write(folder.path());
  auto checkpoint = Checkpoint::open(folder.path());
  ASSERT_TRUE(checkpoint.ok());
  auto plan = LoadPlan::make(*checkpoint, probe_machine(), Policy{});
  ASSERT_TRUE(plan.ok());
  TinyModel other = tiny;
  other.tensors["more"] = {{1}, {1.0F}};
  other.write(folder.path());
  ThreadPool pool(1);
  EXPECT_EQ(load_model(**plan, pool).error().code, "file.changed");
}

// A file that is cut while it is read gives zeros, from which anything may follow: scales of zero, orders that are
// none, a checkpoint at fault. The file is what is named.
TEST(Hostile, AFileThatShrankIsNamedBeforeWhatFollows) {
  for (const char* name : {"mixtral-awq-w4g32", "qwen3moe-gptq-w4g32-actorder-cut", "qwen3moe-gptq-w4g128-sym"}) {
    SCOPED_TRACE(name);
    const auto cut = [](const std::filesystem::path& model, std::uintmax_t size) {
      std::filesystem::resize_file(model / "model.safetensors", size);
    };
    for (const std::uintmax_t size : {std::uintmax_t{0}, std::uintmax_t{4096}, std::uintmax_t{100'000}}) {
      const TemporaryFolder folder;
      const auto model = folder.path() / "model";
      std::filesystem::copy(data_dir() / "checkpoints" / name, model);
      ThreadPool pool(2);
      auto checkpoint = Checkpoint::open(model);
      ASSERT_TRUE(checkpoint.ok());
      auto whole = LoadPlan::make(*checkpoint, probe_machine(), {});
      ASSERT_TRUE(whole.ok());
      cut(model, size);
      const auto expect_cut = [&](const auto& result) {
        ASSERT_FALSE(result.ok());
        EXPECT_EQ(result.error().code, "file.truncated") << result.error().message();
        EXPECT_EQ(result.error().file, (model / "model.safetensors").string());
      };
      // A plan of headers alone may still come; one that looks at group indices does not.
      const auto plan = LoadPlan::make(*checkpoint, probe_machine(), {});
      if (!plan.ok()) expect_cut(plan);
      expect_cut(load_model(**whole, pool));
      expect_cut(verify(**whole, pool, {}));
    }
  }
}

}  // namespace
}  // namespace moracle::test
