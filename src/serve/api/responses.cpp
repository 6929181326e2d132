#include "serve/api/responses.h"

#include <fmt/format.h>

#include <array>
#include <utility>
#include <variant>

#include "serve/api/api_error.h"
#include "serve/api/json_text.h"

namespace moracle::serve {

namespace {

using enum FieldUse;
using enum FieldType;

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

constexpr RequestField shaped(std::string_view name, Json (*schema)(), std::string_view words) {
  return {.name = name, .use = honoured, .endpoints = kHere, .type = structure, .text = words, .schema = schema};
}
constexpr RequestField unused(std::string_view name, std::string_view why) {
  return {.name = name, .use = inert, .endpoints = kHere, .type = structure, .text = why};
}
constexpr RequestField refuse(std::string_view name, std::string_view instead, std::string_view off = "null") {
  return {.name = name, .use = refused, .endpoints = kHere, .type = structure, .text = instead, .off = off};
}

constexpr std::array kFields = {
    shaped("input", input_schema,
           "A text, or items: messages, reasoning, function_call and function_call_output; texts alone"),
    shaped("instructions", text_schema, "A message of the system, in front of the input"),
    RequestField{.name = "max_output_tokens",
                 .use = honoured,
                 .endpoints = kHere,
                 .type = integer,
                 .text = "Most tokens of a reply",
                 .low = 1,
                 .high = 2147483647.0},
    shaped("tools", tools_schema, "As tools of /v1/chat/completions, of type function"),
    shaped("tool_choice", choice_schema, "none, auto, required, or a function by its name"),
    RequestField{.name = "parallel_tool_calls",
                 .use = honoured,
                 .endpoints = kHere,
                 .type = boolean,
                 .text = "As of /v1/chat/completions"},
    shaped("text", object_schema, "format: as response_format of /v1/chat/completions; verbosity changes nothing"),
    shaped("reasoning", object_schema,
           "effort: the template's reasoning_effort; summary changes nothing, as all of it is returned"),
    unused("include", "Replies have all that they can have"),
    unused("stream_options", "Events are not padded"),
    unused("client_metadata", "Nothing is stored"),
    refuse("store", "nothing is stored: store must be false", "false"),
    refuse("previous_response_id", "nothing is stored: send the whole conversation as input"),
    refuse("conversation", "nothing is stored: send the whole conversation as input"),
    refuse("background", "a reply is made while its client waits", "false"),
    refuse("prompt", "nothing is stored: send instructions and input"),
    refuse("truncation", "shorten the input", "\"disabled\""),
    refuse("max_tool_calls", "no tool is run by this server"),
    refuse("top_logprobs", "ask /v1/chat/completions for log-probabilities", "0"),
    refuse("context_management", "shorten the input"),
};

// --- requests ---

Json member(const Json& object, const char* name) {
  const auto found = object.find(name);
  return found == object.end() ? Json() : *found;
}

Result<std::string> text_of(const Json& item, const char* name, const std::string& where) {
  const auto text = item.find(name);
  if (text != item.end() && text->is_string()) return text->get<std::string>();
  return wrong("request.type", where + "." + name, "a text", text == item.end() ? "none" : text->type_name());
}

// The joined texts of a text or of parts.
Result<std::string> texts_of(const Json& content, const std::string& where) {
  if (content.is_null()) return std::string();
  if (content.is_string()) return content.get<std::string>();
  if (!content.is_array()) return wrong("request.type", where, "a text or a list of parts", content.type_name());
  std::string text;
  for (std::size_t i = 0; i < content.size(); ++i) {
    const std::string place = fmt::format("{}[{}]", where, i);
    if (!content[i].is_object()) return wrong("request.type", place, "a part", content[i].type_name());
    const Json type = member(content[i], "type");
    const bool refusal = type == "refusal";
    const bool texts = type == "input_text" || type == "output_text" || type == "text" || type == "reasoning_text" ||
                       type == "summary_text";
    if (!texts && !refusal) {
      return unsupported(place + ".type", "input_text or output_text", type,
                         "prompts are text; no image, sound, file or address is read");
    }
    MORACLE_ASSIGN(const std::string piece, text_of(content[i], refusal ? "refusal" : "text", place));
    text += piece;
  }
  return text;
}

// Messages of a chat made of items. What an assistant's turn is made of, reasoning, text and calls, are items of their
// own here and one message there.
class ItemReader {
 public:
  explicit ItemReader(OrderedJson& messages) : messages_(messages) {}

