// What the APIs share whose requests are read as chats: texts, tools, formats, and the way to the chat.
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/json/document.h"
#include "base/result.h"
#include "serve/api/body.h"
#include "serve/api/chat/places.h"
#include "serve/api/fields.h"
#include "serve/api/request.h"

namespace moracle::serve {

// A member; null: the object has none of this name.
[[nodiscard]] const OrderedJson& member(const OrderedJson& object, const char* name);
// Error: "request.type".
Result<std::string> text_member(const OrderedJson& object, const char* name, const std::string& where);

// A part of a content: its type, and the member that has its text.
struct TextPart {
  std::string_view type;
  const char* member;
};
// A text, or the joined texts of parts of these kinds; null is empty. Errors: "request.type", "request.unsupported".
Result<std::string> joined_texts(const OrderedJson& content, std::span<const TextPart> kinds, const std::string& where);

// Messages of a chat, and the places of what each was made of.
struct PlacedMessages {
  OrderedJson messages = OrderedJson::array();
  std::vector<std::string> places{};

  void add(OrderedJson message, std::string place);
};

// How an API writes tools: name, description, strict and a schema, all beside the type.
struct ToolShape {
  std::string_view type;     // of functions that clients run
  bool typed;                // whether the type must be there
  const char* schema;        // the member that has the schema of arguments
  bool with_schema = false;  // it must be there
};
// A list of tools as a chat has it, members of schemas in their order. Errors: "request.type", "request.missing",
// "request.unsupported".
Result<OrderedJson> chat_tools(const OrderedJson& tools, const ToolShape& shape);

// The fields that an API has from chats, and those that neither knows.
[[nodiscard]] Json shared_fields(const Json& body, GenerationApi api);

// "format" of a field of RequestBody::formats, under the name by which read_output_field() knows it.
[[nodiscard]] OrderedJson format_within(const RequestBody& body, const std::string& field);

// A chat, whose faults get the places of the API. Errors: those of read_request.
Result<ApiRequest> read_as_chat(RequestBody chat, ChatPlaces places, bool strict);

}  // namespace moracle::serve
