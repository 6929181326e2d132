// /v1/messages and /v1/responses: the same chats and events as of /v1/chat/completions, in other words.
#include <gtest/gtest.h>

#include <array>
#include <string>
#include <utility>
#include <vector>

#include "serve/api/anthropic.h"
#include "serve/api/chat/places.h"
#include "serve/api/responses.h"
#include "support/serve_fixture.h"

namespace moracle::serve {
namespace {

using test::HttpAnswer;
using test::post_text;

Result<ApiRequest> read(Result<ApiRequest> (*reader)(RequestBody, bool), const std::string& body) {
  MORACLE_ASSIGN(RequestBody parsed, parse_body(body));
  return reader(std::move(parsed), false);
}

OrderedJson messages_of(const Result<ApiRequest>& request) {
  return request.ok() ? request->chat.messages : OrderedJson(request.error().message());
}

// "code place" of the error; empty: none.
std::string refusal(const Result<ApiRequest>& request) {
  return request.ok() ? "" : request.error().code + " " + request.error().where;
}

// Names and data of a stream's events.
std::vector<std::pair<std::string, Json>> events_of(const std::string& body) {
  std::vector<std::pair<std::string, Json>> events;
  for (std::size_t at = 0; at < body.size();) {
    const std::size_t end = body.find("\n\n", at);
    const std::string event = body.substr(at, end - at);
    at = end == std::string::npos ? body.size() : end + 2;
    const std::size_t data = event.find("\ndata: ");
    if (!event.starts_with("event: ") || data == std::string::npos) continue;
    events.emplace_back(event.substr(7, data - 7), Json::parse(event.substr(data + 7), nullptr, false));
  }
  return events;
}

std::string names_of(const std::vector<std::pair<std::string, Json>>& events) {
  std::string names;
  for (const auto& [name, data] : events) {
    EXPECT_EQ(data["type"], name);
    names += (names.empty() ? "" : " ") + name;
  }
  return names;
}

const std::vector<ReplyEvent> kEvents = {ReasoningEvent{"hm"},
                                         TextEvent{"let "},
                                         TextEvent{"me"},
                                         CallStartEvent{0, "call_1", "add"},
                                         CallArgumentsEvent{0, R"({"a": )"},
                                         CallArgumentsEvent{0, "1}"},
                                         CallStartEvent{1, "call_2", "stop"},
                                         EndEvent{}};
constexpr ReplyUsage kUsage = {.prompt = 10, .completion = 7, .cached = 4, .reasoning = 1};

TranslatorOptions options() {
  return {.head = {.id = "x_1", .model = "m", .fingerprint = "fp", .created = 5, .seed = 0}, .echoed = Json::object()};
}

ChoiceUpdate update_of(std::vector<ReplyEvent> events) {
  return {.index = 0, .events = std::move(events), .opens = true};
}

// --- requests ---

TEST(AnthropicRequest, BlocksBecomeMessages) {
  const auto request = read(read_anthropic_request, R"({"max_tokens": 5, "system": [{"type": "text", "text": "be",
      "cache_control": {"type": "ephemeral"}}, {"type": "text", "text": " kind"}], "messages": [
      {"role": "user", "content": "hi"},
      {"role": "assistant", "content": [{"type": "thinking", "thinking": "hm", "signature": ""},
        {"type": "text", "text": "yes"}, {"type": "tool_use", "id": "t1", "name": "f", "input": {"b": 1, "a": 2}}]},
      {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "t1", "content": [
        {"type": "text", "text": "42"}]}, {"type": "text", "text": "go on"}]}], "stop_sequences": ["x"], "top_k": 3})");
  EXPECT_EQ(messages_of(request), OrderedJson::parse(R"([{"role": "system", "content": "be kind"},
      {"role": "user", "content": "hi"},
      {"role": "assistant", "content": "yes", "reasoning_content": "hm", "tool_calls": [
        {"id": "t1", "type": "function", "function": {"name": "f", "arguments": {"b": 1, "a": 2}}}]},
      {"role": "tool", "tool_call_id": "t1", "content": "42"}, {"role": "user", "content": "go on"}])"));
  ASSERT_TRUE(request.ok());
  EXPECT_EQ(request->stop, std::vector<std::string>{"x"});
  EXPECT_EQ(request->max_tokens, 5);
  EXPECT_TRUE(request->chat.add_generation_prompt);
}

