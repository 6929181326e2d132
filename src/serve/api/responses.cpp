#include "serve/api/responses.h"

#include <fmt/format.h>

#include <array>
#include <utility>
#include <variant>

#include "serve/api/api_error.h"
#include "serve/api/chat/door.h"
#include "serve/api/field_makers.h"
#include "serve/api/json_text.h"

namespace moracle::serve {

namespace {

constexpr auto kHere = static_cast<std::uint8_t>(GenerationApi::responses);

// --- fields ---

Json input_schema() {
  const Json item = {{"type", "object"}};
  return {{"oneOf", Json::array({{{"type", "string"}},
                                 {{"type", "array"}, {"minItems", 1}, {"maxItems", kMostMessages}, {"items", item}}})}};
}

Json tools_schema() {
  return {{"type", "array"},
          {"items",
           {{"type", "object"},
            {"required", Json::array({"type", "name"})},
            {"properties",
             {{"type", {{"const", "function"}}},
              {"name", {{"type", "string"}}},
              {"description", {{"type", "string"}}},
              {"parameters", {{"type", "object"}}}}}}}};
}

Json choice_schema() {
  const Json words = {{"type", "string"}, {"enum", Json::array({"none", "auto", "required"})}};
  return {{"oneOf", Json::array({words, {{"type", "object"}, {"required", Json::array({"type", "name"})}}})}};
}

Json object_schema() {
  return {{"type", "object"}};
}

Json text_schema() {
  return {{"type", "string"}};
}

constexpr std::array kFields = {
    shaped("input", kHere, input_schema,
           "A text, or items: messages, reasoning, function_call and function_call_output; texts alone"),
    shaped("instructions", kHere, text_schema, "A message of the system, in front of the input"),
    whole("max_output_tokens", kHere, 1, kInt32, "Most tokens of a reply"),
    shaped("tools", kHere, tools_schema, "As tools of /v1/chat/completions, of type function"),
    shaped("tool_choice", kHere, choice_schema, "none, auto, required, or a function by its name"),
    flag("parallel_tool_calls", kHere, "As of /v1/chat/completions"),
    shaped("text", kHere, object_schema,
           "format: as response_format of /v1/chat/completions; verbosity changes nothing"),
    shaped("reasoning", kHere, object_schema,
           "effort: the template's reasoning_effort; summary changes nothing, as all of it is returned"),
    ignored_field("include", "Replies have all that they can have", kHere),
    ignored_field("stream_options", "Events are not padded", kHere),
    ignored_field("client_metadata", "Nothing is stored", kHere),
    refuse("store", "nothing is stored: store must be false", "false", kHere),
    refuse("previous_response_id", "nothing is stored: send the whole conversation as input", "null", kHere),
    refuse("conversation", "nothing is stored: send the whole conversation as input", "null", kHere),
    refuse("background", "a reply is made while its client waits", "false", kHere),
    refuse("prompt", "nothing is stored: send instructions and input", "null", kHere),
    refuse("truncation", "shorten the input", "\"disabled\"", kHere),
    refuse("max_tool_calls", "no tool is run by this server", "null", kHere),
    refuse("top_logprobs", "ask /v1/chat/completions for log-probabilities", "0", kHere),
    refuse("context_management", "shorten the input", "null", kHere),
};

// --- requests ---

constexpr std::array kTexts = {TextPart{"input_text", "text"},   TextPart{"output_text", "text"},
                               TextPart{"text", "text"},         TextPart{"reasoning_text", "text"},
                               TextPart{"summary_text", "text"}, TextPart{"refusal", "refusal"}};
constexpr ToolShape kTools = {.type = "function", .typed = true, .schema = "parameters"};
constexpr std::array kPlaces = {
    SamePlace{"messages", "input"},
    SamePlace{"max_tokens", "max_output_tokens"},
    SamePlace{"tools[].function", "tools[]"},
};

// Messages of a chat made of items. What an assistant's turn is made of, reasoning, text and calls, are items of their
// own here and one message there.
class ItemReader {
 public:
  explicit ItemReader(PlacedMessages& chat) : chat_(chat) {}

  Result<> add(const OrderedJson& item, const std::string& where) {
    if (!item.is_object()) return wrong("request.type", where, "an item", item.type_name());
    const OrderedJson& type = member(item, "type");
    if (type == "function_call") return add_call(item, where);
    if (type == "function_call_output") {
      MORACLE_ASSIGN(const std::string id, text_member(item, "call_id", where));
      MORACLE_ASSIGN(const std::string text, joined_texts(member(item, "output"), kTexts, where + ".output"));
      chat_.add({{"role", "tool"}, {"tool_call_id", id}, {"content", text}}, where);
      return Ok{};
    }
    if (type == "reasoning") return add_reasoning(item, where);
    if (type == "message" || type.is_null()) return add_message(item, where);
    return unsupported(where + ".type", "message, reasoning, function_call or function_call_output", type,
                       "nothing is stored, and no tool is run by this server");
  }

