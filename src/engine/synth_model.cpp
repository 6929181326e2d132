#include "engine/synth_model.h"

#include <cmath>
#include <utility>

#include "base/checked.h"

namespace moracle {

namespace {

struct Architecture {
  std::string name;
  std::string model_type;
  std::string class_name;
  std::int64_t layers, hidden, heads, kv_heads, head_dim, vocabulary, positions, dense_intermediate;
  std::int64_t experts, top_k, intermediate;
  double rope_theta, epsilon;
  std::int64_t bos, eos;
  bool qk_norm;
  std::string moe;                            // module below a layer
  std::string gate_name, up_name, down_name;  // of an expert
};

const std::vector<Architecture>& architectures() {
  static const std::vector<Architecture> all = {
      {"qwen3-30b-a3b",
       "qwen3_moe",
       "Qwen3MoeForCausalLM",
       48,
       2048,
       32,
       4,
       128,
       151936,
       40960,
       6144,
       128,
       8,
       768,
       1e6,
       1e-6,
       151643,
       151645,
       true,
       "mlp",
       "gate_proj",
       "up_proj",
       "down_proj"},
      {"mixtral-8x7b",
       "mixtral",
       "MixtralForCausalLM",
       32,
       4096,
       32,
       8,
       128,
       32000,
       32768,
       14336,
       8,
       2,
       14336,
       1e6,
       1e-5,
       1,
       2,
       false,
       "block_sparse_moe",
       "w1",
       "w3",
       "w2"},
  };
  return all;
}

enum class Publisher : std::uint8_t { none, gptq, awq };

struct SchemeRecipe {
  std::string name;
  Publisher publisher;
  int bits;
  std::int64_t group;  // -1: a scale per output channel
  bool act_order;
};

const std::vector<SchemeRecipe>& recipes() {
  static const std::vector<SchemeRecipe> all = {
      {"int4-g32", Publisher::gptq, 4, 32, false},
      {"int4-g128", Publisher::gptq, 4, 128, false},
      {"int4-channel", Publisher::gptq, 4, -1, false},
      {"int4-g128-asym", Publisher::awq, 4, 128, false},
      {"int4-g32-actorder", Publisher::gptq, 4, 32, true},
      {"int8-g128", Publisher::gptq, 8, 128, false},
      {"bf16", Publisher::none, 16, 0, false},
  };
  return all;
}

template <class List>
std::vector<std::string> names_of(const List& list) {
  std::vector<std::string> names;
  for (const auto& entry : list) names.push_back(entry.name);
  return names;
}

template <class Entry>
Result<const Entry*> find_named(const std::vector<Entry>& list, const std::string& name, const char* what) {
  std::string known;
  for (const Entry& entry : list) {
    if (entry.name == name) return &entry;
    known += (known.empty() ? "" : ", ") + entry.name;
  }
  return Error{.code = "synth.unsupported", .where = what, .wanted = "one of " + known, .found = "'" + name + "'"};
}

class Describer {
 public:
  Describer(const Architecture& arch, const SchemeRecipe& recipe, std::uint64_t seed)
      : arch_(arch), recipe_(recipe), seed_(seed) {}

  std::vector<SynthTensor> describe(std::int64_t layers) {
    dense("model.embed_tokens.weight", {arch_.vocabulary, arch_.hidden}, 0.02);
    for (std::int64_t layer = 0; layer < layers; ++layer) describe_layer("model.layers." + std::to_string(layer) + ".");
    ones("model.norm.weight", arch_.hidden);
    dense("lm_head.weight", {arch_.vocabulary, arch_.hidden}, 0.02);
    return std::move(tensors_);
  }

