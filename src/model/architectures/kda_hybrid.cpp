#include "model/architectures/kda_hybrid.h"

#include <array>

#include "model/spec/parts.h"

namespace moracle {

namespace {

constexpr std::array<std::string_view, 2> kKinds{"linear_attention", "full_attention"};

DeltaNetSpec delta_net(const KdaSizes& sizes, const std::string& path, const CommonConfig& common,
                       const TensorClaims& claims, std::string_view out) {
  DeltaNetSpec spec;
  spec.shape = {.key_heads = sizes.heads,
                .value_heads = sizes.heads,
                .key_dim = sizes.head_dim,
                .value_dim = sizes.head_dim,
                .kernel = sizes.kernel,
                .apart = true,
                .decay_by_channel = true,
                .sigmoid_gate = true,
                .least_decay = sizes.least_decay};
  const std::int64_t width = spec.shape.key_width();
  const auto linear = [&](const char* name, std::int64_t rows, std::int64_t columns) {
    return LinearSpec{.path = path + name, .out = rows, .in = columns};
  };
  spec.qkv = linear(".q_proj", width, common.hidden);
  spec.k = linear(".k_proj", width, common.hidden);
  spec.v = linear(".v_proj", width, common.hidden);
  spec.b = linear(".b_proj", sizes.heads, common.hidden);
  if (sizes.low_rank) {
    spec.z_low = linear(".g_a_proj", sizes.head_dim, common.hidden);
    spec.z = linear(".g_b_proj", width, sizes.head_dim);
    spec.a_low = linear(".f_a_proj", sizes.head_dim, common.hidden);
    spec.a = linear(".f_b_proj", width, sizes.head_dim);
  } else {
    spec.z = linear(".g_proj", width, common.hidden);
    spec.a = linear(".f_proj", width, common.hidden);
  }
  spec.conv = path + ".q_conv1d";
  spec.k_conv = path + ".k_conv1d";
  spec.v_conv = path + ".v_conv1d";
  spec.a_log = path + ".A_log";
  const TensorView* const rates = claims.find(spec.a_log);
  spec.a_log_wide = rates != nullptr && rates->shape.size() == 4;
  spec.dt_bias = path + ".dt_bias";
  spec.norm = norm_spec(path + ".o_norm", sizes.head_dim, common.norm_eps);
  spec.out = {.path = path + std::string(out), .out = common.hidden, .in = width};
  return spec;
}

}  // namespace

void put_kda_layers(const KdaSizes& sizes, const std::vector<bool>& delta, const CommonConfig& common,
                    const TensorClaims& claims, std::string_view out, ModelSpec& spec) {
  for (std::size_t l = 0; l < spec.layers.size(); ++l) {
    if (!delta[l]) continue;
    const std::string& kv_a = std::get<LatentAttentionSpec>(spec.layers[l].mixer).kv_a.path;
    const std::string path = kv_a.substr(0, kv_a.rfind('.'));
    spec.layers[l].mixer = delta_net(sizes, path, common, claims, out);
  }
}

Result<std::vector<bool>> listed_kda_layers(const ModelConfig& config, std::int64_t layers) {
  MORACLE_ASSIGN(const std::vector<std::string> kinds, config.layer_kinds("layer_types", layers, kKinds));
  std::vector<bool> delta;
  for (const std::string& kind : kinds) delta.push_back(kind == kKinds[0]);
  return delta;
}

}  // namespace moracle
