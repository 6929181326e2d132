// The fields of a request's body: one table that the parser, openapi.json and the documents are made from.
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/json.h"
#include "base/result.h"
#include "serve/limits.h"

namespace moracle::serve {

// Whose bodies are read, and whose replies are written.
enum class GenerationApi : std::uint8_t { chat = 1, completions = 2, anthropic = 4, responses = 8 };

enum class FieldUse : std::uint8_t {
  honoured,  // does what it says
  inert,     // changes no output, accepted
  refused,   // would change the output and is not done: an error, unless its value asks for nothing
};

enum class FieldType : std::uint8_t {
  boolean,
  integer,
  number,
  text,
  structure,  // `schema` describes it, and the parser has code for it
};

struct RequestField {
  std::string_view name{};
  FieldUse use{};
  std::uint8_t endpoints = 0;  // GenerationApi values, or-ed
  FieldType type{};
  std::string_view text{};  // what it does; of refused ones: what to do instead
  double low = 0;           // of numbers
  double high = 0;
  bool above_low = false;         // `low` itself is out of range
  Json (*schema)() = nullptr;     // of structures: a JSON schema; null: any value
  int sampling = 0;               // its place among those that say how a reply is drawn; 0: it does not
  std::string_view off = "null";  // of refused ones: the value that asks for nothing, beside null, false and empty

  [[nodiscard]] bool serves(GenerationApi endpoint) const {
    return (endpoints & static_cast<std::uint8_t>(endpoint)) != 0;
  }
};

[[nodiscard]] std::span<const RequestField> request_fields();
// The entry of an API's field; APIs share those that mean the same.
[[nodiscard]] const RequestField* find_field(std::string_view name, GenerationApi endpoint);  // nullptr: unknown

// The JSON schema of a field's value; null is allowed beside it.
[[nodiscard]] Json field_schema(const RequestField& field);
// Of a body: all fields that are not refused; `required` must be there.
[[nodiscard]] Json body_schema(GenerationApi api, std::string_view required);
// Markdown tables of all fields, for docs/serve.md.
[[nodiscard]] std::string fields_markdown();

inline constexpr std::array kMessageRoles = {"system", "developer", "user", "assistant", "tool"};

// Checks every member of `body` against the table: types, ranges, refusals, fields of other endpoints. Names that
// none knows go to `ignored`. Errors:
// "request.type", "request.value", "request.unsupported".
Result<> check_fields(const Json& body, GenerationApi endpoint, std::vector<std::string>& ignored);

// Whether a value asks for nothing: null, false, an empty list, object or text.
template <class Any>
[[nodiscard]] bool says_nothing(const Any& value) {
  if (value.is_boolean()) return !value.template get<bool>();
  if (value.is_string()) return value.template get_ref<const std::string&>().empty();
  return value.is_null() || (value.is_structured() && value.empty());
}

// Checked access to the members of such a body.
[[nodiscard]] bool has_field(const Json& body, const char* name);  // present and not null

}  // namespace moracle::serve