TEST(AnthropicRequest, ALastMessageOfTheAssistantGoesOn) {
  const auto request = read(read_anthropic_request, R"({"messages": [{"role": "user", "content": "hi"},
      {"role": "assistant", "content": "Well"}]})");
  ASSERT_TRUE(request.ok()) << request.error().message();
  EXPECT_TRUE(request->continue_final_message);
  EXPECT_FALSE(request->chat.add_generation_prompt);
}

// A format holds the reply as a chat's does, and its faults have the place that the client wrote.
TEST(DoorRequests, FormatsHoldReplies) {
  const auto message = read(read_anthropic_request, R"({"messages": [{"role": "user", "content": "hi"}],
      "output_config": {"format": {"type": "json_schema", "schema": {"type": "boolean"}}}})");
  ASSERT_TRUE(message.ok()) << message.error().message();
  ASSERT_TRUE(message->output.has_value());
  EXPECT_EQ(message->output->place, "output_config.format.schema");
  const auto response = read(read_responses_request, R"({"input": "hi", "text": {"verbosity": "low",
      "format": {"type": "json_schema", "name": "x", "schema": {"type": "boolean"}}}})");
  ASSERT_TRUE(response.ok()) << response.error().message();
  ASSERT_TRUE(response->output.has_value());
  EXPECT_EQ(response->output->place, "text.format.schema");
  const auto plain = read(read_responses_request, R"({"input": "hi", "text": {"format": {"type": "text"}}})");
  ASSERT_TRUE(plain.ok()) << plain.error().message();
  EXPECT_FALSE(plain->output.has_value());
  EXPECT_EQ(refusal(read(read_responses_request, R"({"input": "hi", "text": {"format": {"type": "xml"}}})")),
            "request.unsupported text.format.type");
  EXPECT_EQ(refusal(read(read_responses_request, R"({"input": "hi", "text": {"format": {"type": "json_schema"}}})")),
            "request.missing text.format.schema");
  EXPECT_EQ(refusal(read(read_anthropic_request, R"({"messages": [{"role": "user", "content": "hi"}],
      "output_config": {"format": {"type": "xml"}}})")),
            "request.unsupported output_config.format.type");
}

// Templates render schemas, so that their members keep the order that the client wrote.
TEST(DoorRequests, ToolsAreTheChats) {
  const std::string schema = R"({"type":"object","properties":{"b":{"type":"string"},"a":{"type":"integer"}}})";
  const OrderedJson wanted = OrderedJson::parse(
      R"([{"type": "function", "function": {"name": "f", "description": "d", "parameters": )" + schema + "}}]");
  const auto message = read(read_anthropic_request, R"({"messages": [{"role": "user", "content": "hi"}], "tools": [
      {"name": "f", "description": "d", "cache_control": {"type": "ephemeral"}, "input_schema": )" +
                                                        schema + "}]}");
  ASSERT_TRUE(message.ok()) << message.error().message();
  EXPECT_EQ(message->chat.tools.dump(), wanted.dump());
  const auto response = read(read_responses_request, R"({"input": "hi", "tools": [
      {"type": "function", "name": "f", "description": "d", "strict": true, "parameters": )" +
                                                         schema + "}]}");
  ASSERT_TRUE(response.ok()) << response.error().message();
  EXPECT_EQ(response->chat.tools.dump(), wanted.dump());
}

