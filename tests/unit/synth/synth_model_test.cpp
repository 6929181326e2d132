#include "synth/synth_model.h"

#include <gtest/gtest.h>

#include <map>
#include <set>

#include "base/json.h"
#include "checkpoint/checkpoint.h"
#include "support/test_data.h"

namespace moracle {
namespace {

using Shape = std::vector<std::int64_t>;

std::map<std::string, TensorSpec> tensors_of(const SynthModel& model) {
  std::map<std::string, TensorSpec> tensors;
  for (const SynthTensor& tensor : model.tensors) {
    EXPECT_TRUE(tensors.emplace(tensor.spec.name, tensor.spec).second) << tensor.spec.name << " is there twice";
  }
  return tensors;
}

Json config_of(const SynthModel& model) {
  for (const SynthFile& file : model.files) {
    if (file.name == "config.json") return Json::parse(file.text);
  }
  return {};
}

TEST(SynthModel, DescribesTheRealShapes) {
  const auto model = describe_synth_model("qwen3-30b-a3b", "int4-g128", 2, 0);
  ASSERT_TRUE(model.ok());
  const auto tensors = tensors_of(*model);
  EXPECT_EQ(tensors.at("model.layers.1.mlp.experts.127.down_proj.qweight").shape, (Shape{96, 2048}));
  for (const auto& [name, tensor] : tensors) EXPECT_EQ(name.find("layers.2."), std::string::npos);
  // 128 experts x 3 matrices x 4 tensors, 4 attention matrices x 4, 4 norms, a router; 3 tensors outside of the layers.
  EXPECT_EQ(tensors.size(), 2U * (128 * 3 * 4 + 4 * 4 + 4 + 1) + 3);
  const Json config = config_of(*model);
  EXPECT_EQ(config.at("num_experts"), 128);
  EXPECT_EQ(config.at("attention_bias"), false);
  EXPECT_FALSE(config.contains("layer_types"));
  const auto mixtral = describe_synth_model("mixtral-8x7b", "bf16", 1, 0);
  ASSERT_TRUE(mixtral.ok());
  EXPECT_EQ(config_of(*mixtral).at("num_local_experts"), 8);
}

// GPTQ quantizes every linear of a layer; the router, the norms and the head stay.
TEST(SynthModel, QuantizesAttentionAsGptqDoes) {
  const auto model = describe_synth_model("qwen3-30b-a3b", "int4-g128", 1, 0);
  ASSERT_TRUE(model.ok());
  const auto tensors = tensors_of(*model);
  const std::map<std::string, Shape> projections = {
      {"q_proj", {256, 4096}}, {"k_proj", {256, 512}}, {"v_proj", {256, 512}}, {"o_proj", {512, 2048}}};
  for (const auto& [name, words] : projections) {
    const std::string path = "model.layers.0.self_attn." + name;
    EXPECT_EQ(tensors.at(path + ".qweight").shape, words) << path;
    EXPECT_EQ(tensors.count(path + ".weight"), 0U) << path;
  }
  for (const char* name :
       {"model.layers.0.mlp.gate.weight", "model.layers.0.self_attn.q_norm.weight", "lm_head.weight"})
    EXPECT_EQ(tensors.at(name).dtype, Dtype::bf16) << name;
}

TEST(SynthModel, DescribesStackedExpertsInBlocks) {
  const auto model = describe_synth_model("gpt-oss-20b", "mxfp4", 3, 0);
  ASSERT_TRUE(model.ok());
  const auto tensors = tensors_of(*model);
  const std::string experts = "model.layers.2.mlp.experts.";
  EXPECT_EQ(tensors.at(experts + "gate_up_proj_blocks").shape, (Shape{32, 5760, 90, 16}));
  EXPECT_EQ(tensors.at(experts + "gate_up_proj_scales").shape, (Shape{32, 5760, 90}));
  EXPECT_EQ(tensors.at(experts + "down_proj_bias").shape, (Shape{32, 2880}));
  EXPECT_EQ(tensors.at("model.layers.0.self_attn.sinks").shape, (Shape{64}));
  const Json config = config_of(*model);
  EXPECT_EQ(config.at("layer_types"), Json({"sliding_attention", "full_attention", "sliding_attention"}));
  EXPECT_EQ(config.at("sliding_window"), 128);
  EXPECT_EQ(config.at("quantization_config").at("quant_method"), "mxfp4");
  const auto plain = describe_synth_model("gpt-oss-20b", "bf16", 1, 0);
  ASSERT_TRUE(plain.ok());
  EXPECT_EQ(tensors_of(*plain).at("model.layers.0.mlp.experts.gate_up_proj").shape, (Shape{32, 2880, 5760}));
  EXPECT_FALSE(config_of(*plain).contains("quantization_config"));
}

// Latent attention, a dense layer in front, shared experts; all of them in 16 bits beside quantized experts.
TEST(SynthModel, DescribesLatentAttentionBesideQuantizedExperts) {
  const auto model = describe_synth_model("glm-4.7-flash", "int4-g128", 2, 0);
  ASSERT_TRUE(model.ok());
  const auto tensors = tensors_of(*model);
  const std::map<std::string, Shape> wanted = {{"model.layers.0.self_attn.q_a_proj.weight", {768, 2048}},
                                               {"model.layers.0.self_attn.q_b_proj.weight", {5120, 768}},
                                               {"model.layers.0.self_attn.kv_a_proj_with_mqa.weight", {576, 2048}},
                                               {"model.layers.0.self_attn.kv_b_proj.weight", {8960, 512}},
                                               {"model.layers.0.self_attn.o_proj.weight", {2048, 5120}},
                                               {"model.layers.0.mlp.gate_proj.weight", {10240, 2048}},
                                               {"model.layers.1.mlp.gate.e_score_correction_bias", {64}},
                                               {"model.layers.1.mlp.shared_experts.down_proj.weight", {2048, 1536}},
                                               {"model.layers.1.mlp.experts.63.down_proj.qweight", {192, 2048}}};
  for (const auto& [name, shape] : wanted) {
    ASSERT_EQ(tensors.count(name), 1U) << name;
    EXPECT_EQ(tensors.at(name).shape, shape) << name;
  }
  EXPECT_EQ(tensors.count("model.layers.0.mlp.experts.0.down_proj.qweight"), 0U);
  const Json rules = config_of(*model).at("quantization_config").at("dynamic");
  for (const char* rule : {"-:.*self_attn.*", "-:.*layers.0.mlp.*", "-:.*mlp.shared_experts.*"})
    EXPECT_TRUE(rules.contains(rule)) << rule;
}

// Three layers of delta net to one of attention, whose q_proj gives a gate as well; norms that store 0 for 1.
TEST(SynthModel, DescribesDeltaNetsBesideQuantizedExperts) {
  const auto model = describe_synth_model("qwen3.5-35b-a3b", "int4-g128", 4, 0);
  ASSERT_TRUE(model.ok());
  const auto tensors = tensors_of(*model);
  const std::map<std::string, Shape> wanted = {{"model.layers.2.linear_attn.in_proj_qkv.weight", {8192, 2048}},
                                               {"model.layers.2.linear_attn.conv1d.weight", {8192, 1, 4}},
                                               {"model.layers.2.linear_attn.A_log", {32}},
                                               {"model.layers.2.linear_attn.out_proj.weight", {2048, 4096}},
                                               {"model.layers.3.self_attn.q_proj.weight", {8192, 2048}},
                                               {"model.layers.3.mlp.shared_expert_gate.weight", {1, 2048}},
                                               {"model.layers.3.mlp.experts.255.up_proj.qweight", {256, 512}}};
  for (const auto& [name, shape] : wanted) {
    ASSERT_EQ(tensors.count(name), 1U) << name;
    EXPECT_EQ(tensors.at(name).shape, shape) << name;
  }
  EXPECT_EQ(tensors.count("model.layers.3.linear_attn.A_log"), 0U);
  EXPECT_EQ(tensors.count("model.layers.0.self_attn.q_proj.weight"), 0U);
  for (const SynthTensor& tensor : model->tensors) {
    if (tensor.spec.name != "model.norm.weight") continue;
    EXPECT_EQ(tensor.fill.kind, SynthFill::Kind::word);
    EXPECT_EQ(tensor.fill.word, 0U);
  }
  EXPECT_EQ(config_of(*model).at("layer_types"),
            Json({"linear_attention", "linear_attention", "linear_attention", "full_attention"}));
}

// As compressed-tensors publishes weights alone: no global scale of inputs.
TEST(SynthModel, DescribesNvfp4AsCompressedTensorsDoes) {
  const auto model = describe_synth_model("qwen3-30b-a3b", "nvfp4", 1, 0);
  ASSERT_TRUE(model.ok());
  const auto tensors = tensors_of(*model);
  const std::string down = "model.layers.0.mlp.experts.127.down_proj.";
  EXPECT_EQ(tensors.at(down + "weight_packed").shape, (Shape{2048, 384}));
  EXPECT_EQ(tensors.at(down + "weight_scale").shape, (Shape{2048, 48}));
  EXPECT_EQ(tensors.at(down + "weight_scale").dtype, Dtype::f8_e4m3);
  EXPECT_EQ(tensors.at(down + "weight_global_scale").shape, (Shape{1}));
  EXPECT_EQ(tensors.count(down + "input_global_scale"), 0U);
  EXPECT_EQ(config_of(*model).at("quantization_config").at("format"), "nvfp4-pack-quantized");
}

TEST(SynthModel, HasTheTensorsOfAPublishedModel) {
  if (!test::shared_dir()) GTEST_SKIP() << "native-mxfp4-gpt_oss is only in the shared collection";
  const auto published = Checkpoint::open(*test::shared_dir() / "checkpoints" / "native-mxfp4-gpt_oss");
  ASSERT_TRUE(published.ok());
  const auto model = describe_synth_model("gpt-oss-20b", "mxfp4", 4, 0);
  ASSERT_TRUE(model.ok());
  const auto tensors = tensors_of(*model);
  EXPECT_EQ(tensors.size(), (*published)->tensors().size());
  for (const auto& [name, tensor] : (*published)->tensors()) {
    const auto it = tensors.find(name);
    ASSERT_NE(it, tensors.end()) << name;
    EXPECT_EQ(it->second.dtype, tensor.dtype) << name;
    EXPECT_EQ(it->second.shape.size(), tensor.shape.size()) << name;
  }
}

TEST(SynthModel, RefusesWhatIsNotPublished) {
  EXPECT_EQ(describe_synth_model("qwen3-30b-a3b", "mxfp4", 1, 0).error().code, "synth.unsupported");
  const auto integers = describe_synth_model("gpt-oss-20b", "int4-g32", 1, 0);
  ASSERT_FALSE(integers.ok());
  EXPECT_EQ(integers.error().code, "synth.unsupported");
  EXPECT_EQ(integers.error().wanted, "one of mxfp4, bf16");
  EXPECT_EQ(describe_synth_model("gpt-4", "bf16", 1, 0).error().code, "synth.unsupported");
  EXPECT_EQ(describe_synth_model("mixtral-8x7b", "bf16", 33, 0).error().code, "synth.layers");
}

TEST(SynthModel, TheTokenizerHasEveryIdOnce) {
  const auto json = parse_json(synth_tokenizer(400, 1, 2), "tokenizer.json");
  ASSERT_TRUE(json.ok()) << json.error().message();
  const Json& vocab = json->at("model").at("vocab");
  EXPECT_EQ(vocab.size(), 400U);
  std::set<int> ids;
  for (const auto& [token, id] : vocab.items()) ids.insert(id.get<int>());
  EXPECT_EQ(ids.size(), 400U);
  EXPECT_EQ(*ids.rbegin(), 399);
}

}  // namespace
}  // namespace moracle
