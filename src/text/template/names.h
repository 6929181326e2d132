// Every filter and test that a template names is there, known before it renders.
#pragma once

#include <string>

#include "base/result.h"
#include "text/template/syntax/ast.h"

namespace moracle::jinja {

// Follows jinja2's compiler: an unknown name is an error wherever it stands, also in code that never runs. Directly
// under an {% if %} and inside `a if b else c` it becomes one when it is used.
// Error: "template.syntax" with the line.
Result<Ok> check_names(const Body& body, const std::string& file);

}  // namespace moracle::jinja