  Result<> add(const Json& item, const std::string& where) {
    if (!item.is_object()) return wrong("request.type", where, "an item", item.type_name());
    const Json type = member(item, "type");
    if (type == "function_call") return add_call(item, where);
    if (type == "function_call_output") {
      MORACLE_ASSIGN(const std::string id, text_of(item, "call_id", where));
      MORACLE_ASSIGN(const std::string text, texts_of(member(item, "output"), where + ".output"));
      messages_.push_back({{"role", "tool"}, {"tool_call_id", id}, {"content", text}});
      return Ok{};
    }
    if (type == "reasoning") return add_reasoning(item, where);
    if (type == "message" || type.is_null()) return add_message(item, where);
    return unsupported(where + ".type", "message, reasoning, function_call or function_call_output", type,
                       "nothing is stored, and no tool is run by this server");
  }

 private:
  // The assistant's message that goes on: the last, where it lacks a text or `late`, what may follow one.
  OrderedJson& turn(bool late) {
    const bool goes_on = !messages_.empty() && messages_.back()["role"] == "assistant" &&
                         (late || (messages_.back()["content"].is_null() && !messages_.back().contains("tool_calls")));
    if (!goes_on) messages_.push_back({{"role", "assistant"}, {"content", nullptr}});
    return messages_.back();
  }

  Result<> add_message(const Json& item, const std::string& where) {
    const Json role = member(item, "role");
    if (role != "user" && role != "assistant" && role != "system" && role != "developer")
      return wrong("request.value", where + ".role", "user, assistant, system or developer", role.dump().substr(0, 40));
    MORACLE_ASSIGN(const std::string text, texts_of(member(item, "content"), where + ".content"));
    if (role == "assistant") {
      turn(false)["content"] = text;
    } else {
      messages_.push_back({{"role", OrderedJson(role)}, {"content", text}});
    }
    return Ok{};
  }

  Result<> add_call(const Json& item, const std::string& where) {
    MORACLE_ASSIGN(const std::string id, text_of(item, "call_id", where));
    MORACLE_ASSIGN(const std::string name, text_of(item, "name", where));
    MORACLE_ASSIGN(const std::string arguments, text_of(item, "arguments", where));
    turn(true)["tool_calls"].push_back(
        {{"id", id}, {"type", "function"}, {"function", {{"name", name}, {"arguments", arguments}}}});
    return Ok{};
  }

  // Its text where it has one, else the summary; one that is encrypted says nothing to this model.
  Result<> add_reasoning(const Json& item, const std::string& where) {
    MORACLE_ASSIGN(std::string text, texts_of(member(item, "content"), where + ".content"));
    MORACLE_ASSIGN(const std::string summary, texts_of(member(item, "summary"), where + ".summary"));
    if (text.empty()) text = summary;
    if (!text.empty()) turn(false)["reasoning_content"] = text;
    return Ok{};
  }

