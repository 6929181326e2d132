#include "serve/api/anthropic.h"

#include <fmt/format.h>

#include <array>
#include <optional>
#include <utility>
#include <variant>

#include "serve/api/api_error.h"
#include "serve/api/chat/door.h"
#include "serve/api/field_makers.h"
#include "serve/api/json_text.h"

namespace moracle::serve {

namespace {

constexpr auto kHere = static_cast<std::uint8_t>(GenerationApi::anthropic);

// --- fields ---

Json texts_schema() {
  const Json text = {{"type", "string"}};
  const Json blocks = {{"type", "array"}, {"items", {{"type", "object"}, {"required", Json::array({"type"})}}}};
  return {{"oneOf", Json::array({text, blocks})}};
}

Json messages_schema() {
  return {{"type", "array"},
          {"minItems", 1},
          {"maxItems", kMostMessages},
          {"items",
           {{"type", "object"},
            {"required", Json::array({"role", "content"})},
            {"properties",
             {{"role", {{"type", "string"}, {"enum", Json::array({"user", "assistant"})}}},
              {"content", texts_schema()}}}}}};
}

Json stops_schema() {
  return {{"type", "array"}, {"maxItems", kMostStops}, {"items", {{"type", "string"}, {"maxLength", kStopBytes}}}};
}

Json tools_schema() {
  return {{"type", "array"},
          {"items",
           {{"type", "object"},
            {"required", Json::array({"name", "input_schema"})},
            {"properties",
             {{"name", {{"type", "string"}}},
              {"description", {{"type", "string"}}},
              {"input_schema", {{"type", "object"}}}}}}}};
}

Json typed_schema() {
  return {{"type", "object"}, {"required", Json::array({"type"})}};
}

Json object_schema() {
  return {{"type", "object"}};
}

constexpr std::array kFields = {
    shaped("messages", kHere, messages_schema,
           "The conversation: text, tool_use, tool_result and thinking; a last message of the assistant goes on"),
    shaped("system", kHere, texts_schema, "A message of the system, in front of the others"),
    whole("max_tokens", kHere, 1, kInt32, "Most tokens of a reply"),
    shaped("stop_sequences", kHere, stops_schema, "Texts that end a reply in front of them"),
    shaped("tools", kHere, tools_schema, "As tools of /v1/chat/completions; tools that a server runs are refused"),
    shaped("tool_choice", kHere, typed_schema, "auto, any, none, or a tool by its name; disable_parallel_tool_use"),
    shaped(
        "thinking", kHere, typed_schema,
        "disabled: the template's enable_thinking is false and no thinking is shown; budget_tokens changes nothing, as "
        "max_tokens bounds both"),
    shaped("output_config", kHere, object_schema,
           "effort: the template's reasoning_effort; format: a JSON schema of the reply"),
    ignored_field("context_management", "Nothing of a conversation is left out", kHere),
    ignored_field("inference_geo", "It is this machine", kHere),
    ignored_field("speed", "There is one", kHere),
    ignored_field("cache_control", "Prefixes are found by their tokens", kHere),
    refuse("container", "no code of a request is run", "null", kHere),
    refuse("mcp_servers", "no address of a request is opened", "null", kHere),
    refuse("output_format", "it is spelled output_config.format", "null", kHere),
    refuse("fallbacks", "one model is served", "null", kHere),
};

// --- requests ---

constexpr std::array kTexts = {TextPart{"text", "text"}};
constexpr ToolShape kTools = {.type = "custom", .typed = false, .schema = "input_schema", .with_schema = true};
constexpr std::array kPlaces = {
    SamePlace{"stop", "stop_sequences"},
    SamePlace{"reasoning_effort", "output_config.effort"},
    SamePlace{"continue_final_message", "messages"},
    SamePlace{"tools[].function.parameters", "tools[].input_schema"},
    SamePlace{"tools[].function", "tools[]"},
};

// One message of a chat while blocks are added, and those in front of it.
class MessageWriter {
 public:
  explicit MessageWriter(PlacedMessages& chat) : chat_(chat) {}

  Result<> add(const OrderedJson& message, const std::string& where) {
    if (!message.is_object()) return wrong("request.type", where, "an object", message.type_name());
    const OrderedJson& role = member(message, "role");
    if (role != "user" && role != "assistant")
      return wrong("request.value", where + ".role", "user or assistant", role.dump().substr(0, 40));
    const OrderedJson& content = member(message, "content");
    open_ = {{"role", role}, {"content", nullptr}};
    const std::size_t before = chat_.messages.size();
    if (content.is_array()) {
      for (std::size_t i = 0; i < content.size(); ++i)
        MORACLE_TRY(add_block(content[i], role == "user", fmt::format("{}.content[{}]", where, i)));
    } else {
      MORACLE_ASSIGN(const std::string text, joined_texts(content, kTexts, where + ".content"));
      append("content", text);
    }
    const bool empty = open_.size() == 2 && open_["content"].is_null();
    if (empty && chat_.messages.size() > before) return Ok{};  // results of tools alone
    if (empty) open_["content"] = "";
    chat_.add(std::move(open_), where);
    return Ok{};
  }

