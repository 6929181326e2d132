#include "model/architectures/qwen_hybrid.h"

#include <array>

#include "model/spec/parts.h"

namespace moracle {

namespace {

constexpr std::array<std::string_view, 2> kLayerKinds{"linear_attention", "full_attention"};

Result<DeltaNetShape> delta_sizes(const ModelConfig& config) {
  const JsonReader& reader = config.reader();
  DeltaNetShape d;
  MORACLE_ASSIGN(d.key_heads, reader.integer_or("linear_num_key_heads", 16, 1, kMaxHeads));
  MORACLE_ASSIGN(d.value_heads, reader.integer_or("linear_num_value_heads", 32, 1, kMaxHeads));
  MORACLE_ASSIGN(d.key_dim, reader.integer_or("linear_key_head_dim", 128, 1, kMaxHeadDim));
  MORACLE_ASSIGN(d.value_dim, reader.integer_or("linear_value_head_dim", 128, 1, kMaxHeadDim));
  MORACLE_ASSIGN(d.kernel, reader.integer_or("linear_conv_kernel_dim", 4, 1, kMaxConvolution));
  return d;
}

// "layer_types", else every full_attention_interval-th layer attends.
Result<std::vector<std::string>> layer_kinds(const ModelConfig& config, std::int64_t layers) {
  MORACLE_ASSIGN(std::vector<std::string> kinds, config.layer_kinds("layer_types", layers, kLayerKinds));
  constexpr const char* kInterval = "full_attention_interval";
  MORACLE_ASSIGN(const std::int64_t interval, config.reader().integer_or(kInterval, 4, 1, kMaxLayers));
  std::vector<std::string> regular;
  for (std::int64_t l = 0; l < layers; ++l) regular.emplace_back(kLayerKinds[(l + 1) % interval == 0 ? 1 : 0]);
  if (kinds.empty()) return regular;
  if (kinds != regular) config.warn_unread(kInterval, "layer_types says what each layer is, and otherwise");
  return kinds;
}

DeltaNetSpec delta_net(const std::string& path, const DeltaNetShape& shape, const CommonConfig& common) {
  DeltaNetSpec spec{.shape = shape};
  const std::int64_t values = shape.value_width();
  const std::int64_t channels = shape.channels();
  const auto projection = [&](const char* name, std::int64_t out, std::vector<std::string> fused) {
    return LinearSpec{.path = path + name, .fused = std::move(fused), .out = out, .in = common.hidden};
  };
  const std::string qkvz = ".in_proj_qkvz";
  const std::string ba = ".in_proj_ba";
  if (shape.grouped) {
    spec.qkv = projection(qkvz.c_str(), channels + values, {});
    spec.b = projection(ba.c_str(), 2 * shape.value_heads, {});
  } else {
    spec.qkv = projection(".in_proj_qkv", channels, {path + qkvz});
    spec.z = projection(".in_proj_z", values, {path + qkvz});
    spec.b = projection(".in_proj_b", shape.value_heads, {path + ba});
    spec.a = projection(".in_proj_a", shape.value_heads, {path + ba});
  }
  spec.out = {.path = path + ".out_proj", .out = common.hidden, .in = values};
  spec.conv = path + ".conv1d";
  spec.a_log = path + ".A_log";
  spec.dt_bias = path + ".dt_bias";
  spec.norm = norm_spec(path + ".norm", shape.value_dim, common.norm_eps);
  return spec;
}

}  // namespace

Result<> qwen_hybrid_layers(const ModelConfig& config, const ModelSettings& s, ModelSpec& spec, bool grouped) {
  MORACLE_ASSIGN(const std::vector<std::string> kinds, layer_kinds(config, s.common.layers));
  MORACLE_ASSIGN(DeltaNetShape shape, delta_sizes(config));
  shape.grouped = grouped;
  MORACLE_ASSIGN(const bool gated, config.reader().boolean_or("attn_output_gate", true));
  for (std::size_t l = 0; l < spec.layers.size(); ++l) {
    auto& attention = std::get<AttentionSpec>(spec.layers[l].mixer);
    if (kinds[l] == kLayerKinds[0]) {
      const std::string& path = attention.q.path;
      const std::string layer = path.substr(0, path.rfind(".self_attn"));
      spec.layers[l].mixer = delta_net(layer + ".linear_attn", shape, s.common);
      continue;
    }
    attention.shape.element_gate = gated;
    if (gated) attention.q.out *= 2;
  }
  return Ok{};
}

}  // namespace moracle
