#include "format/ct_scheme.h"

#include <fmt/format.h>

#include <array>

namespace moracle {
namespace {

constexpr std::array kSchemes{
    CtSchemeRow{"pack-quantized", "int4 and int8 weights with channel or group scales", make_ct_pack_quantized},
};

Result<CtArgs> parse_args(const QuantConfig& config, const Json& block, const std::string& pointer) {
  if (!block.is_object()) return config.error("config.type", pointer, "an object", block.type_name());
  const JsonReader reader(block, config.file, config.pointer + "/" + pointer);
  CtArgs args;
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
  } else {
    MORACLE_ASSIGN(const bool dynamic, reader.boolean_or("dynamic", false));
    args.dynamic = dynamic ? "true" : "false";
  }
  return args;
}

}  // namespace

std::span<const CtSchemeRow> ct_schemes() {
  return kSchemes;
}

std::string CtArgs::text() const {
  std::string text = fmt::format("{}{} {}", type, num_bits, strategy);
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
