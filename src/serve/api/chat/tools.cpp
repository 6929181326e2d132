#include "serve/api/chat/tools.h"

#include <fmt/format.h>

#include <algorithm>
#include <set>
#include <utility>

#include "serve/api/api_error.h"
#include "serve/api/fields.h"
#include "serve/limits.h"

namespace moracle::serve {

namespace {

std::string shown(std::string_view text) {
  return "'" + std::string(text.substr(0, kShownNameBytes)) + "'";
}

Result<> check_name(const std::string& name, const std::string& where) {
  const bool fits = !name.empty() && name.size() <= kToolNameBytes && std::all_of(name.begin(), name.end(), [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_' || c == '-';
  });
  if (fits) return Ok{};
  return wrong("request.value", where, fmt::format("1 to {} letters, digits, _ and -", kToolNameBytes), shown(name));
}

// A member of another type than a text or an object is null here, or an error.
Result<> check_function(const OrderedJson& function, const std::string& where) {
  const auto name = function.find("name");
  if (name == function.end() || !name->is_string())
    return wrong("request.missing", where + ".name", "a name", name == function.end() ? "none" : name->type_name());
  MORACLE_TRY(check_name(name->get_ref<const std::string&>(), where + ".name"));
  const auto description = function.find("description");
  if (description != function.end() && !description->is_null() && !description->is_string())
    return wrong("request.type", where + ".description", "a text", description->type_name());
  const auto parameters = function.find("parameters");
  if (parameters == function.end() || parameters->is_null()) return Ok{};
  if (!parameters->is_object())
    return wrong("request.type", where + ".parameters", "a JSON schema, an object", parameters->type_name());
  const std::size_t bytes = parameters->dump(-1, ' ', false, OrderedJson::error_handler_t::replace).size();
  if (bytes <= kSchemaBytes) return Ok{};
  return wrong("request.limit", where + ".parameters", fmt::format("at most {} bytes", kSchemaBytes),
               fmt::format("{} bytes", bytes));
}

// Templates get a schema always, and no word about how arguments are held to it.
OrderedJson seen_function(const OrderedJson& function) {
  OrderedJson seen = OrderedJson::object();
  for (const auto& [key, value] : function.items()) {
    if (key != "strict" && !value.is_null()) seen[key] = value;
  }
  if (!seen.contains("parameters"))
    seen["parameters"] = OrderedJson{{"type", "object"}, {"properties", OrderedJson::object()}};
  return seen;
}

Result<OrderedJson> read_tool(const OrderedJson& tool, const std::string& where) {
  if (!tool.is_object()) return wrong("request.type", where, "an object", tool.type_name());
  const auto type = tool.find("type");
  if (type == tool.end() || *type != "function") {
    const std::string found = type == tool.end()  ? "none"
                              : type->is_string() ? shown(type->get_ref<const std::string&>())
                                                  : type->type_name();
    return Error{.code = "request.unsupported",
                 .where = where + ".type",
                 .wanted = "function",
                 .found = found,
                 .advice = "no tool is run here: the client runs them"};
  }
  const auto function = tool.find("function");
  if (function == tool.end() || !function->is_object()) {
    return wrong("request.type", where + ".function", "an object",
                 function == tool.end() ? "none" : function->type_name());
  }
  MORACLE_TRY(check_function(*function, where + ".function"));
  return OrderedJson{{"type", "function"}, {"function", seen_function(*function)}};
}

Result<OrderedJson> read_list(const OrderedJson& tools) {
  if (tools.is_null() || (tools.is_array() && tools.empty())) return OrderedJson();
  if (!tools.is_array()) return wrong("request.type", "tools", "a list of tools", tools.type_name());
  if (tools.size() > kMostTools)
    return wrong("request.limit", "tools", fmt::format("at most {} tools", kMostTools), std::to_string(tools.size()));
  OrderedJson seen = OrderedJson::array();
  std::set<std::string> names;
  for (std::size_t i = 0; i < tools.size(); ++i) {
    MORACLE_ASSIGN(OrderedJson tool, read_tool(tools[i], fmt::format("tools[{}]", i)));
    const auto& name = tool["function"]["name"].get_ref<const std::string&>();
    if (!names.insert(name).second)
      return wrong("request.value", fmt::format("tools[{}].function.name", i), "a name of its own", shown(name));
    seen.push_back(std::move(tool));
  }
  return seen;
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

// What calls of the tools are held to, each with its place in the body.
std::vector<ToolForm> forms_of(const OrderedJson& tools) {
  std::vector<ToolForm> forms;
  if (!tools.is_array()) return forms;
  for (const OrderedJson& tool : tools) {
    const OrderedJson& function = tool["function"];
    const auto parameters = function.find("parameters");
    const auto strict = function.find("strict");
    forms.push_back({.name = function["name"].get<std::string>(),
                     .parameters = parameters == function.end() ? OrderedJson() : *parameters,
                     .strict = strict != function.end() && *strict == true,
                     .place = fmt::format("tools[{}].function.parameters", forms.size())});
  }
  return forms;
}

}  // namespace

Result<ToolUse> read_tools(const OrderedJson& tools, const Json& fields) {
  ToolUse use;
  MORACLE_ASSIGN(use.tools, read_list(tools));
  use.schemas = ToolSchemas(Json(use.tools));
  use.forms = forms_of(tools);
  MORACLE_ASSIGN(const bool may_call, read_choice(fields, use));
  if (!may_call) return ToolUse{};
  if (has_field(fields, "parallel_tool_calls") && !fields["parallel_tool_calls"].get<bool>()) use.max_calls = 1;
  return use;
}

}  // namespace moracle::serve
