#include "text/constrain/calls/tool_form.h"

#include <string_view>
#include <utility>

namespace moracle {

namespace {

constexpr int kMostDropped = 32;  // keywords of one schema

OrderedJson object_schema() {
  return {{"type", "object"}};
}

// The schema says that arguments are an object, as they always are.
OrderedJson schema_of(const OrderedJson& parameters) {
  OrderedJson schema = parameters.is_object() ? parameters : OrderedJson{{"properties", OrderedJson::object()}};
  schema["type"] = "object";
  const auto properties = schema.find("properties");
  // A tool without parameters is called without.
  const bool closed = properties != schema.end() && properties->is_object() && properties->empty();
  if (closed && !schema.contains("additionalProperties")) schema["additionalProperties"] = false;
  return schema;
}

// Takes out the keyword that the pointer names, or the one whose list it points into. False: there is none.
bool drop(OrderedJson& schema, const std::string& pointer) {
  try {
    OrderedJson::json_pointer place(pointer);
    while (!place.empty()) {
      const std::string name = place.back();
      place.pop_back();
      if (!schema.contains(place) || !schema[place].is_object()) continue;
      OrderedJson& parent = schema[place];
      const auto found = parent.find(name);
      if (found == parent.end()) return false;
      // Branches that overlap can be held one by one.
      if (name == "oneOf" && !parent.contains("anyOf")) parent["anyOf"] = *found;
      parent.erase(name);
      return true;
    }
  } catch (const OrderedJson::exception&) {
    return false;  // no pointer
  }
  return false;
}

}  // namespace

std::vector<ToolForm> tool_forms(const OrderedJson& tools) {
  std::vector<ToolForm> forms;
  if (!tools.is_array()) return forms;
  for (const OrderedJson& tool : tools) {
    const OrderedJson& function = tool["function"];
    const auto parameters = function.find("parameters");
    const auto strict = function.find("strict");
    forms.push_back({.name = function["name"].get<std::string>(),
                     .parameters = parameters == function.end() ? OrderedJson() : *parameters,
                     .strict = strict != function.end() && *strict == true,
                     .place = "tools[" + std::to_string(forms.size()) + "].function.parameters"});
  }
  return forms;
}

Result<OrderedJson> held_schema(const ToolForm& tool, const HoldSchema& hold) {
  OrderedJson schema = schema_of(tool.parameters);
  for (int dropped = 0; dropped < kMostDropped; ++dropped) {
    auto held = hold(schema);
    if (held.ok()) return schema;
    if (tool.strict) {
      Error error = std::move(held).error();
      error.where = tool.place + error.where;
      return error;
    }
    if (!drop(schema, held.error().where)) break;
  }
  return object_schema();
}

}  // namespace moracle