 private:
  void describe_layer(const std::string& prefix) {
    ones(prefix + "input_layernorm.weight", arch_.hidden);
    const std::string attention = prefix + "self_attn.";
    linear(attention + "q_proj", arch_.heads * arch_.head_dim, arch_.hidden, order());
    linear(attention + "k_proj", arch_.kv_heads * arch_.head_dim, arch_.hidden, order());
    linear(attention + "v_proj", arch_.kv_heads * arch_.head_dim, arch_.hidden, order());
    linear(attention + "o_proj", arch_.hidden, arch_.heads * arch_.head_dim, order());
    if (arch_.qk_norm) {
      ones(attention + "q_norm.weight", arch_.head_dim);
      ones(attention + "k_norm.weight", arch_.head_dim);
    }
    ones(prefix + "post_attention_layernorm.weight", arch_.hidden);
    const std::string moe = prefix + arch_.moe + ".";
    dense(moe + "gate.weight", {arch_.experts, arch_.hidden}, 1.0 / std::sqrt(static_cast<double>(arch_.hidden)));
    for (std::int64_t expert = 0; expert < arch_.experts; ++expert) {
      const std::string path = moe + "experts." + std::to_string(expert) + ".";
      // Gate and up see the same activations, hence get the same column order.
      const std::uint64_t shared = order();
      linear(path + arch_.gate_name, arch_.intermediate, arch_.hidden, shared);
      linear(path + arch_.up_name, arch_.intermediate, arch_.hidden, shared);
      linear(path + arch_.down_name, arch_.hidden, arch_.intermediate, order());
    }
  }

  std::uint64_t order() { return ++seed_; }

  void add(std::string name, Dtype dtype, std::vector<std::int64_t> shape, SynthFill fill) {
    tensors_.push_back({.spec = {.name = std::move(name), .dtype = dtype, .shape = std::move(shape)}, .fill = fill});
  }
  void dense(const std::string& name, std::vector<std::int64_t> shape, double deviation) {
    add(name, Dtype::bf16, std::move(shape), {.kind = SynthFill::Kind::bf16_normal, .value = deviation});
  }
  void ones(const std::string& name, std::int64_t size) {
    add(name, Dtype::bf16, {size}, {.kind = SynthFill::Kind::bf16_ones});
  }

  void linear(const std::string& path, std::int64_t out, std::int64_t in, std::uint64_t order_seed) {
    const double deviation = 1.0 / std::sqrt(static_cast<double>(in));
    if (recipe_.publisher == Publisher::none) return dense(path + ".weight", {out, in}, deviation);
    const std::int64_t group = recipe_.group > 0 ? recipe_.group : in;
    const std::int64_t groups = in / group;
    const std::int64_t per_word = 32 / recipe_.bits;
    // A uniform code has a standard deviation of 2^bits / sqrt(12).
    const double scale = deviation * std::sqrt(12.0) / static_cast<double>(1 << recipe_.bits);
    const SynthFill scales{.kind = SynthFill::Kind::f16_scales, .value = scale};
    if (recipe_.publisher == Publisher::awq) {
      add(path + ".qweight", Dtype::i32, {in, out / per_word}, {.kind = SynthFill::Kind::bits});
      add(path + ".qzeros", Dtype::i32, {groups, out / per_word}, {.kind = SynthFill::Kind::near_middle});
      add(path + ".scales", Dtype::f16, {groups, out}, scales);
      return;
    }
    // Format "gptq" (v1) stores the zero point less one: 7 a nibble, 127 a byte.
    const std::uint32_t zeros = recipe_.bits == 4 ? 0x77777777U : 0x7F7F7F7FU;
    add(path + ".qweight", Dtype::i32, {in / per_word, out}, {.kind = SynthFill::Kind::bits});
    add(path + ".qzeros", Dtype::i32, {groups, out / per_word}, {.kind = SynthFill::Kind::word, .word = zeros});
    add(path + ".g_idx", Dtype::i32, {in},
        {.kind = SynthFill::Kind::group_index, .group = group, .shuffled = recipe_.act_order, .seed = order_seed});
    add(path + ".scales", Dtype::f16, {groups, out}, scales);
  }

