#include "model/architectures/mamba2.h"

#include <limits>

#include "model/spec/parts.h"

namespace moracle {

namespace {

// A number, or infinity as Python or transformers writes it: 0.
Result<float> step_bound(const ModelConfig& config, const Json& bound) {
  if (bound.is_object() && bound.value("__float__", Json()) == "Infinity") return 0.0F;
  if (bound == std::numeric_limits<double>::infinity()) return 0.0F;
  if (bound.is_number() && bound >= 0 && bound <= 1e6) return bound.get<float>();
  return config.error("config.range", "time_step_limit", "two numbers from 0, or infinity", bound.dump());
}

}  // namespace

Result<> read_step_limit(const ModelConfig& config, StateSpaceShape& shape) {
  constexpr const char* kKey = "time_step_limit";
  if (!config.reader().has(kKey)) return Ok{};
  const Json& json = config.reader().json().at(kKey);
  if (!json.is_array() || json.size() != 2) return config.error("config.type", kKey, "two numbers", json.dump());
  MORACLE_ASSIGN(shape.least_step, step_bound(config, json[0]));
  MORACLE_ASSIGN(shape.most_step, step_bound(config, json[1]));
  return Ok{};
}

StateSpaceSpec mamba2(const std::string& path, const CommonConfig& common, const Mamba2Sizes& sizes) {
  StateSpaceSpec spec{.norm_groups = sizes.shape.groups, .kernel = sizes.kernel, .shape = sizes.shape};
  const std::int64_t width = spec.shape.width();
  const std::string in = path + ".in_proj";
  const auto rows = [&](const char* name, std::int64_t begin, std::int64_t out) {
    return LinearSpec{
        .path = in + name,
        .out = out,
        .in = common.hidden,
        .bias = sizes.bias,
        .rows_of = RowsOf{.module = in, .begin = begin, .total = width + spec.channels() + spec.shape.heads}};
  };
  spec.gate = rows(".gate", 0, width);
  spec.mixed = rows(".mixed", width, spec.channels());
  spec.step = rows(".step", width + spec.channels(), spec.shape.heads);
  spec.out = {.path = path + ".out_proj", .out = common.hidden, .in = width, .bias = sizes.bias};
  spec.taps = {.path = path + ".conv1d", .bias = sizes.conv_bias};
  spec.rate = path + ".A_log";
  spec.skip = path + ".D";
  spec.step_bias = path + ".dt_bias";
  spec.norm = norm_spec(path + ".norm", width, common.norm_eps);
  return spec;
}

}  // namespace moracle