  OrderedJson& messages_;
};

Result<OrderedJson> read_input(const Json& body) {
  OrderedJson messages = OrderedJson::array();
  if (has_field(body, "instructions")) {
    if (!body["instructions"].is_string())
      return wrong("request.type", "instructions", "a text", body["instructions"].type_name());
    messages.push_back({{"role", "system"}, {"content", body["instructions"].get<std::string>()}});
  }
  if (!has_field(body, "input")) return wrong("request.missing", "input", "a text or a list of items", "none");
  const Json& input = body["input"];
  if (input.is_string()) {
    messages.push_back({{"role", "user"}, {"content", input.get<std::string>()}});
    return messages;
  }
  if (!input.is_array() || input.empty())
    return wrong("request.type", "input", "a text or a list of items", input.type_name());
  if (input.size() > kMostMessages) {
    return wrong("request.limit", "input", fmt::format("at most {} items", kMostMessages),
                 std::to_string(input.size()));
  }
  ItemReader reader(messages);
  for (std::size_t i = 0; i < input.size(); ++i) MORACLE_TRY(reader.add(input[i], fmt::format("input[{}]", i)));
  if (messages.empty()) return wrong("request.value", "input", "a message", "reasoning without a text");
  return messages;
}

Result<> read_tools(const Json& body, Json& chat) {
  if (has_field(body, "tools")) {
    if (!body["tools"].is_array()) return wrong("request.type", "tools", "a list of tools", body["tools"].type_name());
    chat["tools"] = Json::array();
    for (std::size_t i = 0; i < body["tools"].size(); ++i) {
      const std::string where = fmt::format("tools[{}]", i);
      Json function = body["tools"][i];
      if (!function.is_object()) return wrong("request.type", where, "an object", function.type_name());
      if (const Json type = member(function, "type"); type != "function")
        return unsupported(where + ".type", "function", type, "no tool is run by this server");
      function.erase("type");
      chat["tools"].push_back({{"type", "function"}, {"function", std::move(function)}});
    }
  }
  if (!has_field(body, "tool_choice")) return Ok{};
  chat["tool_choice"] = body["tool_choice"];
  Json& choice = chat["tool_choice"];
  if (choice.is_object() && choice.value("type", Json()) == "function" && choice.contains("name"))
    choice = Json{{"type", "function"}, {"function", {{"name", choice["name"]}}}};
  return Ok{};
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

// text.format as a chat's response_format, with the schema's members in their order.
OrderedJson read_text_format(const RequestBody& body) {
  OrderedJson formats = OrderedJson::object();
  const auto text = body.formats.find("text");
  if (text == body.formats.end() || !text->is_object() || !text->contains("format")) return formats;
  OrderedJson format = text->at("format");
  if (format.is_object() && format.value("type", OrderedJson()) == "json_schema") {
    format.erase("type");
    OrderedJson nested = OrderedJson::object();
    nested["type"] = "json_schema";
    nested["json_schema"] = std::move(format);
    format = std::move(nested);
  }
  formats["response_format"] = std::move(format);
  return formats;
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
    return event(
        "error",
        {{"code", member(error, "code")}, {"message", member(error, "message")}, {"param", member(error, "param")}});
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
  Json chat = Json::object();
  for (const auto& [name, value] : body.fields.items()) {
    const RequestField* const field = find_field(name, GenerationApi::responses);
    const RequestField* const same = find_field(name, GenerationApi::chat);
    if ((field == nullptr && same == nullptr) || (field != nullptr && field == same)) chat[name] = value;
  }
  if (has_field(body.fields, "max_output_tokens")) chat["max_tokens"] = body.fields["max_output_tokens"];
  if (has_field(body.fields, "parallel_tool_calls")) chat["parallel_tool_calls"] = body.fields["parallel_tool_calls"];
  MORACLE_TRY(read_tools(body.fields, chat));
  MORACLE_TRY(read_text_options(body.fields, chat));
  MORACLE_ASSIGN(OrderedJson messages, read_input(body.fields));
  OrderedJson formats = read_text_format(body);
  if (formats.contains("response_format")) chat["response_format"] = Json(formats["response_format"]);
  auto request =
      read_request(GenerationApi::chat,
                   {.fields = std::move(chat), .messages = std::move(messages), .formats = std::move(formats)}, strict);
  if (!request.ok()) {
    Error error = request.error();
    for (const auto& [chats, here] : {std::pair<std::string_view, std::string_view>{"response_format", "text.format"},
                                      {"max_tokens", "max_output_tokens"}}) {
      if (error.where.starts_with(chats)) error.where.replace(0, chats.size(), here);
    }
    return error;
  }
  request->prompt_field = "input";
  request->echoed = echo_of(body.fields);
  return request;
}

std::unique_ptr<ReplyTranslator> make_responses_translator(TranslatorOptions options) {
  return std::make_unique<ResponsesTranslator>(std::move(options));
}

}  // namespace moracle::serve