TEST(DoorRequests, FaultsOfChatsHaveTheirOwnPlaces) {
  const auto message = [](const std::string& more) {
    return refusal(read(read_anthropic_request, R"({"messages": [{"role": "user", "content": "hi"}], )" + more + "}"));
  };
  const std::string schema = R"("input_schema": {"type": "object"}})";
  EXPECT_EQ(message(R"("tools": [{"name": "f g", )" + schema + "]"), "request.value tools[0].name");
  EXPECT_EQ(message(R"("tools": [{)" + schema + "]"), "request.missing tools[0].name");
  EXPECT_EQ(message(R"("tools": [{"name": "f", "input_schema": []}])"), "request.type tools[0].input_schema");
  EXPECT_EQ(message(R"("tools": [{"name": "f", )" + schema + R"(, {"name": "f", )" + schema + "]"),
            "request.value tools[1].name");
  EXPECT_EQ(message(R"("stop_sequences": [1])"), "request.type stop_sequences");
  EXPECT_EQ(message(R"("output_config": {"effort": 3})"), "request.type output_config.effort");
  const auto response = [](const std::string& more) {
    return refusal(read(read_responses_request, R"({"input": "hi", )" + more + "}"));
  };
  EXPECT_EQ(response(R"("tools": [{"type": "function", "name": "f g"}])"), "request.value tools[0].name");
  EXPECT_EQ(response(R"("tools": [{"type": "function", "name": "f", "parameters": 1}])"),
            "request.type tools[0].parameters");
}

// Results without a call are mended, and said of by the places that the client wrote.
TEST(DoorRequests, MendedPlacesAreTheClients) {
  const auto message = read(read_anthropic_request, R"({"system": "s", "messages": [{"role": "user", "content": [
      {"type": "text", "text": "a"}, {"type": "tool_result", "tool_use_id": "none", "content": "42"}]}]})");
  ASSERT_TRUE(message.ok()) << message.error().message();
  EXPECT_EQ(message->changed, std::vector<std::string>{"messages[0].content[1]"});
  const auto response = read(read_responses_request, R"({"instructions": "s", "input": [
      {"role": "user", "content": "a"}, {"type": "function_call_output", "call_id": "none", "output": "42"}]})");
  ASSERT_TRUE(response.ok()) << response.error().message();
  EXPECT_EQ(response->changed, std::vector<std::string>{"input[1]"});
}

TEST(ChatPlaces, NamesKeepIndicesAndWhatFollows) {
  constexpr std::array kFields = {SamePlace{"stop", "stop_sequences"},
                                  SamePlace{"tools[].function.parameters", "tools[].input_schema"},
                                  SamePlace{"tools[].function", "tools[]"}};
  const ChatPlaces places{.fields = kFields, .messages = {"system", "messages[0].content[3]"}};
  EXPECT_EQ(places.here("stop"), "stop_sequences");
  EXPECT_EQ(places.here("stop[2]"), "stop_sequences[2]");
  EXPECT_EQ(places.here("stop_token_ids"), "stop_token_ids");
  EXPECT_EQ(places.here("tools[12].function.parameters/properties/a"), "tools[12].input_schema/properties/a");
  EXPECT_EQ(places.here("tools[1].function.name"), "tools[1].name");
  EXPECT_EQ(places.here("tools[1"), "tools[1");
  EXPECT_EQ(places.here("tools[0].type"), "tools[0].type");
  EXPECT_EQ(places.here("messages[1].tool_call_id"), "messages[0].content[3]");
  EXPECT_EQ(places.here("messages[2]"), "messages[2]");
  EXPECT_EQ(ChatPlaces{}.here("tools[1].function.name"), "tools[1].function.name");
}

TEST(AnthropicRequest, ThinkingIsTheTemplates) {
  const auto off = read(read_anthropic_request, R"({"messages": [{"role": "user", "content": "hi"}],
      "thinking": {"type": "disabled"}, "output_config": {"effort": "low"}})");
  ASSERT_TRUE(off.ok()) << off.error().message();
  EXPECT_EQ(off->chat.variables["enable_thinking"], false);
  EXPECT_EQ(off->chat.variables["reasoning_effort"], "low");
  EXPECT_FALSE(off->include_reasoning);
}

