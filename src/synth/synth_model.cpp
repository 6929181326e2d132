#include "synth/synth_model.h"

#include <bit>
#include <cmath>
#include <utility>

#include "base/checked.h"
#include "synth/architectures.h"

namespace moracle {

namespace {

enum class Publisher : std::uint8_t { none, gptq, awq, mxfp4, compressed_tensors };

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
      {"mxfp4", Publisher::mxfp4, 4, 32, false},
      {"nvfp4", Publisher::compressed_tensors, 4, 16, false},
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

// The root mean square of E2M1's eight magnitudes 0, 0.5, 1, 1.5, 2, 3, 4 and 6.
const double kE2m1Rms = std::sqrt(68.5 / 8.0);

// MXFP4 is published for stacked experts, NVFP4 and integers for experts that are modules.
bool goes_with(const SynthArchitecture& arch, const SchemeRecipe& recipe) {
  return recipe.publisher == Publisher::none || arch.stacked == (recipe.publisher == Publisher::mxfp4);
}

template <class Entry, class Fits>
Result<const Entry*> find_named(const std::vector<Entry>& list, const std::string& name, const char* what, Fits fits) {
  std::string known;
  for (const Entry& entry : list) {
    if (!fits(entry)) continue;
    if (entry.name == name) return &entry;
    known += (known.empty() ? "" : ", ") + entry.name;
  }
  return Error{.code = "synth.unsupported", .where = what, .wanted = "one of " + known, .found = "'" + name + "'"};
}

class Describer {
 public:
  Describer(const SynthArchitecture& arch, const SchemeRecipe& recipe, std::uint64_t seed)
      : arch_(arch), recipe_(recipe), seed_(seed) {}

  std::vector<SynthTensor> describe(std::int64_t layers) {
    dense("model.embed_tokens.weight", {arch_.vocabulary, arch_.hidden}, 0.02);
    for (std::int64_t layer = 0; layer < layers; ++layer)
      describe_layer("model.layers." + std::to_string(layer) + ".", layer);
    norm("model.norm.weight", arch_.hidden);
    dense("lm_head.weight", {arch_.vocabulary, arch_.hidden}, 0.02);
    return std::move(tensors_);
  }

 private:
  void describe_layer(const std::string& prefix, std::int64_t layer) {
    norm(prefix + "input_layernorm.weight", arch_.hidden);
    if (arch_.delta && kind_of(layer) == "linear_attention") {
      describe_delta_net(prefix + "linear_attn.", *arch_.delta);
    } else if (arch_.latent) {
      describe_latent_attention(prefix + "self_attn.", *arch_.latent);
    } else {
      describe_attention(prefix + "self_attn.");
    }
    norm(prefix + "post_attention_layernorm.weight", arch_.hidden);
    if (layer < arch_.first_dense) return describe_mlp(prefix + "mlp.", arch_.dense_intermediate);
    describe_experts(prefix + arch_.moe + ".");
  }

  [[nodiscard]] std::string_view kind_of(std::int64_t layer) const {
    return arch_.layer_kinds[static_cast<std::size_t>(layer) % arch_.layer_kinds.size()];
  }

  void describe_experts(const std::string& moe) {
    const std::string router = moe + arch_.router;
    dense(router + ".weight", {arch_.experts, arch_.hidden}, deviation(arch_.hidden));
    if (arch_.router_bias) dense(router + ".bias", {arch_.experts}, kBias);
    if (arch_.router_correction) dense(router + ".e_score_correction_bias", {arch_.experts}, kBias);
    if (!arch_.shared.module.empty()) describe_mlp(moe + arch_.shared.module + ".", arch_.shared.intermediate);
    if (!arch_.shared.gate.empty()) plain(moe + arch_.shared.gate, 1, arch_.hidden);
    if (arch_.stacked) {
      stacked(moe + "experts.gate_up_proj", 2 * arch_.intermediate, arch_.hidden);
      stacked(moe + "experts.down_proj", arch_.hidden, arch_.intermediate);
      return;
    }
    for (std::int64_t expert = 0; expert < arch_.experts; ++expert) {
      const std::string path = moe + "experts." + std::to_string(expert) + ".";
      // Gate and up see the same activations, hence get the same column order.
      const std::uint64_t shared = order();
      linear(path + arch_.gate_name, arch_.intermediate, arch_.hidden, shared);
      linear(path + arch_.up_name, arch_.intermediate, arch_.hidden, shared);
      linear(path + arch_.down_name, arch_.hidden, arch_.intermediate, order());
    }
  }

  // Of the architectures that have it, only routed experts are published quantized.
  void describe_mlp(const std::string& mlp, std::int64_t intermediate) {
    plain(mlp + "gate_proj", intermediate, arch_.hidden);
    plain(mlp + "up_proj", intermediate, arch_.hidden);
    plain(mlp + "down_proj", arch_.hidden, intermediate);
  }

