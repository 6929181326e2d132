#include "serve/api/chat/tools.h"

#include <utility>
#include <vector>

#include "serve/api/api_error.h"
#include "serve/api/fields.h"
#include "serve/limits.h"
#include "text/reply/tool_list.h"

namespace moracle::serve {

namespace {

std::string shown(std::string_view text) {
  return "'" + std::string(text.substr(0, kShownNameBytes)) + "'";
}

// The name of the one tool that must be called.
Result<std::string> named_tool(const Json& choice) {
  const auto function = choice.is_object() ? choice.find("function") : choice.end();
  const bool named = choice.is_object() && choice.value("type", Json()) == Json("function") &&
                     function != choice.end() && function->is_object() && function->contains("name") &&
                     (*function)["name"].is_string();
  if (named) return (*function)["name"].get<std::string>();
  return wrong("request.value", "tool_choice", "none, auto, required or a function's name",
               choice.is_string() ? shown(choice.get_ref<const std::string&>()) : choice.type_name());
}

// Reads tool_choice into what the request may and must call. False: no tool may be called.
Result<bool> read_choice(const Json& fields, ToolUse& use) {
  if (!has_field(fields, "tool_choice")) return use.may_call();
  const Json& choice = fields["tool_choice"];
  if (choice == Json("none")) return false;
  if (choice == Json("auto")) return use.may_call();
  use.must_call = true;
  if (choice != Json("required")) {
    MORACLE_ASSIGN(const std::string name, named_tool(choice));
    std::erase_if(use.forms, [&](const ToolForm& form) { return form.name != name; });
    if (use.forms.empty())
      return wrong("request.value", "tool_choice", "the name of a tool of the request", shown(name));
  }
  if (!use.may_call()) return wrong("request.value", "tool_choice", "tools beside it", "none");
  return true;
}

}  // namespace

Result<ToolUse> read_tools(const OrderedJson& tools, const Json& fields) {
  ToolUse use;
  MORACLE_ASSIGN(use.tools, read_tool_list(tools));
  use.schemas = ToolSchemas(Json(use.tools));
  use.forms = tool_forms(tools);
  MORACLE_ASSIGN(const bool may_call, read_choice(fields, use));
  if (!may_call) return ToolUse{};
  if (has_field(fields, "parallel_tool_calls") && !fields["parallel_tool_calls"].get<bool>()) use.max_calls = 1;
  return use;
}

}  // namespace moracle::serve