TEST(AnthropicRequest, RefusesWithThePlace) {
  const auto asked = [](const std::string& message, const std::string& more = "") {
    return refusal(read(read_anthropic_request, R"({"messages": [)" + message + "]" + more + "}"));
  };
  const std::string hi = R"({"role": "user", "content": "hi"})";
  EXPECT_EQ(asked(hi), "");
  EXPECT_EQ(asked(R"({"role": "user", "content": [{"type": "text", "text": "see"}, {"type": "image", "source": {}}]})"),
            "request.unsupported messages[0].content[1].type");
  EXPECT_EQ(asked(R"({"role": "user", "content": [{"type": "tool_result", "tool_use_id": "a", "content": [
                {"type": "image"}]}]})"),
            "request.unsupported messages[0].content[0].content[0].type");
  EXPECT_EQ(asked(R"({"role": "tool", "content": "x"})"), "request.value messages[0].role");
  EXPECT_EQ(asked(R"({"role": "assistant", "content": [{"type": "tool_use", "id": "a", "name": "f", "input": 1}]})"),
            "request.type messages[0].content[0].input");
  EXPECT_EQ(refusal(read(read_anthropic_request, R"({"max_tokens": 5})")), "request.missing messages");
  EXPECT_EQ(asked(hi, R"(, "n": 2)"), "request.unsupported n");
  EXPECT_EQ(asked(hi, R"(, "mcp_servers": [{"url": "http://x"}])"), "request.unsupported mcp_servers");
  EXPECT_EQ(asked(hi, R"(, "tools": [{"type": "web_search_20250305", "name": "web_search"}])"),
            "request.unsupported tools[0].type");
  EXPECT_EQ(asked(hi, R"(, "tools": [{"name": "f"}])"), "request.missing tools[0].input_schema");
  EXPECT_EQ(asked(hi, R"(, "tool_choice": "auto")"), "request.value tool_choice");
  EXPECT_EQ(asked(hi, R"(, "stop_sequences": [1])"), "request.type stop_sequences");
  EXPECT_EQ(asked(hi, R"(, "max_tokens": 0)"), "request.value max_tokens");
  EXPECT_EQ(asked(hi, R"(, "metadata": {"user_id": "u"}, "context_management": {"edits": []}, "later": 1)"), "");
}

TEST(ResponsesRequest, ItemsBecomeMessages) {
  const auto request = read(read_responses_request, R"({"instructions": "be kind", "store": false, "input": [
      {"role": "user", "content": [{"type": "input_text", "text": "h"}, {"type": "input_text", "text": "i"}]},
      {"type": "reasoning", "id": "r", "summary": [], "content": [{"type": "reasoning_text", "text": "hm"}]},
      {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": "yes"}]},
      {"type": "function_call", "call_id": "c1", "name": "f", "arguments": "{\"b\": 1, \"a\": 2}"},
      {"type": "function_call", "call_id": "c2", "name": "g", "arguments": ""},
      {"type": "function_call_output", "call_id": "c1", "output": "42"}], "max_output_tokens": 6})");
  EXPECT_EQ(messages_of(request), OrderedJson::parse(R"([{"role": "system", "content": "be kind"},
      {"role": "user", "content": "hi"},
      {"role": "assistant", "content": "yes", "reasoning_content": "hm", "tool_calls": [
        {"id": "c1", "type": "function", "function": {"name": "f", "arguments": {"b": 1, "a": 2}}},
        {"id": "c2", "type": "function", "function": {"name": "g", "arguments": {}}}]},
      {"role": "tool", "tool_call_id": "c1", "content": "42"}])"));
  ASSERT_TRUE(request.ok());
  EXPECT_EQ(request->max_tokens, 6);
  EXPECT_EQ(request->echoed["instructions"], "be kind");
  EXPECT_EQ(messages_of(read(read_responses_request, R"({"input": "hi", "reasoning": {"effort": "low"}})")),
            OrderedJson::parse(R"([{"role": "user", "content": "hi"}])"));
}

TEST(ResponsesRequest, RefusesWithThePlace) {
  const auto asked = [](const std::string& more) {
    return refusal(read(read_responses_request, R"({"input": "hi")" + more + "}"));
  };
  EXPECT_EQ(asked(""), "");
  EXPECT_EQ(asked(R"(, "store": true)"), "request.unsupported store");
  EXPECT_EQ(asked(R"(, "previous_response_id": "resp_1")"), "request.unsupported previous_response_id");
  EXPECT_EQ(asked(R"(, "truncation": "auto")"), "request.unsupported truncation");
  EXPECT_EQ(asked(R"(, "truncation": "disabled", "background": false, "include": ["reasoning.encrypted_content"])"),
            "");
  EXPECT_EQ(asked(R"(, "tools": [{"type": "web_search"}])"), "request.unsupported tools[0].type");
  EXPECT_EQ(asked(R"(, "messages": [{"role": "user", "content": "a"}])"), "request.unsupported messages");
  EXPECT_EQ(asked(R"(, "text": {"format": {"type": "text"}, "verbosity": "low"})"), "");
  EXPECT_EQ(refusal(read(read_responses_request, "{}")), "request.missing input");
  EXPECT_EQ(refusal(read(read_responses_request, R"({"input": [{"role": "user", "content": [
      {"type": "input_image", "image_url": "http://x"}]}]})")),
            "request.unsupported input[0].content[0].type");
  EXPECT_EQ(refusal(read(read_responses_request, R"({"input": [{"type": "item_reference", "id": "a"}]})")),
            "request.unsupported input[0].type");
}