 private:
  // The assistant's message that goes on: the last, where it lacks a text or `late`, what may follow one.
  OrderedJson& turn(bool late, const std::string& where) {
    const OrderedJson& messages = chat_.messages;
    const bool goes_on = !messages.empty() && messages.back()["role"] == "assistant" &&
                         (late || (messages.back()["content"].is_null() && !messages.back().contains("tool_calls")));
    if (!goes_on) chat_.add({{"role", "assistant"}, {"content", nullptr}}, where);
    return chat_.messages.back();
  }

  Result<> add_message(const OrderedJson& item, const std::string& where) {
    const OrderedJson& role = member(item, "role");
    if (role != "user" && role != "assistant" && role != "system" && role != "developer")
      return wrong("request.value", where + ".role", "user, assistant, system or developer", role.dump().substr(0, 40));
    MORACLE_ASSIGN(const std::string text, joined_texts(member(item, "content"), kTexts, where + ".content"));
    if (role == "assistant") {
      turn(false, where)["content"] = text;
    } else {
      chat_.add({{"role", role}, {"content", text}}, where);
    }
    return Ok{};
  }

  Result<> add_call(const OrderedJson& item, const std::string& where) {
    MORACLE_ASSIGN(const std::string id, text_member(item, "call_id", where));
    MORACLE_ASSIGN(const std::string name, text_member(item, "name", where));
    MORACLE_ASSIGN(const std::string arguments, text_member(item, "arguments", where));
    turn(true, where)["tool_calls"].push_back(
        {{"id", id}, {"type", "function"}, {"function", {{"name", name}, {"arguments", arguments}}}});
    return Ok{};
  }

  // Its text where it has one, else the summary; one that is encrypted says nothing to this model.
  Result<> add_reasoning(const OrderedJson& item, const std::string& where) {
    MORACLE_ASSIGN(std::string text, joined_texts(member(item, "content"), kTexts, where + ".content"));
    MORACLE_ASSIGN(const std::string summary, joined_texts(member(item, "summary"), kTexts, where + ".summary"));
    if (text.empty()) text = summary;
    if (!text.empty()) turn(false, where)["reasoning_content"] = text;
    return Ok{};
  }

  PlacedMessages& chat_;
};

Result<PlacedMessages> read_input(const Json& body) {
  PlacedMessages chat;
  if (has_field(body, "instructions")) {
    if (!body["instructions"].is_string())
      return wrong("request.type", "instructions", "a text", body["instructions"].type_name());
    chat.add({{"role", "system"}, {"content", body["instructions"].get<std::string>()}}, "instructions");
  }
  if (!has_field(body, "input")) return wrong("request.missing", "input", "a text or a list of items", "none");
  const OrderedJson input(body["input"]);
  if (input.is_string()) {
    chat.add({{"role", "user"}, {"content", input}}, "input");
    return chat;
  }
  if (!input.is_array() || input.empty())
    return wrong("request.type", "input", "a text or a list of items", input.type_name());
  if (input.size() > kMostMessages) {
    return wrong("request.limit", "input", fmt::format("at most {} items", kMostMessages),
                 std::to_string(input.size()));
  }
  ItemReader reader(chat);
  for (std::size_t i = 0; i < input.size(); ++i) MORACLE_TRY(reader.add(input[i], fmt::format("input[{}]", i)));
  if (chat.messages.empty()) return wrong("request.value", "input", "a message", "reasoning without a text");
  return chat;
}

void read_tool_choice(const Json& body, Json& chat) {
  if (!has_field(body, "tool_choice")) return;
  chat["tool_choice"] = body["tool_choice"];
  Json& choice = chat["tool_choice"];
  if (choice.is_object() && choice.value("type", Json()) == "function" && choice.contains("name"))
    choice = Json{{"type", "function"}, {"function", {{"name", choice["name"]}}}};
}

Result<> read_text_options(const Json& body, Json& chat) {
  for (const char* const name : {"text", "reasoning"}) {
    if (has_field(body, name) && !body[name].is_object())
      return wrong("request.type", name, "an object", body[name].type_name());
  }
  if (has_field(body, "reasoning") && has_field(body["reasoning"], "effort"))
    chat["reasoning"] = {{"effort", body["reasoning"]["effort"]}};
  return Ok{};
}

// What replies repeat of the request, as OpenAI's types ask for it.
Json echo_of(const Json& body) {
  Json echoed = {{"instructions", nullptr},
                 {"max_output_tokens", nullptr},
                 {"metadata", Json::object()},
                 {"parallel_tool_calls", true},
                 {"temperature", nullptr},
                 {"top_p", nullptr},
                 {"tool_choice", "auto"},
                 {"tools", Json::array()},
                 {"user", nullptr},
                 {"text", {{"format", {{"type", "text"}}}}},
                 {"reasoning", {{"effort", nullptr}, {"summary", nullptr}}}};
  for (auto& [name, value] : echoed.items()) {
    if (has_field(body, name.c_str())) value = body[name];
  }
  return echoed;
}

// --- replies ---

class ResponsesTranslator final : public ReplyTranslator {
 public:
  explicit ResponsesTranslator(TranslatorOptions options) : options_(std::move(options)) {}

