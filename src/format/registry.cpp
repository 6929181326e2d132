#include <array>
#include <string>
#include <string_view>

#include "format/formats.h"
#include "format/plain.h"
#include "format/quant_config.h"

namespace moracle {
namespace {

struct Row {
  std::string_view method;  // quant_method
  Result<std::unique_ptr<Format>> (*make)(const QuantConfig&);
};

constexpr std::array kFormats{
    Row{"gptq", make_gptq},
    Row{"awq", make_awq},
    Row{"auto-round", make_auto_round},
    Row{"compressed-tensors", make_compressed_tensors},
    Row{"quark", make_quark},
    Row{"modelopt", make_modelopt},
    Row{"modelopt_fp4", make_modelopt},
    Row{"modelopt_mixed", make_modelopt},
    Row{"modelopt_mxfp8", make_modelopt},
    Row{"mxfp8", make_modelopt},
    Row{"fp8", make_fp8},
    Row{"mxfp4", make_mxfp4},
};

}  // namespace

Result<std::unique_ptr<Format>> make_format(const Checkpoint& checkpoint) {
  MORACLE_ASSIGN(const QuantConfig config, find_quant_config(checkpoint));
  if (config.method.empty()) return make_plain();
  std::string known;
  for (const Row& row : kFormats) {
    if (row.method == config.method) return row.make(config);
    known += (known.empty() ? "" : ", ") + std::string(row.method);
  }
  return config.error("config.unsupported", "quant_method", "one of " + known, config.method);
}

}  // namespace moracle