// --- replies ---

TEST(AnthropicReply, EventsAreBlocks) {
  const auto translator = make_anthropic_translator(options());
  const Json whole = translator->whole(std::vector{update_of(kEvents)}, kUsage);
  EXPECT_EQ(whole["content"], Json::parse(R"([{"type": "thinking", "thinking": "hm", "signature": ""},
      {"type": "text", "text": "let me"}, {"type": "tool_use", "id": "call_1", "name": "add", "input": {"a": 1}},
      {"type": "tool_use", "id": "call_2", "name": "stop", "input": {}}])"));
  EXPECT_EQ(whole["stop_reason"], "tool_use");
  EXPECT_EQ(whole["usage"], Json::parse(R"({"input_tokens": 6, "cache_creation_input_tokens": 0,
      "cache_read_input_tokens": 4, "output_tokens": 7})"));
  const auto reason = [](EndEvent end) {
    return make_anthropic_translator(options())->whole(std::vector{update_of({TextEvent{"a"}, std::move(end)})}, {});
  };
  EXPECT_EQ(reason({})["stop_reason"], "end_turn");
  EXPECT_EQ(reason({.reason = EndEvent::Reason::length})["stop_reason"], "max_tokens");
  EXPECT_EQ(reason({.by = "x"})["stop_reason"], "stop_sequence");
  EXPECT_EQ(reason({.by = "x"})["stop_sequence"], "x");
}