  const Architecture& arch_;
  const SchemeRecipe& recipe_;
  std::uint64_t seed_;
  std::vector<SynthTensor> tensors_;
};

Json quantization_config(const SchemeRecipe& recipe) {
  if (recipe.publisher == Publisher::awq) {
    return {{"quant_method", "awq"}, {"bits", recipe.bits}, {"group_size", recipe.group},
            {"zero_point", true},    {"version", "gemm"},   {"modules_to_not_convert", {"gate"}}};
  }
  return {{"quant_method", "gptq"},
          {"bits", recipe.bits},
          {"group_size", recipe.group},
          {"desc_act", recipe.act_order},
          {"sym", true},
          {"lm_head", false},
          {"checkpoint_format", "gptq"},
          {"true_sequential", true},
          {"static_groups", false}};
}

Json model_config(const Architecture& arch, const SchemeRecipe& recipe, std::int64_t layers) {
  Json config = {{"architectures", {arch.class_name}},
                 {"model_type", arch.model_type},
                 {"attention_dropout", 0.0},
                 {"bos_token_id", arch.bos},
                 {"eos_token_id", arch.eos},
                 {"head_dim", arch.head_dim},
                 {"hidden_act", "silu"},
                 {"hidden_size", arch.hidden},
                 {"intermediate_size", arch.dense_intermediate},
                 {"max_position_embeddings", arch.positions},
                 {"num_attention_heads", arch.heads},
                 {"num_experts_per_tok", arch.top_k},
                 {"num_hidden_layers", layers},
                 {"num_key_value_heads", arch.kv_heads},
                 {"rms_norm_eps", arch.epsilon},
                 {"rope_theta", arch.rope_theta},
                 {"sliding_window", nullptr},
                 {"tie_word_embeddings", false},
                 {"torch_dtype", "bfloat16"},
                 {"vocab_size", arch.vocabulary}};
  if (arch.model_type == "qwen3_moe") {
    config["attention_bias"] = false;
    config["decoder_sparse_step"] = 1;
    config["mlp_only_layers"] = Json::array();
    config["moe_intermediate_size"] = arch.intermediate;
    config["norm_topk_prob"] = true;
    config["num_experts"] = arch.experts;
  } else {
    config["num_local_experts"] = arch.experts;
  }
  if (recipe.publisher != Publisher::none) config["quantization_config"] = quantization_config(recipe);
  return config;
}

}  // namespace

std::vector<std::string> synth_model_names() {
  return names_of(architectures());
}

std::vector<std::string> synth_scheme_names() {
  return names_of(recipes());
}

Result<SynthModel> describe_synth_model(const std::string& architecture, const std::string& scheme, std::int64_t layers,
                                        std::uint64_t seed) {
  MORACLE_ASSIGN(const Architecture* arch, find_named(architectures(), architecture, "architecture"));
  MORACLE_ASSIGN(const SchemeRecipe* recipe, find_named(recipes(), scheme, "--scheme"));
  if (layers < 0 || layers > arch->layers) {
    return Error{.code = "synth.layers",
                 .where = "--layers",
                 .wanted = "1 to " + std::to_string(arch->layers),
                 .found = std::to_string(layers)};
  }
  const std::int64_t count = layers == 0 ? arch->layers : layers;
  SynthModel model;
  model.tensors = Describer(*arch, *recipe, seed << 32U).describe(count);
  const Json generation = {{"bos_token_id", arch->bos}, {"eos_token_id", arch->eos}};
  model.files = {{"config.json", model_config(*arch, *recipe, count).dump(2) + "\n"},
                 {"generation_config.json", generation.dump(2) + "\n"},
                 {"tokenizer_config.json", Json{{"tokenizer_class", "PreTrainedTokenizerFast"},
                                                {"bos_token", "<|bos|>"},
                                                {"eos_token", "<|eos|>"},
                                                {"model_max_length", arch->positions}}
                                                   .dump(2) +
                                               "\n"},
                 {"tokenizer.json", synth_tokenizer(arch->vocabulary, arch->bos, arch->eos)}};
  if (recipe->publisher == Publisher::gptq)
    model.files.push_back({"quantize_config.json", quantization_config(*recipe).dump(2) + "\n"});
  return model;
}

}  // namespace moracle
