#include "format/publishers/ct_scheme.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>

#include "base/checked.h"
#include "format/decode/code_module.h"

namespace moracle {
namespace {

constexpr std::array kSchemes{
    CtSchemeRow{"pack-quantized",
                "int4 and int8 weights with channel or group scales, dynamic 8-bit activations or none",
                make_ct_pack_quantized},
    CtSchemeRow{"int-quantized", "int8 and int4 weights in bytes, int8 or fp8 activations or none",
                make_ct_int_quantized},
    CtSchemeRow{"float-quantized", "fp8 weights with tensor, channel or block scales, fp8 activations or none",
                make_ct_float_quantized},
    CtSchemeRow{"float-quantized", "mxfp8", make_ct_mxfp8},
    CtSchemeRow{"mxfp8-quantized", "mxfp8", make_ct_mxfp8},
    CtSchemeRow{"naive-quantized", "as int-quantized", make_ct_int_quantized},
    CtSchemeRow{"naive-quantized", "as float-quantized", make_ct_float_quantized},
    CtSchemeRow{"nvfp4-pack-quantized", "nvfp4 weights, nvfp4 activations or none", make_ct_nvfp4},
    CtSchemeRow{"mxfp4-pack-quantized", "mxfp4 weights, mxfp4, mxfp8 or dynamic fp8 activations or none",
                make_ct_mxfp4},
};

constexpr std::array<std::string_view, 12> kKnownArgs{"num_bits",    "type",     "symmetric", "group_size",
                                                      "strategy",    "dynamic",  "actorder",  "block_structure",
                                                      "scale_dtype", "zp_dtype", "observer",  "observer_kwargs"};

// A key that no one here has heard of may mean anything, unless it says nothing.
Result<> check_known(const QuantConfig& config, const Json& block, const std::string& pointer) {
  for (const auto& [key, value] : block.items()) {
    const bool silent = value.is_null() || value == false || ((value.is_object() || value.is_array()) && value.empty());
    if (silent || std::find(kKnownArgs.begin(), kKnownArgs.end(), key) != kKnownArgs.end()) continue;
    return config.error("quant.unsupported", pointer + "/" + key, "no such key", value.dump().substr(0, 200));
  }
  return Ok{};
}

Result<CtArgs> parse_args(const QuantConfig& config, const Json& block, const std::string& pointer) {
  if (!block.is_object()) return config.error("config.type", pointer, "an object", block.type_name());
  MORACLE_TRY(check_known(config, block, pointer));
  const JsonReader reader(block, config.file, config.pointer + "/" + pointer);
  CtArgs args;
  MORACLE_ASSIGN(args.scale_dtype, reader.string_or("scale_dtype", ""));
  if (reader.has("block_structure")) {
    const Json& sizes = block["block_structure"];
    const Error wrong =
        config.error("config.type", pointer + "/block_structure", "two positive numbers", sizes.dump().substr(0, 200));
    if (!sizes.is_array() || sizes.size() != 2) return wrong;
    for (const Json& size : sizes) {
      if (!size.is_number_integer() || size < 1 || size > (1 << 30)) return wrong;
      args.block.push_back(size.get<std::int64_t>());
    }
  }
  MORACLE_ASSIGN(args.num_bits, reader.integer_or("num_bits", args.num_bits, 1, 64));
  MORACLE_ASSIGN(args.type, reader.string_or("type", args.type));
  MORACLE_ASSIGN(args.symmetric, reader.boolean_or("symmetric", true));
  MORACLE_ASSIGN(args.group_size, reader.integer_or("group_size", -1, -1, std::int64_t{1} << 30));
  MORACLE_ASSIGN(args.strategy, reader.string_or("strategy", ""));
  // Early files leave the strategy to be inferred.
  if (args.strategy.empty())
    args.strategy = args.group_size > 0 ? "group" : reader.has("group_size") ? "channel" : "tensor";
  if (reader.has("actorder") && block["actorder"].is_boolean()) {
    args.actorder = block["actorder"].get<bool>() ? "group" : "";
  } else {
    MORACLE_ASSIGN(args.actorder, reader.string_or("actorder", ""));
  }
  if (reader.has("dynamic") && block["dynamic"].is_string()) {
    MORACLE_ASSIGN(args.dynamic, reader.string_or("dynamic", ""));
    if (args.dynamic != "local")
      return config.error("quant.unsupported", pointer + "/dynamic", "true, false or local", args.dynamic);
  } else {
    MORACLE_ASSIGN(const bool dynamic, reader.boolean_or("dynamic", false));
    args.dynamic = dynamic ? "true" : "false";
  }
  return args;
}

// Integer activations; float ones by their width below.
std::optional<QuantKey> int_activation(const CtArgs& args) {
  if (args.num_bits != 8) return std::nullopt;
  if (args.strategy == "token" && args.dynamic == "true") return dynamic(int8_key(Granularity::token()));
  if (args.strategy == "tensor" && args.dynamic == "false") return int8_key(Granularity::tensor());
  return std::nullopt;
}

std::optional<QuantKey> float_activation(const CtArgs& args) {
  const bool now = args.dynamic == "true";
  if (args.num_bits == 4) {
    if (args.strategy == "tensor_group" && args.group_size == 16 && args.dynamic != "false")
      return dynamic(nvfp4_key());
    if (args.strategy == "group" && args.group_size == 32 && now) return dynamic(mx_key(Element::e2m1));
    return std::nullopt;
  }
  if (args.num_bits != 8) return std::nullopt;
  if (args.strategy == "tensor" && args.dynamic == "false") return fp8_key(Granularity::tensor());
  if (!now) return std::nullopt;
  if (args.strategy == "token") return dynamic(fp8_key(Granularity::token()));
  if (args.strategy != "group" || args.group_size < 1) return std::nullopt;
  if (args.group_size == 32 && args.scale_dtype.ends_with("uint8")) return dynamic(mx_key(Element::e4m3));
  return dynamic(fp8_key(Granularity::group(narrow<std::int32_t>(args.group_size))));
}

}  // namespace

std::optional<std::optional<QuantKey>> ct_activation(const CtGroup& group) {
  if (!group.activation) return std::optional<QuantKey>();
  const CtArgs& args = *group.activation;
  if (!args.symmetric || !args.actorder.empty()) return std::nullopt;
  const std::optional<QuantKey> key = args.type == "int"     ? int_activation(args)
                                      : args.type == "float" ? float_activation(args)
                                                             : std::nullopt;
  if (!key) return std::nullopt;
  return key;
}

std::span<const CtSchemeRow> ct_schemes() {
  return kSchemes;
}

std::string CtArgs::text() const {
  std::string text = fmt::format("{}{} {}", type, num_bits, strategy);
  for (std::size_t i = 0; i < block.size(); ++i) text += fmt::format("{}{}", i == 0 ? " " : "x", block[i]);
  if (group_size > 0) text += fmt::format(" {}", group_size);
  if (dynamic != "false") text += dynamic == "true" ? " dynamic" : " dynamic " + dynamic;
  if (!symmetric) text += " asymmetric";
  if (!actorder.empty()) text += " actorder " + actorder;
  return text;
}

Result<CtGroup> parse_ct_group(const QuantConfig& config, const std::string& name, const Json& group) {
  const std::string pointer = "config_groups/" + name;
  if (!group.is_object()) return config.error("config.type", pointer, "an object", group.type_name());
  const JsonReader reader(group, config.file, config.pointer + "/" + pointer);
  CtGroup parsed{.name = name};
  MORACLE_ASSIGN(const std::string common, config.reader().string_or("format", ""));
  MORACLE_ASSIGN(parsed.format, reader.string_or("format", common));
  if (!reader.has("weights")) return config.error("config.missing", pointer + "/weights", "an object", "nothing");
  MORACLE_ASSIGN(parsed.weights, parse_args(config, group["weights"], pointer + "/weights"));
  if (reader.has("input_activations")) {
    MORACLE_ASSIGN(parsed.activation, parse_args(config, group["input_activations"], pointer + "/input_activations"));
  }
  if (reader.has("output_activations"))
    return config.error("quant.unsupported", pointer + "/output_activations", "none", "an object");
  return parsed;
}

}  // namespace moracle