TEST(AnthropicReply, StreamsEventsByName) {
  const auto translator = make_anthropic_translator(options());
  std::string body = translator->frames(update_of(kEvents), kUsage);
  body += translator->last_frames(kUsage);
  const auto events = events_of(body);
  EXPECT_EQ(names_of(events),
            "message_start ping content_block_start content_block_delta content_block_stop content_block_start "
            "content_block_delta content_block_delta content_block_stop content_block_start content_block_delta "
            "content_block_delta content_block_stop content_block_start content_block_stop message_delta message_stop");
  EXPECT_EQ(events[0].second["message"]["usage"]["input_tokens"], 6);
  EXPECT_EQ(events[3].second["delta"], Json::parse(R"({"type": "thinking_delta", "thinking": "hm"})"));
  EXPECT_EQ(events[9].second["content_block"],
            Json::parse(R"({"type": "tool_use", "id": "call_1", "name": "add", "input": {}})"));
  EXPECT_EQ(events[10].second["delta"], Json::parse(R"({"type": "input_json_delta", "partial_json": "{\"a\": "})"));
  EXPECT_EQ(events[10].second["index"], 2);
  EXPECT_EQ(events[15].second["delta"]["stop_reason"], "tool_use");
  EXPECT_EQ(events[15].second["usage"]["output_tokens"], 7);
}

TEST(ResponsesReply, EventsAreItems) {
  const auto translator = make_responses_translator(options());
  std::string body = translator->frames(update_of(kEvents), {});
  body += translator->last_frames(kUsage);
  const auto events = events_of(body);
  EXPECT_EQ(names_of(events),
            "response.created response.in_progress response.output_item.added response.content_part.added "
            "response.reasoning_text.delta response.reasoning_text.done response.content_part.done "
            "response.output_item.done response.output_item.added response.content_part.added "
            "response.output_text.delta response.output_text.delta response.output_text.done "
            "response.content_part.done response.output_item.done response.output_item.added "
            "response.function_call_arguments.delta response.function_call_arguments.delta "
            "response.function_call_arguments.done response.output_item.done response.output_item.added "
            "response.function_call_arguments.done response.output_item.done response.completed");
  for (std::size_t i = 0; i < events.size(); ++i) EXPECT_EQ(events[i].second["sequence_number"], i);
  const Json& last = events.back().second["response"];
  EXPECT_EQ(last["status"], "completed");
  EXPECT_EQ(last["usage"]["input_tokens_details"]["cached_tokens"], 4);
  EXPECT_EQ(last, make_responses_translator(options())->whole(std::vector{update_of(kEvents)}, kUsage));
  ASSERT_EQ(last["output"].size(), 4U);
  EXPECT_EQ(last["output"][0]["content"][0]["text"], "hm");
  EXPECT_EQ(last["output"][1]["content"][0]["text"], "let me");
  EXPECT_EQ(last["output"][2]["arguments"], R"({"a": 1})");
  EXPECT_EQ(last["output"][2]["call_id"], "call_1");
  EXPECT_EQ(last["output"][3]["name"], "stop");
}

TEST(ResponsesReply, WhatIsCutIsIncomplete) {
  const auto translator = make_responses_translator(options());
  const Json whole =
      translator->whole(std::vector{update_of({TextEvent{"a"}, EndEvent{.reason = EndEvent::Reason::length}})}, kUsage);
  EXPECT_EQ(whole["status"], "incomplete");
  EXPECT_EQ(whole["incomplete_details"]["reason"], "max_output_tokens");
  EXPECT_EQ(whole["output"][0]["status"], "incomplete");
  EXPECT_EQ(events_of(translator->error_frame(R"({"error": {"message": "m", "code": "c", "param": null}})"))[0].second,
            Json::parse(R"({"type": "error", "message": "m", "code": "c", "param": null, "sequence_number": 6})"));
}

TEST(DoorsReply, AHalfCallIsNoneInOnePiece) {
  const std::vector<ReplyEvent> events = {TextEvent{"a"}, CallStartEvent{0, "call_1", "add"},
                                          CallArgumentsEvent{0, R"({"a": )"},
                                          EndEvent{.reason = EndEvent::Reason::length, .in_call = true}};
  const Json message = make_anthropic_translator(options())->whole(std::vector{update_of(events)}, kUsage);
  EXPECT_EQ(message["content"], Json::parse(R"([{"type": "text", "text": "a"}])"));
  EXPECT_EQ(message["stop_reason"], "max_tokens");
  const Json response = make_responses_translator(options())->whole(std::vector{update_of(events)}, kUsage);
  ASSERT_EQ(response["output"].size(), 1U);
  EXPECT_EQ(response["output"][0]["type"], "message");
  EXPECT_EQ(response["status"], "incomplete");
}

// --- over a socket ---

using Doors = test::ServeFixture;

TEST_F(Doors, MessagesSayWhatChatsSay) {
  serve();
  const std::string asked =
      R"({"messages": [{"role": "user", "content": "one two three"}], "max_tokens": 5, "seed": 7)";
  const Json chat = post("/v1/chat/completions", asked + "}").json();
  const HttpAnswer answer = post("/v1/messages?beta=true", asked + R"(, "foo": 1})");
  ASSERT_EQ(answer.status, 200) << answer.body;
  EXPECT_TRUE(answer.has("x-moracle-ignored: foo"));
  const Json reply = answer.json();
  EXPECT_TRUE(reply["id"].get<std::string>().starts_with("msg_"));
  EXPECT_EQ(reply["content"][0]["text"], chat["choices"][0]["message"]["content"]);
  EXPECT_EQ(reply["stop_reason"], "max_tokens");
  EXPECT_EQ(reply["usage"]["output_tokens"], 5);
  EXPECT_EQ(post("/v1/messages/count_tokens", asked + "}").json()["input_tokens"], chat["usage"]["prompt_tokens"]);
  const auto events = events_of(post("/v1/messages", asked + R"(, "stream": true})").body);
  ASSERT_GT(events.size(), 4U);
  EXPECT_EQ(events.front().first, "message_start");
  EXPECT_EQ(events.front().second["message"]["usage"]["input_tokens"], chat["usage"]["prompt_tokens"]);
  EXPECT_EQ(events.back().first, "message_stop");
  std::string text;
  for (const auto& [name, data] : events) {
    if (name == "content_block_delta") text += data["delta"]["text"].get<std::string>();
  }
  EXPECT_EQ(Json(text), reply["content"][0]["text"]);
}

TEST_F(Doors, ErrorsOfMessagesHaveAnthropicsShape) {
  Setup setup;
  setup.access.keys = {ApiKey{.name = "one", .key = "sk-one-two"}};
  serve(setup);
  const auto error = [&](const std::string& path, const std::string& body, const std::string& header) {
    const HttpAnswer answer = ask(post_text(path, body, header));
    const Json json = answer.json();
    EXPECT_EQ(json["type"], "error") << answer.body;
    return std::to_string(answer.status) + " " + json["error"].value("type", "") + " " +
           json["error"].value("param", "");
  };
  const std::string key = "x-api-key: sk-one-two\r\nanthropic-version: 2023-06-01\r\n";
  const std::string hi = R"({"messages": [{"role": "user", "content": "hi"}], "max_tokens": 1)";
  EXPECT_EQ(ask(post_text("/v1/messages", hi + "}", key)).status, 200);
  EXPECT_EQ(error("/v1/messages", hi + "}", ""), "401 authentication_error ");
  EXPECT_EQ(error("/v1/messages", "{", key), "400 invalid_request_error ");
  EXPECT_EQ(
      error("/v1/messages/count_tokens", R"({"messages": [{"role": "user", "content": [{"type": "image"}]}]})", key),
      "400 invalid_request_error messages[0].content[0].type");
  EXPECT_EQ(error("/v1/messages", hi + R"(, "model": "third"})", key), "404 not_found_error model");
}

TEST_F(Doors, ResponsesSayWhatChatsSay) {
  serve();
  const Json chat = post("/v1/chat/completions",
                         R"({"messages": [{"role": "user", "content": "one two three"}], "max_tokens": 5, "seed": 7})")
                        .json();
  const std::string asked = R"({"input": "one two three", "max_output_tokens": 5, "seed": 7)";
  const HttpAnswer answer = post("/v1/responses", asked + "}");
  ASSERT_EQ(answer.status, 200) << answer.body;
  const Json reply = answer.json();
  EXPECT_EQ(reply["output"][0]["content"][0]["text"], chat["choices"][0]["message"]["content"]);
  EXPECT_EQ(reply["status"], "incomplete");
  EXPECT_EQ(reply["store"], false);
  EXPECT_EQ(reply["max_output_tokens"], 5);
  EXPECT_EQ(reply["usage"]["input_tokens"], chat["usage"]["prompt_tokens"]);
  const auto events = events_of(post("/v1/responses", asked + R"(, "stream": true})").body);
  ASSERT_GT(events.size(), 4U);
  EXPECT_EQ(events.front().first, "response.created");
  EXPECT_EQ(events.back().first, "response.incomplete");
  EXPECT_EQ(events.back().second["response"]["output"][0]["content"], reply["output"][0]["content"]);
  const HttpAnswer stored = post("/v1/responses", asked + R"(, "store": true})");
  EXPECT_EQ(stored.status, 400);
  EXPECT_EQ(stored.json()["error"]["param"], "store");
  const HttpAnswer longest = post("/v1/responses", R"({"input": "one", "max_output_tokens": 5000})");
  EXPECT_EQ(longest.json()["error"]["param"], "input");
  EXPECT_EQ(longest.json()["error"]["code"], "context_length_exceeded");
}

TEST_F(Doors, FaultsOfSchemasHaveThePlacesOfTheDoor) {
  serve();
  const std::string format = R"("format": {"type": "json_schema", "name": "x", "schema": {"not": {"type": "null"}}})";
  const HttpAnswer response = post("/v1/responses", R"({"input": "one", "text": {)" + format + "}}");
  EXPECT_EQ(response.status, 400);
  EXPECT_EQ(response.json()["error"]["param"], "text.format.schema/not") << response.body;
  const HttpAnswer message = post("/v1/messages", R"({"messages": [{"role": "user", "content": "one"}],
      "max_tokens": 5, "output_config": {)" + format + "}}");
  EXPECT_EQ(message.json()["error"]["param"], "output_config.format.schema/not") << message.body;
}

}  // namespace
}  // namespace moracle::serve
