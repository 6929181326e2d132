// Published checkpoints as another publisher would have written them: the same weights under other names, in other
// stacks, with lists that speak of modules as engines call them. The same bits come out.
#include <gtest/gtest.h>

#include "support/model_fixture.h"
#include "support/mutations.h"
#include "support/tiny_model.h"

namespace moracle::test {
namespace {

std::vector<float> logits_of(const std::filesystem::path& folder, const std::vector<std::int32_t>& ids) {
  const Loaded loaded = load(folder, pinned("ref"));
  if (loaded.model == nullptr) return {};
  const auto state = new_state(*loaded.model);
  return run(*loaded.model, *state, ids);
}

// Compares what the checkpoint computes before and after the change, of the prompt with this index.
void expect_the_same(const std::filesystem::path& original, std::size_t prompt,
                     const std::function<void(MutableCheckpoint&)>& change) {
  const std::vector<std::int32_t> ids = references(original).at(prompt).ids;
  MutableCheckpoint copy = MutableCheckpoint::read(original);
  change(copy);
  const TemporaryFolder folder;
  copy.write(folder.path());
  const std::vector<float> want = logits_of(original, ids);
  ASSERT_FALSE(want.empty());
  EXPECT_EQ(logits_of(folder.path(), ids), want);
}

void expect_the_same(const std::string& name, const std::function<void(MutableCheckpoint&)>& change) {
  const auto original = find_checkpoint(name);
  if (!original) GTEST_SKIP() << name << " is only in the shared collection";
  expect_the_same(*original, 0, change);
}

// One tensor "<to>.<part>" [experts, ...] of "<from><expert><middle>.<part>".
void stack_experts(MutableCheckpoint& copy, const std::string& from, const std::string& middle, const std::string& to,
                   const std::string& part) {
  std::vector<std::uint8_t> bytes;
  std::vector<std::int64_t> shape{0};
  std::string dtype;
  for (std::string name; copy.has(name = from + std::to_string(shape[0]) + middle + part); ++shape[0]) {
    const MutableCheckpoint::Tensor& one = copy.at(name);
    bytes.insert(bytes.end(), one.bytes.begin(), one.bytes.end());
    if (shape[0] == 0) {
      dtype = one.dtype;
      for (const Json& dim : one.shape) shape.push_back(dim.get<std::int64_t>());
    }
    copy.drop(name);
  }
  ASSERT_GT(shape[0], 0) << from;
  copy.add(to + part, dtype, shape, std::move(bytes));
}

TEST(Respelled, StackedExpertsOfStep) {
  expect_the_same("quark-int8-ptpc-step3p5", [](MutableCheckpoint& copy) {
    for (const char* layer : {"1", "2", "3"}) {
      const std::string moe = std::string("model.layers.") + layer + ".moe.";
      for (const char* projection : {"gate_proj", "up_proj", "down_proj"}) {
        for (const char* part : {".weight", ".weight_scale"}) {
          stack_experts(copy, moe + "experts.", std::string(".") + projection, moe + projection, part);
        }
      }
    }
  });
}

TEST(Respelled, SharedExpertOfStepExcludedByTheNamesOfEngines) {
  expect_the_same("quark-int8-ptpc-step3p5", [](MutableCheckpoint& copy) {
    Json exclude = Json::array();
    for (const Json& name : copy.config.at("quantization_config").at("exclude")) {
      if (name.get<std::string>().find("share_expert") == std::string::npos) exclude.push_back(name);
    }
    const std::string layer = "model.layers.";
    for (const char* name : {"1.moe.share_expert.gate_up_proj", "1.moe.share_expert.down_proj",
                             "2.share_expert.gate_up_proj", "2.share_expert.down_proj", "3.moe.share_expert.gate_proj",
                             "3.moe.share_expert.up_proj", "3.moe.share_expert.down_proj"}) {
      exclude.push_back(layer + name);
    }
    copy.config["quantization_config"]["exclude"] = exclude;
  });
}

TEST(Respelled, SharedExpertOfStepStoredAmongTheExperts) {
  expect_the_same("quark-int8-ptpc-step3p5", [](MutableCheckpoint& copy) {
    for (const std::string& name : copy.names()) {
      const std::size_t at = name.find(".share_expert.");
      if (at != std::string::npos) copy.rename(name, name.substr(0, at) + ".moe" + name.substr(at));
    }
  });
}

// As DeepSeek publishes its own: quant_method fp8, block scales named for an inverse that they are not, and no list of
// what is left unquantized.
TEST(Respelled, Fp8BlocksOfDeepseek) {
  expect_the_same("dsv3-ct-fp8-block", [](MutableCheckpoint& copy) {
    constexpr std::string_view kScale = ".weight_scale";
    for (const std::string& name : copy.names()) {
      if (name.ends_with(kScale)) copy.rename(name, name + "_inv");
    }
    copy.config["quantization_config"] = {
        {"quant_method", "fp8"}, {"fmt", "e4m3"}, {"activation_scheme", "dynamic"}, {"weight_block_size", {128, 128}}};
  });
}

// Keys of the publisher's own config class: a window counts the position of its query.
TEST(Respelled, MimoAsItsPublisherWritesIt) {
  expect_the_same(data_dir() / "families" / "mimo_v2_flash", 1, [](MutableCheckpoint& copy) {
    Json& config = copy.config;
    config["sliding_window_size"] = config["sliding_window"];
    config["layernorm_epsilon"] = config["rms_norm_eps"];
    config["hybrid_layer_pattern"] = {0, 1, 1};
    config["moe_layer_freq"] = {0, 1, 1};
    config["rope_theta"] = 5e6;
    config["swa_rope_theta"] = 1e4;
    config["partial_rotary_factor"] = 0.334;
    config["swa_num_key_value_heads"] = 4;
    config["swa_num_attention_heads"] = 4;
    config["swa_head_dim"] = 24;
    config["swa_v_head_dim"] = 16;
    config["routed_scaling_factor"] = nullptr;
    config["n_shared_experts"] = nullptr;
    config["add_swa_attention_sink_bias"] = true;
    config["add_full_attention_sink_bias"] = false;
    for (const char* key : {"layer_types", "mlp_layer_types", "rope_parameters", "rms_norm_eps"}) config.erase(key);
  });
}

}  // namespace
}  // namespace moracle::test
