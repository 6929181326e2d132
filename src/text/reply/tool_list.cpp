#include "text/reply/tool_list.h"

#include <algorithm>
#include <set>
#include <string>
#include <string_view>
#include <utility>

namespace moracle {

namespace {

constexpr std::size_t kShownBytes = 80;  // of a text in an error

Error wrong(const char* code, std::string where, std::string wanted, std::string found) {
  return {.code = code, .where = std::move(where), .wanted = std::move(wanted), .found = std::move(found)};
}

std::string shown(std::string_view text) {
  return "'" + std::string(text.substr(0, kShownBytes)) + "'";
}

Result<> check_name(const std::string& name, const std::string& where) {
  const bool fits = !name.empty() && name.size() <= kToolNameBytes && std::all_of(name.begin(), name.end(), [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_' || c == '-';
  });
  if (fits) return Ok{};
  return wrong("request.value", where, "1 to " + std::to_string(kToolNameBytes) + " letters, digits, _ and -",
               shown(name));
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
  if (bytes <= kToolSchemaBytes) return Ok{};
  return wrong("request.limit", where + ".parameters", "at most " + std::to_string(kToolSchemaBytes) + " bytes",
               std::to_string(bytes) + " bytes");
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

}  // namespace

Result<OrderedJson> read_tool_list(const OrderedJson& tools) {
  if (tools.is_null() || (tools.is_array() && tools.empty())) return OrderedJson();
  if (!tools.is_array()) return wrong("request.type", "tools", "a list of tools", tools.type_name());
  if (tools.size() > kMostTools)
    return wrong("request.limit", "tools", "at most " + std::to_string(kMostTools) + " tools",
                 std::to_string(tools.size()));
  OrderedJson seen = OrderedJson::array();
  std::set<std::string> names;
  for (std::size_t i = 0; i < tools.size(); ++i) {
    const std::string where = "tools[" + std::to_string(i) + "]";
    MORACLE_ASSIGN(OrderedJson tool, read_tool(tools[i], where));
    const auto& name = tool["function"]["name"].get_ref<const std::string&>();
    if (!names.insert(name).second)
      return wrong("request.value", where + ".function.name", "a name of its own", shown(name));
    seen.push_back(std::move(tool));
  }
  return seen;
}

}  // namespace moracle
