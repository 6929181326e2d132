// The keywords of JSON Schema, and what becomes of each.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "base/json/document.h"
#include "base/result.h"

namespace moracle {

enum class KeywordUse : std::uint8_t {
  enforced,    // outputs are held to it
  annotation,  // says nothing about values
  refused,     // outputs cannot be held to it, unless its value asks for nothing
};

// Empty: no draft has such a keyword. Names that begin with "x-" are annotations.
[[nodiscard]] std::optional<KeywordUse> use_of_keyword(std::string_view name);

// A JSON pointer with one more step.
[[nodiscard]] std::string pointer_to(const std::string& parent, std::string_view step);

// Whether each keyword of a schema is enforced, an annotation, or asks for nothing. Errors, with the JSON pointer:
// "schema.unsupported", "schema.unknown".
Result<> check_keywords(const OrderedJson& schema, const std::string& pointer);

// "schema.value": a keyword's value is not what JSON Schema says.
[[nodiscard]] Error wrong_value(std::string pointer, std::string wanted, const OrderedJson& found);

}  // namespace moracle
