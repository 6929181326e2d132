// The tools of a request, as calls are held to them.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "base/json/document.h"
#include "base/result.h"

namespace moracle {

struct ToolForm {
  std::string name{};
  OrderedJson parameters{};  // a JSON schema of an object; null: no arguments
  bool strict = false;       // a keyword that cannot be held is an error
  std::string place{};       // of the parameters, for errors
};

// Of tools that read_tool_list() finds right; null: none.
[[nodiscard]] std::vector<ToolForm> tool_forms(const OrderedJson& tools);

// Holds arguments to a schema. Errors have the JSON pointer of the keyword.
using HoldSchema = std::function<Result<>(const OrderedJson& schema)>;

// The tool's schema without what `hold` refuses, keyword by keyword; any object where too much of it is refused. Error:
// that of `hold`, of a strict tool, behind the tool's place.
Result<OrderedJson> held_schema(const ToolForm& tool, const HoldSchema& hold);

}  // namespace moracle