  std::string frames(const ChoiceUpdate& update, const ReplyUsage& /*usage*/) override {
    std::string out;
    if (update.opens) {
      for (const char* const type : {"response.created", "response.in_progress"})
        out += event(type, {{"response", response("in_progress", nullptr)}});
    }
    for (const ReplyEvent& one : update.events) out += frame(one);
    return out;
  }

  std::string last_frames(const ReplyUsage& usage) override {
    const char* const status = cut_ ? "incomplete" : "completed";
    return event(cut_ ? "response.incomplete" : "response.completed",
                 {{"response", response(status, usage_json(usage))}});
  }

  std::string error_frame(const std::string& body) override {
    const Json error = Json::parse(body, nullptr, false).value("error", Json::object());
    return event("error", {{"code", error.value("code", Json())},
                           {"message", error.value("message", Json())},
                           {"param", error.value("param", Json())}});
  }

  Json whole(std::span<const ChoiceUpdate> choices, const ReplyUsage& usage) override {
    for (const ReplyEvent& one : choices.front().events) static_cast<void>(frame(one));
    if (cut_in_call_) output_.erase(output_.size() - 1);  // half of its arguments are no JSON
    return response(cut_ ? "incomplete" : "completed", usage_json(usage));
  }

 private:
  enum class Item : std::uint8_t { none, reasoning, message, call };

  static Json usage_json(const ReplyUsage& usage) {
    return {{"input_tokens", usage.prompt},
            {"input_tokens_details", {{"cached_tokens", usage.cached}}},
            {"output_tokens", usage.completion},
            {"output_tokens_details", {{"reasoning_tokens", usage.reasoning}}},
            {"total_tokens", usage.prompt + usage.completion}};
  }

  [[nodiscard]] Json response(const char* status, Json usage) const {
    Json reply = options_.echoed;
    reply.update({{"id", options_.head.id},
                  {"object", "response"},
                  {"created_at", options_.head.created},
                  {"model", options_.head.model},
                  {"status", status},
                  {"background", false},
                  {"error", nullptr},
                  {"incomplete_details", cut_ ? Json{{"reason", "max_output_tokens"}} : Json(nullptr)},
                  {"output", output_},
                  {"previous_response_id", nullptr},
                  {"store", false},
                  {"truncation", "disabled"},
                  {"usage", std::move(usage)}});
    return reply;
  }

  std::string event(const char* type, Json members) {
    members["type"] = type;
    members["sequence_number"] = sequence_++;
    return fmt::format("event: {}\n", type) + event_of(members);
  }
  // An event of the open item, the last of the output.
  std::string item_event(const char* type, Json members) {
    members["item_id"] = output_.back()["id"];
    members["output_index"] = output_.size() - 1;
    return event(type, std::move(members));
  }
  // The same of its one part.
  std::string part_event(const char* type, Json members) {
    members["content_index"] = 0;
    return item_event(type, std::move(members));
  }

  std::string frame(const ReplyEvent& one) {
    std::string out;
    std::visit(EventVisitor{[&](const TextEvent& text) {
                              out = opened(Item::message);
                              append(text.text);
                              out += part_event("response.output_text.delta",
                                                {{"delta", text.text}, {"logprobs", Json::array()}});
                            },
                            [&](const ReasoningEvent& text) {
                              if (!options_.include_reasoning) return;
                              out = opened(Item::reasoning);
                              append(text.text);
                              out += part_event("response.reasoning_text.delta", {{"delta", text.text}});
                            },
                            [&](const CallStartEvent& call) {
                              out = closed();
                              out += opened_call(call);
                            },
                            [&](const CallArgumentsEvent& piece) {
                              output_.back()["arguments"].get_ref<std::string&>() += piece.text;
                              out = item_event("response.function_call_arguments.delta", {{"delta", piece.text}});
                            },
                            [&](const EndEvent& end) {
                              cut_ = end.reason == EndEvent::Reason::length;
                              cut_in_call_ = end.in_call && open_ == Item::call;
                              out = closed();
                            }},
               one);
    return out;
  }

