// Jamba: Mamba in most layers, and in some attention without positions; softmax routing in every other layer.
#include <string>
#include <vector>

#include "model/architectures/architectures.h"
#include "model/spec/parts.h"

namespace moracle {

namespace {

// Every period-th layer, counted from an offset.
struct Period {
  std::int64_t period = 1;
  std::int64_t offset = 0;

  [[nodiscard]] bool has(std::size_t layer) const { return static_cast<std::int64_t>(layer) % period == offset; }
};

Result<Period> read_period(const ModelConfig& config, const std::string& what, Period fallback) {
  Period read;
  const JsonReader& reader = config.reader();
  MORACLE_ASSIGN(read.period, reader.integer_or(what + "_layer_period", fallback.period, 1, kMaxLayers));
  MORACLE_ASSIGN(read.offset, reader.integer_or(what + "_layer_offset", fallback.offset, 0, read.period - 1));
  return read;
}

Result<std::vector<bool>> dense_layers(const ModelConfig& config, std::int64_t layers) {
  MORACLE_ASSIGN(const Period mixtures, read_period(config, "expert", {.period = 2, .offset = 1}));
  MORACLE_ASSIGN(const std::int64_t experts, config.either("num_experts", "num_local_experts", 16, 1, kMaxExperts));
  std::vector<bool> dense;
  for (std::size_t l = 0; l < static_cast<std::size_t>(layers); ++l) dense.push_back(experts == 1 || !mixtures.has(l));
  return dense;
}

// What all layers of Mamba share.
struct MambaSizes {
  StateSpaceShape shape{.head_dim = 1, .groups = 1, .rate_by_state = true};
  std::int64_t kernel = 0;
  std::int64_t rank = 0;  // of steps
  bool conv_bias = true;
  bool bias = false;
};

Result<MambaSizes> read_mamba(const ModelConfig& config, std::int64_t hidden) {
  const JsonReader& reader = config.reader();
  MambaSizes sizes;
  MORACLE_ASSIGN(const std::int64_t expand, reader.integer_or("mamba_expand", 2, 1, 64));
  sizes.shape.heads = expand * hidden;
  MORACLE_ASSIGN(sizes.shape.states, reader.integer_or("mamba_d_state", 16, 1, kMaxHeadDim));
  MORACLE_ASSIGN(sizes.kernel, reader.integer_or("mamba_d_conv", 4, 1, kMaxConvolution));
  MORACLE_ASSIGN(sizes.conv_bias, reader.boolean_or("mamba_conv_bias", true));
  MORACLE_ASSIGN(sizes.bias, reader.boolean_or("mamba_proj_bias", false));
  constexpr const char* kRank = "mamba_dt_rank";
  sizes.rank = (hidden + 15) / 16;
  if (reader.has(kRank) && reader.json().at(kRank) != "auto") {
    MORACLE_ASSIGN(sizes.rank, reader.integer(kRank, 1, kMaxHidden));
  }
  return sizes;
}

StateSpaceSpec mamba(const std::string& path, const CommonConfig& common, const MambaSizes& sizes) {
  const std::int64_t width = sizes.shape.heads;
  const std::int64_t states = sizes.shape.states;
  const auto rows = [&](const char* module, const char* name, std::int64_t begin, std::int64_t out, std::int64_t in,
                        std::int64_t total) {
    return LinearSpec{.path = path + module + name,
                      .out = out,
                      .in = in,
                      .rows_of = RowsOf{.module = path + module, .begin = begin, .total = total}};
  };
  const auto select = [&](const char* name, std::int64_t begin, std::int64_t out) {
    return rows(".x_proj", name, begin, out, width, sizes.rank + 2 * states);
  };
  StateSpaceSpec spec;
  spec.mixed = rows(".in_proj", ".x", 0, width, common.hidden, 2 * width);
  spec.gate = rows(".in_proj", ".gate", width, width, common.hidden, 2 * width);
  spec.mixed.bias = spec.gate.bias = sizes.bias;
  spec.selection = SelectionSpec{.step = select(".step", 0, sizes.rank),
                                 .b = select(".b", sizes.rank, states),
                                 .c = select(".c", sizes.rank + states, states),
                                 .step_norm = norm_spec(path + ".dt_layernorm", sizes.rank, common.norm_eps),
                                 .b_norm = norm_spec(path + ".b_layernorm", states, common.norm_eps),
                                 .c_norm = norm_spec(path + ".c_layernorm", states, common.norm_eps)};
  spec.step = {.path = path + ".dt_proj", .out = width, .in = sizes.rank, .bias = true};
  spec.out = {.path = path + ".out_proj", .out = common.hidden, .in = width, .bias = sizes.bias};
  spec.taps = {.path = path + ".conv1d", .bias = sizes.conv_bias};
  spec.rate = path + ".A_log";
  spec.skip = path + ".D";
  spec.kernel = sizes.kernel;
  spec.shape = sizes.shape;
  return spec;
}

Result<> finish(const ModelConfig& config, const TensorClaims& /*claims*/, const ModelSettings& settings,
                ModelSpec& spec) {
  MORACLE_ASSIGN(const Period attention, read_period(config, "attn", {.period = 8, .offset = 4}));
  MORACLE_ASSIGN(const MambaSizes sizes, read_mamba(config, settings.common.hidden));
  for (std::size_t l = 0; l < spec.layers.size(); ++l) {
    LayerSpec& layer = spec.layers[l];
    if (!attention.has(l)) layer.mixer = mamba(layer.path + ".mamba", settings.common, sizes);
  }
  return Ok{};
}

}  // namespace

// transformers' JambaConfig.
constexpr Architecture kJamba{
    .model_types = {"jamba"},
    .common = {.hidden = 4096,
               .layers = 32,
               .heads = 32,
               .kv_heads = 8,
               .vocabulary = 65536,
               .max_positions = 262144,
               .norm_eps = 1e-6},
    .norms = {.post = ".pre_ff_layernorm"},
    .final_norm = "final_layernorm",
    .attention = {.bias = {{}, false}, .windows = Windows::none},
    .rope = {.by_hook = true},
    .router = {.experts = {{"num_experts", "num_local_experts"}, 16},
               .top_k = {{"num_experts_per_tok"}, 2},
               .renormalize = {{}, false}},
    .moe = {.path = {"feed_forward"}, .router = {".router"}, .intermediate = {{"intermediate_size"}, 14336}},
    .dense = {.path = ".feed_forward", .intermediate = {{"intermediate_size"}, 14336}, .read = dense_layers},
    .hook = finish};

}  // namespace moracle