  void describe_attention(const std::string& attention) {
    const std::int64_t query = arch_.heads * arch_.head_dim;
    const std::int64_t key = arch_.kv_heads * arch_.head_dim;
    projection(attention + "q_proj", arch_.element_gate ? 2 * query : query, arch_.hidden);
    projection(attention + "k_proj", key, arch_.hidden);
    projection(attention + "v_proj", key, arch_.hidden);
    projection(attention + "o_proj", arch_.hidden, query);
    if (arch_.qk_norm) {
      norm(attention + "q_norm.weight", arch_.head_dim);
      norm(attention + "k_norm.weight", arch_.head_dim);
    }
    if (arch_.sinks) dense(attention + "sinks", {arch_.heads}, 1.0);
  }

  void describe_latent_attention(const std::string& attention, const SynthArchitecture::LatentSizes& sizes) {
    projection(attention + "q_a_proj", sizes.q_rank, arch_.hidden);
    norm(attention + "q_a_layernorm.weight", sizes.q_rank);
    projection(attention + "q_b_proj", arch_.heads * (sizes.nope + sizes.rope), sizes.q_rank);
    projection(attention + "kv_a_proj_with_mqa", sizes.kv_rank + sizes.rope, arch_.hidden);
    norm(attention + "kv_a_layernorm.weight", sizes.kv_rank);
    projection(attention + "kv_b_proj", arch_.heads * (sizes.nope + sizes.value), sizes.kv_rank);
    projection(attention + "o_proj", arch_.hidden, arch_.heads * sizes.value);
  }

