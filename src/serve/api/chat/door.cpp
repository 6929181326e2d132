#include "serve/api/chat/door.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <utility>

#include "serve/api/api_error.h"

namespace moracle::serve {

namespace {

std::string types_of(std::span<const TextPart> kinds) {
  std::string types;
  for (const TextPart& kind : kinds) types += (types.empty() ? "" : ", ") + std::string(kind.type);
  return types;
}

Result<OrderedJson> chat_tool(const OrderedJson& tool, const ToolShape& shape, const std::string& where) {
  if (!tool.is_object()) return wrong("request.type", where, "an object", tool.type_name());
  const OrderedJson& type = member(tool, "type");
  if (type != shape.type && (shape.typed || !type.is_null()))
    return unsupported(where + ".type", std::string(shape.type), type, "no tool is run by this server");
  if (shape.with_schema && member(tool, shape.schema).is_null())
    return wrong("request.missing", where + "." + shape.schema, "a JSON schema", "none");
  OrderedJson function = OrderedJson::object();
  for (const auto& [name, value] : tool.items()) {
    if (name == shape.schema) function["parameters"] = value;
    if (name == "name" || name == "description" || name == "strict") function[name] = value;
  }
  return OrderedJson{{"type", "function"}, {"function", std::move(function)}};
}

}  // namespace

const OrderedJson& member(const OrderedJson& object, const char* name) {
  static const OrderedJson null;
  const auto found = object.find(name);
  return found == object.end() ? null : *found;
}

Result<std::string> text_member(const OrderedJson& object, const char* name, const std::string& where) {
  const OrderedJson& text = member(object, name);
  if (!text.is_string()) return wrong("request.type", where + "." + name, "a text", text.type_name());
  return text.get<std::string>();
}

Result<std::string> joined_texts(const OrderedJson& content, std::span<const TextPart> kinds,
                                 const std::string& where) {
  if (content.is_null()) return std::string();
  if (content.is_string()) return content.get<std::string>();
  if (!content.is_array()) return wrong("request.type", where, "a text or a list of parts", content.type_name());
  std::string text;
  for (std::size_t i = 0; i < content.size(); ++i) {
    const std::string place = fmt::format("{}[{}]", where, i);
    if (!content[i].is_object()) return wrong("request.type", place, "a part with a type", content[i].type_name());
    const OrderedJson& type = member(content[i], "type");
    const auto* const kind =
        std::find_if(kinds.data(), kinds.data() + kinds.size(), [&](const TextPart& one) { return type == one.type; });
    if (kind == kinds.data() + kinds.size()) {
      return unsupported(place + ".type", types_of(kinds), type,
                         "prompts are text; no image, sound, file or address is read");
    }
    MORACLE_ASSIGN(const std::string piece, text_member(content[i], kind->member, place));
    text += piece;
  }
  return text;
}

void PlacedMessages::add(OrderedJson message, std::string place) {
  messages.push_back(std::move(message));
  places.push_back(std::move(place));
}

Result<OrderedJson> chat_tools(const OrderedJson& tools, const ToolShape& shape) {
  if (tools.is_null()) return OrderedJson();
  if (!tools.is_array()) return wrong("request.type", "tools", "a list of tools", tools.type_name());
  OrderedJson list = OrderedJson::array();
  for (std::size_t i = 0; i < tools.size(); ++i) {
    MORACLE_ASSIGN(OrderedJson tool, chat_tool(tools[i], shape, fmt::format("tools[{}]", i)));
    list.push_back(std::move(tool));
  }
  return list;
}

Json shared_fields(const Json& body, GenerationApi api) {
  Json shared = Json::object();
  for (const auto& [name, value] : body.items()) {
    const RequestField* const field = find_field(name, api);
    if (field == find_field(name, GenerationApi::chat)) shared[name] = value;
  }
  return shared;
}

OrderedJson format_within(const RequestBody& body, const std::string& field) {
  OrderedJson formats = OrderedJson::object();
  const auto owner = body.formats.find(field);
  if (owner != body.formats.end() && owner->is_object() && owner->contains("format"))
    formats[field + ".format"] = owner->at("format");
  return formats;
}

Result<ApiRequest> read_as_chat(RequestBody chat, ChatPlaces places, bool strict) {
  auto request = read_request(GenerationApi::chat, std::move(chat), strict);
  if (!request.ok()) return places.named(std::move(request).error());
  for (std::string& place : request->changed) place = places.here(place);
  request->places = std::move(places);
  return request;
}

}  // namespace moracle::serve
