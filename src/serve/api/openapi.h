// The description of the API, made from the table of fields.
#pragma once

#include <string>

#include "base/json.h"

namespace moracle::serve {

[[nodiscard]] Json openapi_json(const std::string& version);
// The same document in YAML.
[[nodiscard]] std::string openapi_yaml(const std::string& version);

}  // namespace moracle::serve
