// Tokens to a tree, after Jinja's grammar. A parse has no state beside its arguments.
#pragma once

#include <string>
#include <string_view>

#include "base/result.h"
#include "text/template/syntax/ast.h"

namespace moracle::jinja {

// Errors: "template.syntax" (with the line), "template.limit" (nested deeper than `depth`).
Result<Body> parse_template(std::string_view source, const std::string& file, int depth);

}  // namespace moracle::jinja
