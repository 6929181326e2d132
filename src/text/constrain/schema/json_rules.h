// Rules of JSON's own syntax.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "base/json/document.h"
#include "text/constrain/grammar/grammar_text.h"

namespace moracle {

// White space between tokens: none, one space, or a line break with an indent, so that it always ends.
[[nodiscard]] std::string space_expression(GrammarText& grammar);

// A string of so many characters; of any text.
[[nodiscard]] std::string string_expression(GrammarText& grammar, std::int64_t least = 0,
                                            std::optional<std::int64_t> most = std::nullopt);
// Any JSON value, and any object.
[[nodiscard]] std::string any_value_expression(GrammarText& grammar);
[[nodiscard]] std::string any_object_expression(GrammarText& grammar);

// An expression of the one text that spells the value.
[[nodiscard]] std::string value_literal(const OrderedJson& value, const GrammarText& grammar);

}  // namespace moracle