 private:
  void append(const char* name, const std::string& text) {
    OrderedJson& words = open_[name];
    words = words.is_string() ? words.get<std::string>() + text : text;
  }

  Result<> add_block(const OrderedJson& block, bool user, const std::string& where) {
    if (!block.is_object()) return wrong("request.type", where, "a block", block.type_name());
    const OrderedJson& type = member(block, "type");
    if (type == "text") {
      MORACLE_ASSIGN(const std::string text, text_member(block, "text", where));
      append("content", text);
      return Ok{};
    }
    if (user && type == "tool_result") return add_result(block, where);
    if (!user && type == "tool_use") return add_call(block, where);
    if (!user && type == "thinking") {
      MORACLE_ASSIGN(const std::string text, text_member(block, "thinking", where));
      append("reasoning_content", text);
      return Ok{};
    }
    return unsupported(where + ".type", user ? "text or tool_result" : "text, thinking or tool_use", type,
                       "prompts are text; no image, document or address is read");
  }

  // A tool's message stands in front of the rest of its turn.
  Result<> add_result(const OrderedJson& block, const std::string& where) {
    MORACLE_ASSIGN(const std::string id, text_member(block, "tool_use_id", where));
    MORACLE_ASSIGN(const std::string text, joined_texts(member(block, "content"), kTexts, where + ".content"));
    if (!open_["content"].is_null()) chat_.add(std::exchange(open_, {{"role", "user"}, {"content", nullptr}}), where);
    chat_.add({{"role", "tool"}, {"tool_call_id", id}, {"content", text}}, where);
    return Ok{};
  }

  Result<> add_call(const OrderedJson& block, const std::string& where) {
    MORACLE_ASSIGN(const std::string id, text_member(block, "id", where));
    MORACLE_ASSIGN(const std::string name, text_member(block, "name", where));
    const OrderedJson& input = member(block, "input");
    if (!input.is_object()) return wrong("request.type", where + ".input", "an object", input.type_name());
    open_["tool_calls"].push_back(
        {{"id", id}, {"type", "function"}, {"function", {{"name", name}, {"arguments", input}}}});
    return Ok{};
  }

  PlacedMessages& chat_;
  OrderedJson open_;
};

Result<> read_tool_choice(const Json& body, Json& chat) {
  if (!has_field(body, "tool_choice")) return Ok{};
  const Json& choice = body["tool_choice"];
  const Json type = choice.is_object() ? choice.value("type", Json()) : Json();
  if (type == "auto" || type == "none") {
    chat["tool_choice"] = type;
  } else if (type == "any") {
    chat["tool_choice"] = "required";
  } else if (type == "tool" && has_field(choice, "name")) {
    chat["tool_choice"] = {{"type", "function"}, {"function", {{"name", choice["name"]}}}};
  } else {
    return wrong("request.value", "tool_choice", "a type: auto, any, none, or tool with a name",
                 choice.dump().substr(0, kShownNameBytes));
  }
  if (has_field(choice, "disable_parallel_tool_use") && choice["disable_parallel_tool_use"] == true)
    chat["parallel_tool_calls"] = false;
  return Ok{};
}

// "thinking" and "output_config" as fields of a chat.
Result<> read_thinking(const Json& body, Json& chat) {
  if (has_field(body, "thinking")) {
    const Json& thinking = body["thinking"];
    const Json type = thinking.is_object() ? thinking.value("type", Json()) : Json();
    if (type != "enabled" && type != "disabled" && type != "adaptive") {
      return wrong("request.value", "thinking.type", "enabled, adaptive or disabled",
                   thinking.dump().substr(0, kShownNameBytes));
    }
    Json& variables = chat["chat_template_kwargs"];
    if (variables.is_null()) variables = Json::object();
    if (variables.is_object()) variables["enable_thinking"] = type != "disabled";
    chat["include_reasoning"] = type != "disabled";
  }
  if (!has_field(body, "output_config")) return Ok{};
  const Json& config = body["output_config"];
  if (!config.is_object()) return wrong("request.type", "output_config", "an object", config.type_name());
  for (const auto& [name, value] : config.items()) {
    if (value.is_null()) continue;
    if (name == "effort") {
      chat["reasoning_effort"] = value;
    } else if (name != "format") {  // format_within() has it
      return unsupported("output_config." + name.substr(0, kNameBytes), "effort and format", OrderedJson(value),
                         "leave it out");
    }
  }
  return Ok{};
}

Result<PlacedMessages> read_conversation(const RequestBody& body, Json& chat) {
  PlacedMessages conversation;
  if (has_field(body.fields, "system")) {
    MORACLE_ASSIGN(const std::string text, joined_texts(OrderedJson(body.fields["system"]), kTexts, "system"));
    conversation.add({{"role", "system"}, {"content", text}}, "system");
  }
  if (!body.messages.is_array() || body.messages.empty())
    return wrong("request.missing", "messages", "a list of at least one message", body.messages.type_name());
  if (body.messages.size() > kMostMessages) {
    return wrong("request.limit", "messages", fmt::format("at most {} messages", kMostMessages),
                 std::to_string(body.messages.size()));
  }
  MessageWriter writer(conversation);
  for (std::size_t i = 0; i < body.messages.size(); ++i)
    MORACLE_TRY(writer.add(body.messages[i], fmt::format("messages[{}]", i)));
  const OrderedJson& last = conversation.messages.back();
  if (last["role"] == "assistant" && last["content"].is_string() && !last.contains("tool_calls")) {
    chat["continue_final_message"] = true;
    chat["add_generation_prompt"] = false;
  }
  return conversation;
}

// --- replies ---

Json anthropic_usage(const ReplyUsage& usage) {
  return {{"input_tokens", usage.prompt - usage.cached},
          {"cache_creation_input_tokens", 0},
          {"cache_read_input_tokens", usage.cached},
          {"output_tokens", usage.completion}};
}

std::string named_event(const Json& json) {
  return "event: " + json["type"].get<std::string>() + "\n" + event_of(json);
}

class AnthropicTranslator final : public ReplyTranslator {
 public:
  explicit AnthropicTranslator(TranslatorOptions options) : options_(std::move(options)) {}

