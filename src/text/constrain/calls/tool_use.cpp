#include "text/constrain/calls/tool_use.h"

#include <algorithm>
#include <string>
#include <string_view>
#include <utility>

#include "text/reply/tool_list.h"

namespace moracle {

namespace {

constexpr std::size_t kShownBytes = 80;  // of a name in an error

Error wrong_choice(std::string wanted, std::string found) {
  return {.code = "request.value", .where = "tool_choice", .wanted = std::move(wanted), .found = std::move(found)};
}

std::string shown(std::string_view text) {
  return "'" + std::string(text.substr(0, kShownBytes)) + "'";
}

// The name of the one tool that must be called.
Result<std::string> named_tool(const OrderedJson& choice) {
  const auto function = choice.is_object() ? choice.find("function") : choice.end();
  const bool named = choice.is_object() && choice.value("type", OrderedJson()) == OrderedJson("function") &&
                     function != choice.end() && function->is_object() && function->contains("name") &&
                     (*function)["name"].is_string();
  if (named) return (*function)["name"].get<std::string>();
  return wrong_choice("none, auto, required or a function's name",
                      choice.is_string() ? shown(choice.get_ref<const std::string&>()) : choice.type_name());
}

}  // namespace

Result<ToolUse> read_tool_use(const OrderedJson& tools, const OrderedJson& choice) {
  ToolUse use;
  MORACLE_ASSIGN(use.tools, read_tool_list(tools));
  if (choice == OrderedJson("none")) return ToolUse{};
  use.schemas = ToolSchemas(Json(use.tools));
  if (use.may_call()) use.forms = tool_forms(tools);
  if (choice.is_null() || choice == OrderedJson("auto")) return use;
  use.must_call = true;
  if (choice != OrderedJson("required")) {
    MORACLE_ASSIGN(const std::string name, named_tool(choice));
    std::erase_if(use.forms, [&](const ToolForm& form) { return form.name != name; });
    if (use.forms.empty()) return wrong_choice("the name of a tool of the request", shown(name));
  }
  if (!use.may_call()) return wrong_choice("tools beside it", "none");
  return use;
}

}  // namespace moracle
