// JSON whose members stay in the order of the text, whole or one member of a document.
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <string_view>

#include "base/json.h"
#include "base/result.h"

namespace moracle {

using OrderedJson = nlohmann::ordered_json;

// One pass over a text finds it.
struct JsonDocument {
  Json json;              // without the ordered member, whose place holds null
  OrderedJson ordered{};  // its value; null: there is none
  bool has_nul = false;   // a text or key holds U+0000
  bool has_not_finite = false;
};

// As parse_json. `ordered_member` names a member of the outermost object; empty: none.
Result<JsonDocument> parse_document(std::string_view text, const std::string& file, JsonLimits limits = {},
                                    std::string_view ordered_member = {});
// The whole document in the order of its text. Errors: those of parse_json.
Result<OrderedJson> parse_ordered_json(std::string_view text, const std::string& file, JsonLimits limits = {});

}  // namespace moracle