  std::string frames(const ChoiceUpdate& update, const ReplyUsage& usage) override {
    std::string out;
    if (update.opens) {
      out += named_event({{"type", "message_start"}, {"message", message(Json::array(), nullptr, usage)}});
      out += named_event({{"type", "ping"}});
    }
    for (const ReplyEvent& event : update.events) out += frame(event);
    return out;
  }

  std::string last_frames(const ReplyUsage& usage) override {
    return named_event({{"type", "message_delta"},
                        {"delta", {{"stop_reason", stop_reason_}, {"stop_sequence", stop_sequence_}}},
                        {"usage", anthropic_usage(usage)}}) +
           named_event({{"type", "message_stop"}});
  }

  std::string error_frame(const std::string& body) override { return "event: error\ndata: " + body + "\n\n"; }

  Json whole(std::span<const ChoiceUpdate> choices, const ReplyUsage& usage) override {
    Json blocks = Json::array();
    for (const ReplyEvent& event : choices.front().events) add(event, blocks);
    if (cut_in_call_) blocks.erase(blocks.size() - 1);  // half of its arguments are no JSON
    for (Json& block : blocks) {
      if (block["type"] == "tool_use") {
        block["input"] = Json::parse(block["input"].get_ref<const std::string&>(), nullptr, false);
        if (!block["input"].is_object()) block["input"] = Json::object();
      }
    }
    return message(std::move(blocks), stop_reason_, usage);
  }

 private:
  enum class Block : std::uint8_t { none, thinking, text, tool_use };

  [[nodiscard]] Json message(Json content, const Json& stop_reason, const ReplyUsage& usage) const {
    return {{"id", options_.head.id},
            {"type", "message"},
            {"role", "assistant"},
            {"model", options_.head.model},
            {"content", std::move(content)},
            {"stop_reason", stop_reason},
            {"stop_sequence", stop_sequence_},
            {"usage", anthropic_usage(usage)}};
  }

  void end(const EndEvent& event) {
    cut_in_call_ = event.in_call && calls_;
    const auto* const text = std::get_if<std::string>(&event.by);
    if (text != nullptr) stop_sequence_ = *text;
    stop_reason_ = event.reason == EndEvent::Reason::length ? "max_tokens"
                   : text != nullptr                        ? "stop_sequence"
                   : calls_                                 ? "tool_use"
                                                            : "end_turn";
  }

  // Blocks of a whole reply; the input of a call is text until the end.
  void add(const ReplyEvent& event, Json& blocks) {
    const auto append = [&](const char* type, const std::string& text) {
      if (blocks.empty() || blocks.back()["type"] != type) blocks.push_back({{"type", type}, {type, ""}});
      if (blocks.back()["type"] == "thinking") blocks.back()["signature"] = "";
      blocks.back()[type].get_ref<std::string&>() += text;
    };
    std::visit(
        EventVisitor{[&](const TextEvent& one) { append("text", one.text); },
                     [&](const ReasoningEvent& one) {
                       if (options_.include_reasoning) append("thinking", one.text);
                     },
                     [&](const CallStartEvent& one) {
                       calls_ = true;
                       blocks.push_back({{"type", "tool_use"}, {"id", one.id}, {"name", one.name}, {"input", ""}});
                     },
                     [&](const CallArgumentsEvent& one) { blocks.back()["input"].get_ref<std::string&>() += one.text; },
                     [&](const EndEvent& one) { end(one); }},
        event);
  }

