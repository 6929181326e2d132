// What the tools of a request say about their arguments. It is constant once made.
#pragma once

#include <map>
#include <string>
#include <string_view>

#include "base/json.h"

namespace moracle {

// Kinds of JSON values, or-ed.
struct ValueTypes {
  bool null = false, integer = false, number = false, boolean = false, object = false, array = false, text = false;

  [[nodiscard]] bool only_text() const { return !(null || integer || number || boolean || object || array); }
};

class ToolSchemas {
 public:
  ToolSchemas() = default;
  // [{"type": "function", "function": {"name", "parameters"}}]; what has another form is left out.
  explicit ToolSchemas(const Json& tools);

  [[nodiscard]] bool has(std::string_view tool) const { return types_.contains(std::string(tool)); }
  // Of an argument; those that no schema tells are texts.
  [[nodiscard]] ValueTypes types_of(std::string_view tool, std::string_view argument) const;

 private:
  std::map<std::string, std::map<std::string, ValueTypes>> types_;
};

// A value that was written without quotes, as JSON of one of the types: the first that fits of null, integer, number,
// boolean, object and array, else a text.
[[nodiscard]] std::string typed_value(std::string_view text, const ValueTypes& types);
// A text as JSON, without the quotes around it.
[[nodiscard]] std::string escaped_text(std::string_view text);

}  // namespace moracle
