// What requests hold their answers to, in the shapes of OpenAI's and vLLM's APIs.
#pragma once

#include <optional>
#include <string>

#include "base/json/document.h"
#include "base/result.h"
#include "text/constrain/output_format.h"

namespace moracle {

struct OutputField {
  OutputFormat format{};
  std::string place{};  // of the schema, expression or list: "response_format.json_schema.schema"
};

// Of the member `name` of a request: structured_outputs, guided_json, guided_regex, guided_choice, or a format by its
// type, whose schema a response_format has in "json_schema". Empty: it asks for none. Errors, with the place:
// "request.type", "request.value", "request.missing", "request.unsupported".
Result<std::optional<OutputField>> read_output_request(const std::string& name, const OrderedJson& value);

// An error of holding the field's format, at the field's place.
[[nodiscard]] Error at_output(const OutputField& field, Error error);

}  // namespace moracle
