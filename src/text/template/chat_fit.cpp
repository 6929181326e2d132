#include "text/template/chat_fit.h"

#include <string>
#include <utility>

namespace moracle {

namespace {

// Each function that messages of a conversation call.
template <class Act>
void for_called(OrderedJson& messages, const Act& act) {
  for (OrderedJson& message : messages) {
    if (!message.is_object()) continue;
    const auto calls = message.find("tool_calls");
    if (calls == message.end() || !calls->is_array()) continue;
    for (OrderedJson& call : *calls) {
      if (call.is_object() && call.contains("function") && call["function"].is_object()) act(call["function"]);
    }
  }
}

}  // namespace

bool open_arguments_of(OrderedJson& function, JsonLimits limits) {
  OrderedJson& arguments = function["arguments"];
  if (arguments.is_object()) return true;
  const std::string text = arguments.is_string() ? arguments.get<std::string>() : std::string();
  if (arguments.is_null() || (arguments.is_string() && text.empty())) {
    arguments = OrderedJson::object();
    return true;
  }
  auto parsed = parse_ordered_json(text, "", limits);
  const bool opens = parsed.ok() && parsed->is_object();
  arguments = opens ? *std::move(parsed) : OrderedJson{{"arguments", arguments}};
  return opens;
}

void open_arguments(OrderedJson& messages) {
  for_called(messages, [](OrderedJson& function) { open_arguments_of(function); });
}

void close_arguments(OrderedJson& messages) {
  for_called(messages, [](OrderedJson& function) {
    OrderedJson& arguments = function["arguments"];
    if (!arguments.is_string()) arguments = arguments.dump(-1, ' ', false, OrderedJson::error_handler_t::replace);
  });
}

bool fill_texts(ChatRequest& chat) {
  bool filled = false;
  const auto fill = [&](OrderedJson& owner, const char* name) {
    if (!owner.is_object() || (owner.contains(name) && !owner[name].is_null())) return;
    owner[name] = "";
    filled = true;
  };
  for (OrderedJson& message : chat.messages) fill(message, "content");
  for (OrderedJson& tool : chat.tools) {
    if (tool.is_object() && tool.contains("function")) fill(tool["function"], "description");
  }
  return filled;
}

}  // namespace moracle
