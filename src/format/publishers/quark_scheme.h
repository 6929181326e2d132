// AMD Quark: what one layer config says, and how it is stored.
#pragma once

#include <memory>
#include <string>

#include "format/decode/stored_scheme.h"
#include "format/rules/quant_config.h"

namespace moracle {

// Reads the layer config `json` found at `pointer` below the section. `cache_output`: quantized outputs are those of
// keys and values, for a quantized cache, and are not applied. Errors: "config.type", "config.range",
// "quant.unsupported".
Result<std::shared_ptr<const StoredScheme>> make_quark_scheme(const QuantConfig& config, const Json& json,
                                                              const std::string& pointer, bool cache_output,
                                                              const std::shared_ptr<ValueNotes>& notes);

}  // namespace moracle
