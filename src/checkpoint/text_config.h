// The text model's part of a config.json.
#pragma once

#include <string>
#include <string_view>

#include "base/json/json_fwd.h"

namespace moracle {

// What a JSON pointer leads to; null where that is not there, or null.
[[nodiscard]] const Json* at_pointer(const Json& config, std::string_view pointer);

// The pointer to the text model's part: "" for the whole, "/text_config", or where publishers of wrappers keep it
// otherwise ("/llm_config", "/language_config", "/lm_config", "/thinker_config/text_config").
[[nodiscard]] std::string text_pointer(const Json& config);

}  // namespace moracle
