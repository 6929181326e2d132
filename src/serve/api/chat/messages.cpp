#include "serve/api/chat/messages.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <utility>

#include "serve/api/api_error.h"
#include "serve/api/fields.h"
#include "text/template/chat_fit.h"

namespace moracle::serve {

namespace {

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

Result<> check_calls(OrderedJson& message, const std::string& where, std::vector<std::string>& changed) {
  const auto calls = message.find("tool_calls");
  if (calls == message.end() || calls->is_null()) return Ok{};
  if (!calls->is_array()) return wrong("request.type", where, "a list of calls", calls->type_name());
  for (std::size_t i = 0; i < calls->size(); ++i) {
    OrderedJson& call = (*calls)[i];
    const std::string place = fmt::format("{}[{}].function", where, i);
    if (!call.is_object() || !call.contains("function") || !call["function"].is_object())
      return wrong("request.type", place, "an object", "none");
    const JsonLimits limits{.bytes = kBodyBytes, .depth = kBodyDepth, .values = kBodyValues};
    if (!open_arguments_of(call["function"], limits)) changed.push_back(place + ".arguments");
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

Result<> check_message(OrderedJson& message, const std::string& where, std::vector<std::string>& changed) {
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
  return check_calls(message, where + ".tool_calls", changed);
}

// Results belong to calls of the assistant's last turn, by their ids or by their order. Others, which templates know no
// way to write, become words of the user.
class ResultOwners {
 public:
  void see(OrderedJson& message, const std::string& where, std::vector<std::string>& changed) {
    const auto& role = message["role"].get_ref<const std::string&>();
    if (role == "tool") {
      see_result(message, where, changed);
      return;
    }
    open_.clear();
    const auto calls = message.find("tool_calls");
    if (role != "assistant" || calls == message.end() || !calls->is_array()) return;
    for (const OrderedJson& call : *calls) {
      const auto id = call.find("id");
      open_.push_back(id != call.end() && id->is_string() ? id->get<std::string>() : std::string());
    }
  }

 private:
  void see_result(OrderedJson& message, const std::string& where, std::vector<std::string>& changed) {
    const auto id = message.find("tool_call_id");
    const bool named = id != message.end() && id->is_string();
    auto owner = named ? std::find(open_.begin(), open_.end(), id->get_ref<const std::string&>()) : open_.begin();
    if (owner == open_.end()) owner = std::find(open_.begin(), open_.end(), std::string());  // a call without an id
    if (owner != open_.end()) {
      if (!named && !owner->empty()) message["tool_call_id"] = *owner;
      if (!named) changed.push_back(where + ".tool_call_id");
      open_.erase(owner);
      return;
    }
    OrderedJson content = message["content"].is_null() ? OrderedJson("") : message["content"];
    message = OrderedJson{{"role", "user"}, {"content", std::move(content)}};
    changed.push_back(where + ".role");
  }

  std::vector<std::string> open_;  // ids of calls without a result
};

}  // namespace

Result<OrderedJson> read_messages(OrderedJson messages, std::vector<std::string>& changed) {
  if (messages.is_null()) return wrong("request.missing", "messages", "a list of messages", "none");
  if (!messages.is_array() || messages.empty())
    return wrong("request.type", "messages", "a list of at least one message", messages.type_name());
  if (messages.size() > kMostMessages) {
    return wrong("request.limit", "messages", fmt::format("at most {} messages", kMostMessages),
                 std::to_string(messages.size()));
  }
  ResultOwners owners;
  for (std::size_t i = 0; i < messages.size(); ++i) {
    const std::string where = fmt::format("messages[{}]", i);
    MORACLE_TRY(check_message(messages[i], where, changed));
    owners.see(messages[i], where, changed);
  }
  return messages;
}

}  // namespace moracle::serve
