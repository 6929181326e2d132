// AutoRound as published for the hub: integer weights in the layout of GPTQ (zero points stored less one) or AWQ, named
// by packing_format; what differs from module to module is listed under extra_config (dynamic_rules.h). Modules outside
// of block_name_to_quantize are stored unquantized, so that list decides nothing.
#include <array>

#include "format/formats.h"

namespace moracle {
namespace {

struct Packing {
  std::string_view name;
  Result<std::unique_ptr<Format>> (*make)(const QuantConfig&);
};
constexpr std::array kPackings{Packing{"auto_round:auto_gptq", make_gptq}, Packing{"auto_gptq", make_gptq},
                               Packing{"auto_round:auto_awq", make_awq}, Packing{"auto_awq", make_awq}};

}  // namespace

Result<std::unique_ptr<Format>> make_auto_round(const QuantConfig& config) {
  const JsonReader reader = config.reader();
  MORACLE_ASSIGN(const std::string type, reader.string_or("data_type", "int"));
  if (type != "int") return config.error("quant.unsupported", "data_type", "int", type);
  MORACLE_ASSIGN(const std::int64_t activations, reader.integer_or("act_bits", 16, 1, 64));
  if (activations < 16)
    return config.error("quant.unsupported", "act_bits", "16: unquantized activations", std::to_string(activations));
  MORACLE_ASSIGN(const std::string packing, reader.string_or("packing_format", ""));
  std::string known;
  for (const Packing& row : kPackings) {
    if (row.name == packing) return row.make(config);
    known += (known.empty() ? "" : ", ") + std::string(row.name);
  }
  return config.error(packing.empty() ? "config.missing" : "quant.unsupported", "packing_format", "one of " + known,
                      packing.empty() ? "nothing" : packing);
}

}  // namespace moracle
