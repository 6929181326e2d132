#include "serve/api/messages.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <utility>

#include "serve/api/fields.h"

namespace moracle::serve {

namespace {

Error wrong(const char* code, std::string where, std::string wanted, std::string found) {
  return Error{.code = code, .where = std::move(where), .wanted = std::move(wanted), .found = std::move(found)};
}

// Texts of a message's content in one.
Result<> join_content(OrderedJson& message, const std::string& where) {
  const auto content = message.find("content");
  if (content == message.end()) {
    message["content"] = nullptr;
    return Ok{};
  }
  if (content->is_null() || content->is_string()) return Ok{};
  if (!content->is_array())
    return wrong("request.type", where, "a text, null or a list of text parts", content->type_name());
  std::string text;
  for (std::size_t i = 0; i < content->size(); ++i) {
    const OrderedJson& part = (*content)[i];
    const std::string place = fmt::format("{}[{}]", where, i);
    if (part.is_string()) {
      text += part.get_ref<const std::string&>();
      continue;
    }
    if (!part.is_object())
      return wrong("request.type", place, "a part {\"type\": \"text\", \"text\"}", part.type_name());
    const auto type = part.find("type");
    if (type == part.end() || (*type != "text" && *type != "refusal")) {
      return Error{.code = "request.unsupported",
                   .where = place + ".type",
                   .wanted = "text",
                   .found = type != part.end() && type->is_string()
                                ? "'" + type->get_ref<const std::string&>().substr(0, 40) + "'"
                                : "another",
                   .advice = "prompts are text; no image, sound, file or address is read"};
    }
    const auto words = part.find(type->get_ref<const std::string&>());
    if (words == part.end() || !words->is_string()) return wrong("request.type", place + ".text", "a text", "none");
    text += words->get_ref<const std::string&>();
  }
  message["content"] = std::move(text);
  return Ok{};
}

// Arguments of calls that earlier turns made: templates expect objects, clients send JSON as text.
Result<> open_arguments(OrderedJson& message, const std::string& where) {
  const auto calls = message.find("tool_calls");
  if (calls == message.end() || calls->is_null()) return Ok{};
  if (!calls->is_array()) return wrong("request.type", where, "a list of calls", calls->type_name());
  for (std::size_t i = 0; i < calls->size(); ++i) {
    OrderedJson& call = (*calls)[i];
    if (!call.is_object() || !call.contains("function") || !call["function"].is_object())
      return wrong("request.type", fmt::format("{}[{}].function", where, i), "an object", "none");
    OrderedJson& function = call["function"];
    if (!function.contains("arguments") || !function["arguments"].is_string()) continue;
    const std::string text = function["arguments"].get<std::string>();
    const std::string place = fmt::format("{}[{}].function.arguments", where, i);
    auto parsed = parse_ordered_json(text.empty() ? "{}" : text, "",
                                     {.bytes = kBodyBytes, .depth = kBodyDepth, .values = kBodyValues});
    if (!parsed.ok()) {
      const Error& error = parsed.error();
      return wrong("request.value", place, "JSON, " + error.wanted, error.found + " at " + error.where);
    }
    function["arguments"] = *std::move(parsed);
  }
  return Ok{};
}

// Members of a message that ask for what is done in another way, or not at all.
Result<> check_members(const OrderedJson& message, const std::string& where) {
  constexpr std::array<std::pair<const char*, const char*>, 5> kRefused = {
      {{"function_call", "it is spelled tool_calls"},
       {"audio", "prompts are text"},
       {"images", "prompts are text"},
       {"prefix", "ask for continue_final_message"},
       {"partial", "ask for continue_final_message"}}};
  for (const auto& [name, advice] : kRefused) {
    const auto found = message.find(name);
    if (found == message.end() || says_nothing(*found)) continue;
    return Error{.code = "request.unsupported",
                 .where = where + "." + name,
                 .wanted = "a message without it",
                 .found = found->type_name(),
                 .advice = advice};
  }
  return Ok{};
}

Result<> check_message(OrderedJson& message, const std::string& where) {
  if (!message.is_object()) return wrong("request.type", where, "an object", message.type_name());
  const auto role = message.find("role");
  if (role == message.end() || !role->is_string()) return wrong("request.missing", where + ".role", "a role", "none");
  if (std::find(kMessageRoles.begin(), kMessageRoles.end(), role->get_ref<const std::string&>()) ==
      kMessageRoles.end()) {
    return wrong("request.value", where + ".role", "system, developer, user, assistant or tool",
                 "'" + role->get_ref<const std::string&>().substr(0, 40) + "'");
  }
  MORACLE_TRY(check_members(message, where));
  MORACLE_TRY(join_content(message, where + ".content"));
  for (const char* const name : {"reasoning", "reasoning_content", "name", "tool_call_id"}) {
    const auto text = message.find(name);
    if (text != message.end() && !text->is_null() && !text->is_string())
      return wrong("request.type", where + "." + name, "a text", text->type_name());
  }
  if (message.contains("reasoning") && !message.contains("reasoning_content"))
    message["reasoning_content"] = message["reasoning"];
  return open_arguments(message, where + ".tool_calls");
}

}  // namespace

Result<OrderedJson> read_messages(OrderedJson messages) {
  if (messages.is_null()) return wrong("request.missing", "messages", "a list of messages", "none");
  if (!messages.is_array() || messages.empty())
    return wrong("request.type", "messages", "a list of at least one message", messages.type_name());
  if (messages.size() > kMostMessages) {
    return wrong("request.limit", "messages", fmt::format("at most {} messages", kMostMessages),
                 std::to_string(messages.size()));
  }
  for (std::size_t i = 0; i < messages.size(); ++i)
    MORACLE_TRY(check_message(messages[i], fmt::format("messages[{}]", i)));
  return messages;
}

}  // namespace moracle::serve