  void append(const std::string& text) { output_.back()["content"][0]["text"].get_ref<std::string&>() += text; }

  // An id of the reply's own: of its id and the item's place.
  [[nodiscard]] std::string item_id(const char* prefix) const {
    return fmt::format("{}_{}_{}", prefix, options_.head.id, output_.size());
  }

  std::string add(Item kind, Json item) {
    open_ = kind;
    output_.push_back(std::move(item));
    return event("response.output_item.added", {{"output_index", output_.size() - 1}, {"item", output_.back()}});
  }

  // An item of this kind is open: the one that is, or a new one with an empty part.
  std::string opened(Item kind) {
    if (open_ == kind) return {};
    std::string out = closed();
    Json part;
    if (kind == Item::message) {
      out += add(kind, {{"id", item_id("msg")},
                        {"type", "message"},
                        {"role", "assistant"},
                        {"status", "in_progress"},
                        {"content", Json::array()}});
      part = {{"type", "output_text"}, {"text", ""}, {"annotations", Json::array()}, {"logprobs", Json::array()}};
    } else {
      out += add(kind, {{"id", item_id("rs")},
                        {"type", "reasoning"},
                        {"status", "in_progress"},
                        {"summary", Json::array()},
                        {"content", Json::array()}});
      part = {{"type", "reasoning_text"}, {"text", ""}};
    }
    output_.back()["content"].push_back(part);
    return out + part_event("response.content_part.added", {{"part", std::move(part)}});
  }

  std::string opened_call(const CallStartEvent& call) {
    return add(Item::call, {{"id", item_id("fc")},
                            {"type", "function_call"},
                            {"status", "in_progress"},
                            {"call_id", call.id},
                            {"name", call.name},
                            {"arguments", ""}});
  }

  std::string closed() {
    const Item kind = std::exchange(open_, Item::none);
    if (kind == Item::none) return {};
    Json& item = output_.back();
    item["status"] = cut_ ? "incomplete" : "completed";
    std::string out;
    if (kind == Item::call) {
      out = item_event("response.function_call_arguments.done",
                       {{"arguments", item["arguments"]}, {"name", item["name"]}});
    } else {
      const Json part = item["content"][0];
      const bool message = kind == Item::message;
      Json members = {{"text", part["text"]}};
      if (message) members["logprobs"] = Json::array();
      out = part_event(message ? "response.output_text.done" : "response.reasoning_text.done", std::move(members));
      out += part_event("response.content_part.done", {{"part", part}});
    }
    return out + event("response.output_item.done", {{"output_index", output_.size() - 1}, {"item", item}});
  }

  TranslatorOptions options_;
  Json output_ = Json::array();
  Item open_ = Item::none;
  std::int64_t sequence_ = 0;
  bool cut_ = false;          // by max_output_tokens
  bool cut_in_call_ = false;  // the last item is a call that is not whole
};

}  // namespace

std::span<const RequestField> responses_fields() {
  return kFields;
}

Result<ApiRequest> read_responses_request(RequestBody body, bool strict) {
  if (!body.messages.is_null()) body.fields["messages"] = Json(body.messages);
  std::vector<std::string> ignored;  // the chat has them, too
  MORACLE_TRY(check_fields(body.fields, GenerationApi::responses, ignored));
  Json chat = shared_fields(body.fields, GenerationApi::responses);
  if (has_field(body.fields, "max_output_tokens")) chat["max_tokens"] = body.fields["max_output_tokens"];
  if (has_field(body.fields, "parallel_tool_calls")) chat["parallel_tool_calls"] = body.fields["parallel_tool_calls"];
  MORACLE_ASSIGN(OrderedJson tools, chat_tools(body.tools, kTools));
  read_tool_choice(body.fields, chat);
  MORACLE_TRY(read_text_options(body.fields, chat));
  MORACLE_ASSIGN(PlacedMessages conversation, read_input(body.fields));
  MORACLE_ASSIGN(ApiRequest request,
                 read_as_chat({.fields = std::move(chat),
                               .messages = std::move(conversation.messages),
                               .tools = std::move(tools),
                               .formats = format_within(body, "text")},
                              {.fields = kPlaces, .messages = std::move(conversation.places)}, strict));
  request.echoed = echo_of(body.fields);
  return request;
}

std::unique_ptr<ReplyTranslator> make_responses_translator(TranslatorOptions options) {
  return std::make_unique<ResponsesTranslator>(std::move(options));
}

}  // namespace moracle::serve