  void describe_delta_net(const std::string& net, const SynthArchitecture::DeltaSizes& sizes) {
    const std::int64_t values = sizes.value_heads * sizes.value_dim;
    const std::int64_t channels = 2 * sizes.key_heads * sizes.key_dim + values;
    projection(net + "in_proj_qkv", channels, arch_.hidden);
    projection(net + "in_proj_z", values, arch_.hidden);
    projection(net + "in_proj_b", sizes.value_heads, arch_.hidden);
    projection(net + "in_proj_a", sizes.value_heads, arch_.hidden);
    dense(net + "conv1d.weight", {channels, 1, sizes.kernel}, 0.3);
    dense(net + "A_log", {sizes.value_heads}, 0.5);
    dense(net + "dt_bias", {sizes.value_heads}, 0.1);
    ones(net + "norm.weight", sizes.value_dim);
    projection(net + "out_proj", arch_.hidden, values);
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

  // The weight of an RMS norm that multiplies by 1.
  void norm(const std::string& name, std::int64_t size) {
    if (!arch_.zero_centred_norms) return ones(name, size);
    add(name, Dtype::bf16, {size}, {.kind = SynthFill::Kind::word, .word = 0});
  }
  static double deviation(std::int64_t in) { return 1.0 / std::sqrt(static_cast<double>(in)); }
  void plain(const std::string& path, std::int64_t out, std::int64_t in) {
    dense(path + ".weight", {out, in}, deviation(in));
  }

  // Of a mixer: quantized as the experts are, but for MXFP4 and where experts alone are quantized.
  void projection(const std::string& path, std::int64_t out, std::int64_t in) {
    if (arch_.experts_alone) {
      plain(path, out, in);
    } else {
      linear(path, out, in, order());
    }
    if (arch_.attention_bias) dense(path + ".bias", {out}, kBias);
  }

  void stacked(const std::string& path, std::int64_t out, std::int64_t in) {
    dense(path + "_bias", {arch_.experts, out}, kBias);
    if (recipe_.publisher == Publisher::none) return dense(path, {arch_.experts, in, out}, deviation(in));
    const std::int64_t groups = in / recipe_.group;
    add(path + "_blocks", Dtype::u8, {arch_.experts, out, groups, recipe_.group / 2}, {.kind = SynthFill::Kind::bits});
    add(path + "_scales", Dtype::u8, {arch_.experts, out, groups},
        {.kind = SynthFill::Kind::e8m0_scales, .value = deviation(in) / kE2m1Rms});
  }

  void linear(const std::string& path, std::int64_t out, std::int64_t in, std::uint64_t order_seed) {
    if (recipe_.publisher == Publisher::none || recipe_.publisher == Publisher::mxfp4) return plain(path, out, in);
    if (recipe_.publisher == Publisher::compressed_tensors) return nvfp4(path, out, in, deviation(in) / kE2m1Rms);
    const std::int64_t group = recipe_.group > 0 ? recipe_.group : in;
    const std::int64_t groups = in / group;
    const std::int64_t per_word = 32 / recipe_.bits;
    // A uniform code has a standard deviation of 2^bits / sqrt(12).
    const double scale = deviation(in) * std::sqrt(12.0) / static_cast<double>(1 << recipe_.bits);
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

  // A weight is code * weight_scale / weight_global_scale.
  void nvfp4(const std::string& path, std::int64_t out, std::int64_t in, double scale) {
    add(path + ".weight_packed", Dtype::u8, {out, in / 2}, {.kind = SynthFill::Kind::bits});
    add(path + ".weight_scale", Dtype::f8_e4m3, {out, in / recipe_.group},
        {.kind = SynthFill::Kind::e4m3_scales, .value = kStoredScale});
    add(path + ".weight_global_scale", Dtype::f32, {1},
        {.kind = SynthFill::Kind::word,
         .word = std::bit_cast<std::uint32_t>(static_cast<float>(kStoredScale / scale))});
  }

  static constexpr double kBias = 0.02;       // standard deviation of biases
  static constexpr double kStoredScale = 64;  // mean of stored E4M3 scales, whose largest number is 448

  const SynthArchitecture& arch_;
  const SchemeRecipe& recipe_;
  std::uint64_t seed_;
  std::vector<SynthTensor> tensors_;
};

// Modules that stay in 16 bits where experts alone are quantized, as parts of their names.
std::vector<std::string> unquantized_modules(const SynthArchitecture& arch) {
  std::vector<std::string> modules;
  if (!arch.experts_alone) return modules;
  modules.emplace_back("self_attn");
  if (arch.delta) modules.emplace_back("linear_attn");
  for (std::int64_t layer = 0; layer < arch.first_dense; ++layer)
    modules.push_back("layers." + std::to_string(layer) + ".mlp");
  if (!arch.shared.module.empty()) modules.push_back(arch.moe + "." + arch.shared.module);
  return modules;
}

Json quantization_config(const SynthArchitecture& arch, const SchemeRecipe& recipe) {
  const std::vector<std::string> unquantized = unquantized_modules(arch);
  if (recipe.publisher == Publisher::awq) {
    Json kept = {"gate"};
    for (const std::string& module : unquantized) kept.push_back(module);
    return {{"quant_method", "awq"}, {"bits", recipe.bits}, {"group_size", recipe.group},
            {"zero_point", true},    {"version", "gemm"},   {"modules_to_not_convert", kept}};
  }
  if (recipe.publisher == Publisher::mxfp4) {
    return {{"quant_method", "mxfp4"},
            {"modules_to_not_convert",
             {"model.layers.*.self_attn", "model.layers.*.mlp.router", "model.embed_tokens", "lm_head"}}};
  }
  if (recipe.publisher == Publisher::compressed_tensors) {
    const Json weights = {{"num_bits", recipe.bits},    {"type", "float"},   {"strategy", "tensor_group"},
                          {"group_size", recipe.group}, {"symmetric", true}, {"dynamic", false}};
    Json ignored = {"re:.*" + arch.moe + "." + arch.router + "$", "lm_head"};
    for (const std::string& module : unquantized) ignored.push_back("re:.*" + module + ".*");
    return {{"quant_method", "compressed-tensors"},
            {"format", "nvfp4-pack-quantized"},
            {"quantization_status", "compressed"},
            {"ignore", ignored},
            {"config_groups",
             {{"group_0", {{"targets", {"Linear"}}, {"input_activations", nullptr}, {"weights", weights}}}}}};
  }
  Json config = {{"quant_method", "gptq"},
                 {"bits", recipe.bits},
                 {"group_size", recipe.group},
                 {"desc_act", recipe.act_order},
                 {"sym", true},
                 {"lm_head", false},
                 {"checkpoint_format", "gptq"},
                 {"true_sequential", true},
                 {"static_groups", false}};
  for (const std::string& module : unquantized) config["dynamic"]["-:.*" + module + ".*"] = Json::object();
  return config;
}

Json model_config(const SynthArchitecture& arch, const SchemeRecipe& recipe, std::int64_t layers) {
  Json config = {{"architectures", {arch.class_name}},
                 {"model_type", arch.model_type},
                 {"attention_bias", arch.attention_bias},
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
  if (!arch.layer_kinds.empty()) {
    Json& kinds = config["layer_types"] = Json::array();
    for (std::size_t l = 0; l < static_cast<std::size_t>(layers); ++l)
      kinds.push_back(arch.layer_kinds[l % arch.layer_kinds.size()]);
  }
  config.update(arch.config);
  if (recipe.publisher != Publisher::none) config["quantization_config"] = quantization_config(arch, recipe);
  return config;
}

}  // namespace

std::vector<std::string> synth_model_names() {
  return names_of(synth_architecture_rows());
}

std::vector<std::string> synth_scheme_names() {
  return names_of(recipes());
}

Result<SynthModel> describe_synth_model(const std::string& architecture, const std::string& scheme, std::int64_t layers,
                                        std::uint64_t seed) {
  MORACLE_ASSIGN(const SynthArchitecture* arch, find_named(synth_architecture_rows(), architecture, "architecture",
                                                           [](const SynthArchitecture&) { return true; }));
  MORACLE_ASSIGN(const SchemeRecipe* recipe,
                 find_named(recipes(), scheme, "--scheme", [&](const auto& entry) { return goes_with(*arch, entry); }));
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
    model.files.push_back({"quantize_config.json", quantization_config(*arch, *recipe).dump(2) + "\n"});
  return model;
}

}  // namespace moracle
