// The formats of the registry.
#pragma once

#include <memory>

#include "format/format.h"
#include "format/rules/quant_config.h"

namespace moracle {

// Each reads its keys of the quantization section. Errors: "config.missing", "config.type", "config.range",
// "config.contradiction", "config.pattern", and "quant.unsupported" naming what is known.
Result<std::unique_ptr<Format>> make_gptq(const QuantConfig& config);
Result<std::unique_ptr<Format>> make_awq(const QuantConfig& config);
Result<std::unique_ptr<Format>> make_auto_round(const QuantConfig& config);
Result<std::unique_ptr<Format>> make_compressed_tensors(const QuantConfig& config);
Result<std::unique_ptr<Format>> make_quark(const QuantConfig& config);
Result<std::unique_ptr<Format>> make_modelopt(const QuantConfig& config);
Result<std::unique_ptr<Format>> make_fp8(const QuantConfig& config);
Result<std::unique_ptr<Format>> make_mxfp4(const QuantConfig& config);

}  // namespace moracle
