// What a request holds its answers to: response_format, structured_outputs and their aliases.
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "base/result.h"
#include "serve/api/body.h"
#include "text/constrain/output_request.h"

namespace moracle::serve {

// Empty: the request asks for none. Errors, with the field: "request.type", "request.value", "request.missing",
// "request.unsupported".
Result<std::optional<OutputField>> read_output_field(const RequestBody& body);
// The code of a request's error for that of a format: "request.schema_too_complex", "request.unsupported_schema",
// "request.invalid_schema", "request.unsupported".
[[nodiscard]] std::string output_error_code(std::string_view code);
// An error of hold_rules() as one of a request.
[[nodiscard]] Error request_error(Error error);

// JSON schemas of the fields.
[[nodiscard]] Json response_format_schema();
[[nodiscard]] Json structured_outputs_schema();
[[nodiscard]] Json regex_schema();
[[nodiscard]] Json choices_schema();

}  // namespace moracle::serve