  std::string frame(const ReplyEvent& event) {
    std::string out;
    std::visit(
        EventVisitor{[&](const TextEvent& one) {
                       out = opened(Block::text, {{"type", "text"}, {"text", ""}});
                       out += delta({{"type", "text_delta"}, {"text", one.text}});
                     },
                     [&](const ReasoningEvent& one) {
                       if (!options_.include_reasoning) return;
                       out = opened(Block::thinking, {{"type", "thinking"}, {"thinking", ""}, {"signature", ""}});
                       out += delta({{"type", "thinking_delta"}, {"thinking", one.text}});
                     },
                     [&](const CallStartEvent& one) {
                       calls_ = true;
                       out = closed();
                       out += opened(
                           Block::tool_use,
                           {{"type", "tool_use"}, {"id", one.id}, {"name", one.name}, {"input", Json::object()}});
                     },
                     [&](const CallArgumentsEvent& one) {
                       out = delta({{"type", "input_json_delta"}, {"partial_json", one.text}});
                     },
                     [&](const EndEvent& one) {
                       end(one);
                       out = closed();
                     }},
        event);
    return out;
  }

  // A block of this kind is open: the one that is, or a new one.
  std::string opened(Block kind, Json block) {
    if (open_ == kind) return {};
    std::string out = closed();
    open_ = kind;
    out += named_event({{"type", "content_block_start"}, {"index", index_}, {"content_block", std::move(block)}});
    return out;
  }
  std::string closed() {
    if (std::exchange(open_, Block::none) == Block::none) return {};
    return named_event({{"type", "content_block_stop"}, {"index", index_++}});
  }
  [[nodiscard]] std::string delta(Json piece) const {
    return named_event({{"type", "content_block_delta"}, {"index", index_}, {"delta", std::move(piece)}});
  }

  TranslatorOptions options_;
  Block open_ = Block::none;
  std::int64_t index_ = 0;
  bool calls_ = false;
  bool cut_in_call_ = false;
  Json stop_reason_, stop_sequence_;
};

std::string_view anthropic_type(int status) {
  switch (status) {
    case 401:
      return "authentication_error";
    case 403:
      return "permission_error";
    case 404:
      return "not_found_error";
    case 413:
      return "request_too_large";
    case 429:
      return "rate_limit_error";
    case 503:
      return "overloaded_error";
    default:
      return status < 500 ? "invalid_request_error" : "api_error";
  }
}

}  // namespace

std::span<const RequestField> anthropic_fields() {
  return kFields;
}

Result<ApiRequest> read_anthropic_request(RequestBody body, bool strict) {
  std::vector<std::string> ignored;  // the chat has them, too
  MORACLE_TRY(check_fields(body.fields, GenerationApi::anthropic, ignored));
  Json chat = shared_fields(body.fields, GenerationApi::anthropic);
  if (has_field(body.fields, "max_tokens")) chat["max_tokens"] = body.fields["max_tokens"];
  if (has_field(body.fields, "stop_sequences")) {
    if (!body.fields["stop_sequences"].is_array()) {
      return wrong("request.type", "stop_sequences", "a list of texts", body.fields["stop_sequences"].type_name());
    }
    chat["stop"] = body.fields["stop_sequences"];
  }
  MORACLE_ASSIGN(OrderedJson tools, chat_tools(body.tools, kTools));
  MORACLE_TRY(read_tool_choice(body.fields, chat));
  MORACLE_TRY(read_thinking(body.fields, chat));
  MORACLE_ASSIGN(PlacedMessages conversation, read_conversation(body, chat));
  MORACLE_ASSIGN(ApiRequest request,
                 read_as_chat({.fields = std::move(chat),
                               .messages = std::move(conversation.messages),
                               .tools = std::move(tools),
                               .formats = format_within(body, "output_config")},
                              {.fields = kPlaces, .messages = std::move(conversation.places)}, strict));
  request.continuous_usage = true;  // the first event has the prompt's
  return request;
}

std::unique_ptr<ReplyTranslator> make_anthropic_translator(TranslatorOptions options) {
  return std::make_unique<AnthropicTranslator>(std::move(options));
}

std::string anthropic_error_body(const ApiError& error) {
  Json inner = {{"type", anthropic_type(error.status)}, {"message", error.message}};
  if (!error.param.empty()) inner["param"] = error.param;
  return dump({{"type", "error"}, {"error", std::move(inner)}});
}

}  // namespace moracle::serve
