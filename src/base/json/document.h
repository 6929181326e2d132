// JSON whose members stay in the order of the text, whole or some members of a document.
#pragma once

#include <nlohmann/json.hpp>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/json.h"
#include "base/result.h"

namespace moracle {

using OrderedJson = nlohmann::ordered_json;

// One pass over a text finds it.
struct JsonDocument {
  Json json;                           // without the ordered members, whose places hold null
  std::vector<OrderedJson> ordered{};  // their values, in the order of their names; null: there is none
  bool has_nul = false;                // a text or key holds U+0000
  bool has_not_finite = false;
};

// As parse_json. `ordered_members` names members of the outermost object.
Result<JsonDocument> parse_document(std::string_view text, const std::string& file, JsonLimits limits = {},
                                    std::span<const std::string_view> ordered_members = {});
// The whole document in the order of its text. Errors: those of parse_json.
Result<OrderedJson> parse_ordered_json(std::string_view text, const std::string& file, JsonLimits limits = {});

}  // namespace moracle
