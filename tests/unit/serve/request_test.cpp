#include "serve/api/request.h"

#include <gtest/gtest.h>

#include "serve/api/api_error.h"
#include "serve/api/chat/messages.h"
#include "serve/api/fields.h"
#include "text/reply/tool_list.h"

namespace moracle::serve {
namespace {

std::string chat(const std::string& more) {
  return R"({"messages": [{"role": "user", "content": "hi"}])" + (more.empty() ? "" : ", " + more) + "}";
}
std::string text(const std::string& more) {
  return R"({"prompt": "hi")" + (more.empty() ? "" : ", " + more) + "}";
}

Result<ApiRequest> parse_request(GenerationApi api, const std::string& body, bool strict) {
  MORACLE_ASSIGN(RequestBody parsed, parse_body(body));
  return read_request(api, std::move(parsed), strict);
}
Result<OrderedJson> parse_messages(const std::string& body, std::vector<std::string>* places = nullptr) {
  MORACLE_ASSIGN(RequestBody parsed, parse_body(body));
  std::vector<std::string> changed;
  auto messages = read_messages(std::move(parsed.messages), changed);
  if (places != nullptr) *places = changed;
  return messages;
}

// What is wrong with a body.
ApiError refusal(GenerationApi endpoint, const std::string& body, bool strict = false) {
  const auto request = parse_request(endpoint, body, strict);
  EXPECT_FALSE(request.ok()) << body.substr(0, 200);
  return request.ok() ? ApiError{} : api_error(request.error());
}
ApiError chat_refusal(const std::string& more) {
  return refusal(GenerationApi::chat, chat(more));
}

TEST(ServeRequest, ReadsEveryHonouredField) {
  const auto request =
      parse_request(GenerationApi::chat,
                    chat(R"("model": "m", "max_tokens": 7, "temperature": 0.5, "top_p": 0.9, "top_k": -1, "min_p": 0.1,
              "frequency_penalty": 0.5, "presence_penalty": -0.5, "repetition_penalty": 1.1, "seed": -3, "n": 2,
              "stop": ["a", "b"], "stop_token_ids": [5], "include_stop_str_in_output": true, "ignore_eos": true,
              "min_tokens": 2, "skip_special_tokens": false, "logit_bias": {"17": -5.5}, "logprobs": true,
              "top_logprobs": 4, "stream": true,
              "stream_options": {"include_usage": true, "continuous_usage_stats": true}, "tools": [],
              "tool_choice": "auto", "parallel_tool_calls": true, "response_format": {"type": "text"},
              "reasoning_effort": "low", "include_reasoning": false, "chat_template_kwargs": {"x": 1},
              "return_token_ids": true, "cache_salt": "s", "priority": 3, "request_id": "r")"),
                    true);
  ASSERT_TRUE(request.ok()) << request.error().message();
  EXPECT_EQ(request->model, "m");
  EXPECT_EQ(request->max_tokens, 7);
  EXPECT_EQ(request->sampling.get(&SamplingOptions::temperature), 0.5);
  EXPECT_EQ(request->sampling.get(&SamplingOptions::top_p), 0.9);
  EXPECT_EQ(request->sampling.get(&SamplingOptions::top_k), 0);
  EXPECT_EQ(request->sampling.get(&SamplingOptions::min_p), 0.1);
  EXPECT_EQ(request->sampling.get(&SamplingOptions::repetition_penalty), 1.1);
  EXPECT_EQ(request->seed, static_cast<std::uint64_t>(-3));
  EXPECT_EQ(request->n, 2);
  EXPECT_EQ(request->stop, (std::vector<std::string>{"a", "b"}));
  EXPECT_EQ(request->stop_token_ids, std::vector<std::int32_t>{5});
  EXPECT_TRUE(request->include_stop && request->ignore_eos && !request->skip_special_tokens);
  EXPECT_EQ(request->min_tokens, 2);
  ASSERT_EQ(request->logit_bias.size(), 1U);
  EXPECT_EQ(request->logit_bias[0].first, 17);
  EXPECT_EQ(request->logprobs, 4);
  EXPECT_TRUE(request->stream && request->include_usage && request->continuous_usage && request->return_token_ids);
  EXPECT_EQ(request->chat.variables["reasoning_effort"], "low");
  EXPECT_EQ(request->chat.variables["x"], 1);
  EXPECT_FALSE(request->include_reasoning);
  EXPECT_EQ(request->priority, 3);
  EXPECT_TRUE(request->ignored.empty());
}

TEST(ServeRequest, NullIsAbsentEverywhere) {
  for (const GenerationApi endpoint : {GenerationApi::chat, GenerationApi::completions}) {
    for (const RequestField& field : request_fields()) {
      if (!field.serves(endpoint) || field.name == "messages" || field.name == "prompt") continue;
      const std::string member = "\"" + std::string(field.name) + "\": null";
      const auto request = parse_request(endpoint, endpoint == GenerationApi::chat ? chat(member) : text(member), true);
      EXPECT_TRUE(request.ok()) << field.name << ": " << request.error().message();
    }
  }
}

TEST(ServeRequest, InertFieldsAreTakenWhateverTheyHold) {
  for (const RequestField& field : request_fields()) {
    if (field.use != FieldUse::inert || !field.serves(GenerationApi::chat)) continue;
    EXPECT_TRUE(
        parse_request(GenerationApi::chat, chat("\"" + std::string(field.name) + "\": {\"a\": [1]}"), true).ok())
        << field.name;
  }
}

TEST(ServeRequest, RefusedFieldsNameThemselves) {
  for (const RequestField& field : request_fields()) {
    if (field.use != FieldUse::refused) continue;
    for (const GenerationApi endpoint : {GenerationApi::chat, GenerationApi::completions}) {
      if (!field.serves(endpoint)) continue;
      const std::string name(field.name);
      for (const char* const nothing : {"null", "false", "[]", "{}", "\"\""}) {
        const std::string member = "\"" + name + "\": " + nothing;
        EXPECT_TRUE(parse_request(endpoint, endpoint == GenerationApi::chat ? chat(member) : text(member), true).ok())
            << member;
      }
      const std::string member = "\"" + name + "\": {\"a\": 5}";
      const ApiError error = refusal(endpoint, endpoint == GenerationApi::chat ? chat(member) : text(member));
      EXPECT_EQ(error.status, 400) << name;
      EXPECT_EQ(error.param, name);
      EXPECT_EQ(error.code, "unsupported");
      EXPECT_NE(error.message.find(std::string(field.text)), std::string::npos) << error.message;
    }
  }
}

TEST(ServeRequest, OutputsAreHeldByOneField) {
  using Kind = OutputFormat::Kind;
  const auto output = [](const std::string& member) {
    for (const GenerationApi endpoint : {GenerationApi::chat, GenerationApi::completions}) {
      auto request = parse_request(endpoint, endpoint == GenerationApi::chat ? chat(member) : text(member), true);
      EXPECT_TRUE(request.ok()) << member << request.error().message();
      if (endpoint == GenerationApi::completions) return request->output;
    }
    return std::optional<OutputField>();
  };
  EXPECT_FALSE(output(R"("response_format": {"type": "text"})"));
  EXPECT_EQ(output(R"("response_format": {"type": "json_object"})")->format.kind, Kind::json_object);
  const std::string schema = R"({"type": "object", "properties": {"b": {}, "a": {}}})";
  const auto named =
      output(R"("response_format": {"type": "json_schema", "json_schema": {"name": "n", "strict": true, "schema": )" +
             schema + "}}");
  EXPECT_EQ(named->format.kind, Kind::json_schema);
  EXPECT_EQ(named->format.schema, OrderedJson::parse(schema));
  EXPECT_EQ(named->format.schema["properties"].begin().key(), "b") << "members keep the order of the text";
  EXPECT_EQ(named->place, "response_format.json_schema.schema");
  EXPECT_EQ(output(R"("guided_json": )" + schema)->format.schema, OrderedJson::parse(schema));
  EXPECT_EQ(output(R"("guided_json": "{\"type\": \"null\"}")")->format.schema, (OrderedJson{{"type", "null"}}));
  EXPECT_EQ(output(R"("structured_outputs": {"regex": "a+", "json": null})")->format.regex, "a+");
  EXPECT_EQ(output(R"("guided_regex": "a+")")->place, "guided_regex");
  EXPECT_EQ(output(R"("guided_choice": ["x", "y"])")->format.choices.size(), 2U);
  EXPECT_EQ(output(R"("structured_outputs": {"json_object": true})")->format.kind, Kind::json_object);
}

TEST(ServeRequest, ErrorsOfOutputsNameTheFieldAndThePointer) {
  const OutputField field{.place = "guided_json"};
  const auto code_of = [&](const char* code, const char* where) {
    const ApiError error =
        api_error(request_error(at_output(field, {.code = code, .where = where, .wanted = "w", .found = "f"})));
    EXPECT_EQ(error.status, 400);
    return std::pair(error.code, error.param);
  };
  using Pair = std::pair<std::string, std::string>;
  EXPECT_EQ(code_of("constrain.complex", "/a"), Pair("schema_too_complex", "guided_json/a"));
  EXPECT_EQ(code_of("schema.unsupported", "/not"), Pair("unsupported_schema", "guided_json/not"));
  EXPECT_EQ(code_of("regex.unsupported", "byte 3"), Pair("unsupported_schema", "guided_json"));
  EXPECT_EQ(code_of("schema.empty", ""), Pair("invalid_schema", "guided_json"));
  EXPECT_EQ(code_of("constrain.unavailable", ""), Pair("unsupported", "guided_json"));
}

TEST(ServeRequest, WhatCannotBeDoneIsNeverIgnored) {
  const std::vector<std::pair<std::string, std::string>> bodies = {
      {R"("tool_choice": "required")", "tool_choice"},
      {R"("tools": [{"type": "function", "function": {"name": "f"}}], "tool_choice": "required", "ignore_eos": true)",
       "ignore_eos"},
      {R"("tool_choice": {"type": "function", "function": {"name": "f"}})", "tool_choice"},
      {R"("response_format": {"type": "grammar"})", "response_format.type"},
      {R"("response_format": {"type": "json_schema"})", "response_format.json_schema"},
      {R"("response_format": {"type": "json_schema", "json_schema": {}})", "response_format.json_schema.schema"},
      {R"("structured_outputs": {"json": {}, "choice": ["a"]})", "structured_outputs.choice"},
      {R"("structured_outputs": {"grammar": "root ::= a"})", "structured_outputs.grammar"},
      {R"("structured_outputs": {"regex": 3})", "structured_outputs.regex"},
      {R"("guided_choice": ["a", 3])", "guided_choice"},
      {R"("guided_json": "{")", "guided_json"},
      {R"("guided_regex": "a", "response_format": {"type": "json_object"})", "guided_regex"},
      {R"("guided_regex": "a", "ignore_eos": true)", "ignore_eos"},
  };
  for (const auto& [body, field] : bodies) {
    const ApiError error = chat_refusal(body);
    EXPECT_EQ(error.status, 400) << body;
    EXPECT_EQ(error.param, field);
  }
  for (const auto& [body, field] : std::vector<std::pair<std::string, std::string>>{
           {R"("reasoning": {"effort": "low", "max_tokens": 10})", "reasoning.max_tokens"},
           {R"("reasoning": {"enabled": false})", "reasoning.enabled"},
           {R"("reasoning": {"exclude": true})", "reasoning.exclude"},
           {R"("echo": true)", "echo"},
           {R"("prompt": "a")", "prompt"}}) {
    EXPECT_EQ(chat_refusal(body).param, field);
  }
  for (const char* const field : {"messages", "tools", "top_logprobs", "reasoning_effort", "chat_template_kwargs"})
    EXPECT_EQ(refusal(GenerationApi::completions, text("\"" + std::string(field) + "\": [1]")).param, field);
  for (const char* const field : {"mirostat_tau", "max_new_tokens", "stop_sequences", "lora_path", "extra_body"})
    EXPECT_EQ(chat_refusal("\"" + std::string(field) + "\": [1]").param, field) << "other servers' names";
  EXPECT_EQ(refusal(GenerationApi::completions, text(R"("functions": [{"name": "f"}])")).param, "functions");
  for (const char* const off :
       {R"("tools": [])", R"("tool_choice": "none")", R"("response_format": {"type": "text"})", R"("store": false)",
        R"("modalities": ["text"])", R"("n_probs": 0)", R"("best_of": 1)", R"("n": 3, "best_of": 3)",
        R"("echo": false)", R"("reasoning": {"effort": null, "enabled": true, "exclude": false, "max_tokens": null})"})
    EXPECT_TRUE(parse_request(GenerationApi::chat, chat(off), true).ok()) << off;
  const ApiError more = chat_refusal(R"("n": 2, "best_of": 3)");
  EXPECT_EQ(more.status, 400);
  EXPECT_EQ(more.param, "best_of");
}

TEST(ServeRequest, ImagesFilesAndAddressesAreRefused) {
  for (const char* const part :
       {R"({"type": "image_url", "image_url": {"url": "http://169.254.169.254/"}})",
        R"({"type": "input_audio", "input_audio": {}})", R"({"type": "file", "file": {"path": "/etc/passwd"}})"}) {
    const ApiError error = refusal(
        GenerationApi::chat,
        std::string(R"({"messages": [{"role": "user", "content": [{"type": "text", "text": "a"}, )") + part + "]}]}");
    EXPECT_EQ(error.status, 400);
    EXPECT_EQ(error.param, "messages[0].content[1].type");
  }
}

TEST(ServeRequest, UnknownNamesAreListedOrRefused) {
  const auto request = parse_request(GenerationApi::chat, chat(R"("foo": 1, "bar": [2])"), false);
  ASSERT_TRUE(request.ok());
  EXPECT_EQ(request->ignored, (std::vector<std::string>{"bar", "foo"}));
  const ApiError error = refusal(GenerationApi::chat, chat(R"("foo": 1)"), true);
  EXPECT_EQ(error.status, 400);
  EXPECT_EQ(error.param, "foo");
  const std::string option = chat(R"("stream_options": {"foo": true})");
  EXPECT_EQ(parse_request(GenerationApi::chat, option, false)->ignored, std::vector<std::string>{"stream_options.foo"});
  EXPECT_EQ(refusal(GenerationApi::chat, option, true).param, "stream_options.foo");
  const std::string reasoning = chat(R"("reasoning": {"summary": "auto"})");
  EXPECT_EQ(parse_request(GenerationApi::chat, reasoning, false)->ignored,
            std::vector<std::string>{"reasoning.summary"});
  EXPECT_TRUE(parse_request(GenerationApi::chat, chat(R"("foo": null)"), true).ok()) << "null is absent";
}

TEST(ServeRequest, MembersOfMessagesThatAreNotDoneAreRefused) {
  for (const auto& [member, name] : std::vector<std::pair<std::string, std::string>>{
           {R"("function_call": {"name": "f", "arguments": "{}"})", "function_call"},
           {R"("audio": {"id": "a"})", "audio"},
           {R"("images": ["a"])", "images"},
           {R"("prefix": true)", "prefix"},
           {R"("partial": true)", "partial"}}) {
    const ApiError error =
        refusal(GenerationApi::chat, R"({"messages": [{"role": "assistant", "content": "a", )" + member + "}]}");
    EXPECT_EQ(error.status, 400);
    EXPECT_EQ(error.param, "messages[0]." + name);
  }
  EXPECT_TRUE(
      parse_messages(R"({"messages": [{"role": "assistant", "content": "a", "audio": null, "function_call": null,
                                               "prefix": false}]})")
          .ok());
}

TEST(ServeRequest, SeedsAreAllWholeNumbersOf64Bits) {
  for (const char* const seed : {"-9223372036854775808", "-1", "0", "9223372036854775807", "12.0"}) {
    const auto request = parse_request(GenerationApi::chat, chat(std::string(R"("seed": )") + seed), false);
    ASSERT_TRUE(request.ok()) << seed << request.error().message();
    EXPECT_EQ(static_cast<std::int64_t>(request->seed.value()), std::stoll(seed));
  }
  for (const char* const seed : {"9223372036854775808", "9.3e18", "-9.3e18", "1e400"})
    EXPECT_EQ(chat_refusal(std::string(R"("seed": )") + seed).status, 400) << seed;
}

TEST(ServeRequest, NumbersThatAreNoneAreNamedWithTheirByte) {
  for (const auto& [body, field] : std::vector<std::pair<std::string, std::string>>{
           {R"({"prompt": "NaN\" I", "top_p": NaN})", "top_p"},
           {R"({"prompt": "a", "logit_bias": {"1": -Infinity}})", "logit_bias"},
           {R"({"prompt": "a", "metadata": [{"a": NaN}]})", "metadata"}}) {
    const ApiError error = refusal(GenerationApi::completions, body);
    EXPECT_EQ(error.status, 400) << body;
    EXPECT_EQ(error.param, field);
    const std::size_t byte = std::min(body.rfind("NaN"), body.rfind("Infinity"));
    EXPECT_NE(error.message.find("at byte " + std::to_string(byte)), std::string::npos) << error.message;
  }
}

TEST(ServeRequest, RangesAreHeldAndNamed) {
  const std::vector<std::pair<std::string, std::string>> bodies = {
      {R"("n": 0)", "n"},
      {R"("n": 17)", "n"},
      {R"("n": 1e30)", "n"},
      {R"("n": "2")", "n"},
      {R"("n": 1.5)", "n"},
      {R"("max_tokens": -1)", "max_tokens"},
      {R"("max_tokens": 0)", "max_tokens"},
      {R"("max_tokens": 18446744073709551616)", "max_tokens"},
      {R"("max_tokens": 5, "max_completion_tokens": 6)", "max_completion_tokens"},
      {R"("temperature": -1)", "temperature"},
      {R"("temperature": NaN)", "temperature"},
      {R"("temperature": Infinity)", "temperature"},
      {R"("temperature": 1e999)", "temperature"},
      {R"("temperature": true)", "temperature"},
      {R"("top_p": 0)", "top_p"},
      {R"("top_p": 1.01)", "top_p"},
      {R"("top_k": -2)", "top_k"},
      {R"("repetition_penalty": 0)", "repetition_penalty"},
      {R"("presence_penalty": 3)", "presence_penalty"},
      {R"("seed": "x")", "seed"},
      {R"("seed": 9.5)", "seed"},
      {R"("logprobs": true, "top_logprobs": 21)", "top_logprobs"},
      {R"("top_logprobs": 2)", "top_logprobs"},
      {R"("logit_bias": {"5": 101})", "logit_bias"},
      {R"("logit_bias": {"x": 1})", "logit_bias"},
      {R"("logit_bias": {"99999999999": 1})", "logit_bias"},
      {R"("logit_bias": [1])", "logit_bias"},
      {R"("stop": [1])", "stop"},
      {R"("stop_token_ids": [-1])", "stop_token_ids"},
      {R"("stream": "yes")", "stream"},
      {R"("stream_options": {"include_usage": 1})", "stream_options.include_usage"},
      {R"("chat_template_kwargs": {"messages": 1})", "chat_template_kwargs.messages"},
      {R"("chat_template_kwargs": {"a": [1]})", "chat_template_kwargs.a"},
      {R"("continue_final_message": true)", "continue_final_message"},
  };
  for (const auto& [body, field] : bodies) {
    const ApiError error = chat_refusal(body);
    EXPECT_EQ(error.status, 400) << body;
    if (body.find("1e999") != std::string::npos) continue;  // no number of JSON's
    EXPECT_EQ(error.param, field) << body << error.message;
  }
}

TEST(ServeRequest, SizesAreHeldBeforeAnythingIsMade) {
  std::string many;
  for (int i = 0; i < 17; ++i) many += (i > 0 ? "," : "") + std::string("\"a\"");
  EXPECT_EQ(chat_refusal("\"stop\": [" + many + "]").param, "stop");
  EXPECT_EQ(chat_refusal("\"stop\": \"" + std::string(257, 'a') + "\"").param, "stop");
  std::string biases;
  for (int i = 0; i < 1025; ++i) biases += (i > 0 ? ",\"" : "\"") + std::to_string(i) + "\":1";
  EXPECT_EQ(chat_refusal("\"logit_bias\": {" + biases + "}").param, "logit_bias");
  std::string messages;
  for (int i = 0; i < 4097; ++i) messages += (i > 0 ? "," : "") + std::string(R"({"role":"user","content":""})");
  EXPECT_EQ(refusal(GenerationApi::chat, "{\"messages\":[" + messages + "]}").param, "messages");
  std::string prompts;
  for (int i = 0; i < 257; ++i) prompts += (i > 0 ? "," : "") + std::string("\"a\"");
  EXPECT_EQ(refusal(GenerationApi::completions, "{\"prompt\":[" + prompts + "]}").param, "prompt");
  prompts.resize(prompts.size() / 2 / 4 * 4 - 1);
  EXPECT_EQ(refusal(GenerationApi::completions, "{\"n\": 16, \"prompt\":[" + prompts + "]}").param, "n");
  EXPECT_EQ(refusal(GenerationApi::chat, std::string(kBodyBytes + 1, ' ')).status, 413);
  const auto nested = [](int depth) {
    const auto size = static_cast<std::size_t>(depth);
    return "\"top_k\": 5, \"user\": " + std::string(size, '[') + std::string(size, ']');
  };
  EXPECT_EQ(chat_refusal(nested(kBodyDepth)).code, "limit");
  EXPECT_EQ(chat_refusal(nested(kBodyDepth)).param, "user") << "the field that holds it";
  EXPECT_TRUE(parse_request(GenerationApi::chat, chat(nested(kBodyDepth - 1)), false).ok()) << "the body is a level";
  EXPECT_EQ(chat_refusal("\"model\": \"" + std::string(300, 'a') + "\"").param, "model");
}

TEST(ServeRequest, TextIsUnicodeWithoutNul) {
  for (const char* const bad : {"\"\xff\"", "\"\xc3\"", R"("\ud800")", R"("\udc00\ud800")", R"("a\u0000b")"}) {
    const ApiError error = refusal(GenerationApi::completions, std::string("{\"prompt\": ") + bad + "}");
    EXPECT_EQ(error.status, 400);
    EXPECT_EQ(error.code, "invalid_utf8") << bad << error.message;
    EXPECT_NE(error.message.find("byte 1"), std::string::npos) << error.message;
    EXPECT_EQ(error.param, "") << "a byte is no field";
  }
  EXPECT_TRUE(parse_request(GenerationApi::completions, R"({"prompt": "a\\u0000 \ud83d\ude00"})", false).ok());
  for (const char* const bad :
       {"", "{", "[]", "null", "{\"prompt\": \"a\",}", "{\"prompt\": \"a\"} x", "{\"a\":1,\"a\":2}"})
    EXPECT_EQ(refusal(GenerationApi::completions, bad).status, 400) << bad;
  const ApiError twice = refusal(GenerationApi::completions, R"({"a":1,"a":2})");
  EXPECT_NE(twice.message.find("'a' at byte 7"), std::string::npos) << twice.message;
  EXPECT_EQ(twice.param, "");
}

TEST(ServeRequest, PromptsComeInFourForms) {
  const auto prompts = [](const std::string& prompt) {
    auto request = parse_request(GenerationApi::completions, "{\"prompt\": " + prompt + "}", false);
    EXPECT_TRUE(request.ok()) << prompt;
    return request.ok() ? request->inputs : std::vector<PromptInput>();
  };
  EXPECT_EQ(prompts("\"a\""), (std::vector<PromptInput>{"a"}));
  EXPECT_EQ(prompts("[\"a\", \"b\"]"), (std::vector<PromptInput>{"a", "b"}));
  EXPECT_EQ(prompts("[1, 2]"), (std::vector<PromptInput>{std::vector<std::int32_t>{1, 2}}));
  EXPECT_EQ(prompts("[[1], [2, 3]]"),
            (std::vector<PromptInput>{std::vector<std::int32_t>{1}, std::vector<std::int32_t>{2, 3}}));
  for (const char* const bad :
       {"[]", "[[]]", "[1, \"a\"]", "[\"a\", 1]", "5", "{}", "[1.5]", "[[1], [\"a\"]]", "[-1]"}) {
    EXPECT_EQ(refusal(GenerationApi::completions, std::string("{\"prompt\": ") + bad + "}").status, 400) << bad;
  }
  EXPECT_EQ(parse_request(GenerationApi::completions, text(""), false)->max_tokens, 16);
  EXPECT_EQ(parse_request(GenerationApi::completions, text("\"max_completion_tokens\": 9"), false)->max_tokens, 9);
  EXPECT_EQ(refusal(GenerationApi::completions, text("\"max_tokens\": 0")).param, "max_tokens");
  EXPECT_TRUE(parse_request(GenerationApi::completions, text("\"max_tokens\": 0, \"echo\": true"), false).ok());
}

TEST(ServeRequest, MessagesBecomeWhatTemplatesExpect) {
  const auto messages = parse_messages(R"({"messages": [
    {"role": "user", "content": [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]},
    {"role": "assistant", "content": null, "reasoning": "r", "tool_calls":
      [{"id": "1", "type": "function", "function": {"name": "f", "arguments": "{\"z\": 1, \"a\": 2}"}}]},
    {"role": "tool", "tool_call_id": "1", "content": "ok"}]})");
  ASSERT_TRUE(messages.ok()) << messages.error().message();
  EXPECT_EQ((*messages)[0]["content"], "ab");
  EXPECT_EQ((*messages)[1]["reasoning_content"], "r");
  EXPECT_EQ((*messages)[1]["tool_calls"][0]["function"]["arguments"].dump(), R"({"z":1,"a":2})");
  for (const char* const bad :
       {R"({})", R"({"messages": []})", R"({"messages": [5]})", R"({"messages": [{}]})",
        R"({"messages": [{"role": "robot", "content": ""}]})", R"({"messages": [{"role": "user", "content": 5}]})",
        R"({"messages": [{"role": "assistant", "tool_calls": [5]}]})"})
    EXPECT_FALSE(parse_messages(bad).ok()) << bad;
}

TEST(ServeRequest, OldTurnsThatClientsHaveBrokenAreMended) {
  const std::string body = R"({"messages": [
    {"role": "tool", "tool_call_id": "0", "content": "of nothing"},
    {"role": "assistant", "tool_calls": [
      {"id": "1", "function": {"name": "f", "arguments": "{\"a\": "}},
      {"id": "2", "function": {"name": "f", "arguments": "[1]"}},
      {"id": "3", "function": {"name": "f", "arguments": ""}},
      {"id": "4", "function": {"name": "f"}}]},
    {"role": "tool", "tool_call_id": "2", "content": "b"},
    {"role": "tool", "content": "a"},
    {"role": "tool", "tool_call_id": "9", "content": null},
    {"role": "user", "content": "and?"},
    {"role": "tool", "tool_call_id": "3", "content": "late"}]})";
  std::vector<std::string> changed;
  const auto messages = parse_messages(body, &changed);
  ASSERT_TRUE(messages.ok()) << messages.error().message();
  EXPECT_EQ(changed, (std::vector<std::string>{"messages[0].role", "messages[1].tool_calls[0].function.arguments",
                                               "messages[1].tool_calls[1].function.arguments",
                                               "messages[3].tool_call_id", "messages[4].role", "messages[6].role"}));
  const auto& calls = (*messages)[1]["tool_calls"];
  EXPECT_EQ(calls[0]["function"]["arguments"], OrderedJson({{"arguments", "{\"a\": "}}));
  EXPECT_EQ(calls[1]["function"]["arguments"], OrderedJson({{"arguments", "[1]"}}));
  EXPECT_EQ(calls[2]["function"]["arguments"], OrderedJson::object());
  EXPECT_EQ(calls[3]["function"]["arguments"], OrderedJson::object());
  EXPECT_EQ((*messages)[0], OrderedJson({{"role", "user"}, {"content", "of nothing"}}));
  EXPECT_EQ((*messages)[3]["tool_call_id"], "1");
  EXPECT_EQ((*messages)[4], OrderedJson({{"role", "user"}, {"content", ""}}));
  EXPECT_TRUE(parse_request(GenerationApi::chat, body, false).ok());
  EXPECT_EQ(refusal(GenerationApi::chat, body, true).param, "messages[0].role");
}

TEST(ServeRequest, ToolsAreCheckedAndKeepTheirOrder) {
  const auto request = parse_request(GenerationApi::chat, chat(R"("parallel_tool_calls": false, "tools": [
    {"type": "function", "function": {"name": "z", "strict": true, "description": "d", "parameters":
      {"type": "object", "properties": {"b": {"type": "integer"}, "a": {"type": "string"}}}}},
    {"function": {"name": "a-B_9", "description": null}, "type": "function"}])"),
                                     true);
  ASSERT_TRUE(request.ok()) << request.error().message();
  EXPECT_TRUE(request->tools.may_call());
  EXPECT_FALSE(request->tools.must_call);
  EXPECT_TRUE(request->tools.forms[0].strict);
  EXPECT_EQ(request->tools.max_calls, 1);
  EXPECT_TRUE(request->tools.schemas.types_of("z", "b").integer);
  EXPECT_EQ(
      request->chat.tools.dump(),
      R"([{"type":"function","function":{"name":"z","description":"d","parameters":{"type":"object","properties":)"
      R"({"b":{"type":"integer"},"a":{"type":"string"}}}}},)"
      R"({"type":"function","function":{"name":"a-B_9","parameters":{"type":"object","properties":{}}}}])");
  const std::string f = R"({"type": "function", "function": {"name": "f"}})";
  const auto none = parse_request(GenerationApi::chat, chat("\"tools\": [" + f + "], \"tool_choice\": \"none\""), true);
  ASSERT_TRUE(none.ok());
  EXPECT_FALSE(none->tools.may_call());
  EXPECT_TRUE(none->chat.tools.is_null());
  const std::string g = R"({"type": "function", "function": {"name": "g"}})";
  const auto forced = [&](const std::string& choice) {
    return parse_request(GenerationApi::chat, chat("\"tools\": [" + f + "," + g + "], \"tool_choice\": " + choice),
                         true);
  };
  const auto required = forced("\"required\"");
  ASSERT_TRUE(required.ok());
  EXPECT_TRUE(required->tools.must_call);
  EXPECT_EQ(required->tools.forms.size(), 2U);
  const auto named = forced(R"({"type": "function", "function": {"name": "g"}})");
  ASSERT_TRUE(named.ok());
  EXPECT_TRUE(named->tools.must_call);
  ASSERT_EQ(named->tools.forms.size(), 1U);
  EXPECT_EQ(named->tools.forms[0].name, "g");
  EXPECT_EQ(named->tools.forms[0].place, "tools[1].function.parameters");
  EXPECT_EQ(named->chat.tools.size(), 2U) << "the model is told of all";
  const std::vector<std::pair<std::string, std::string>> bad = {
      {"\"tools\": 5", "tools"},
      {"\"tools\": [5]", "tools[0]"},
      {"\"tools\": [" + f + "," + f + "]", "tools[1].function.name"},
      {R"("tools": [{"type": "web_search"}])", "tools[0].type"},
      {R"("tools": [{"type": "function"}])", "tools[0].function"},
      {R"("tools": [{"type": "function", "function": {}}])", "tools[0].function.name"},
      {R"("tools": [{"type": "function", "function": {"name": "a b"}}])", "tools[0].function.name"},
      {R"("tools": [{"type": "function", "function": {"name": ""}}])", "tools[0].function.name"},
      {R"("tools": [{"type": "function", "function": {"name": ")" + std::string(65, 'a') + "\"}}]",
       "tools[0].function.name"},
      {R"("tools": [{"type": "function", "function": {"name": "f", "parameters": []}}])",
       "tools[0].function.parameters"},
      {R"("tools": [{"type": "function", "function": {"name": "f", "description": 1}}])",
       "tools[0].function.description"},
      {R"("tools": [{"type": "function", "function": {"name": "f", "parameters": {"x": NaN}}}])", "tools"},
      {"\"tools\": [" + f + R"(], "tool_choice": {"type": "function", "function": {"name": "g"}})", "tool_choice"},
      {"\"tools\": [" + f + R"(], "tool_choice": "any")", "tool_choice"},
      {R"("tool_choice": 5)", "tool_choice"}};
  for (const auto& [more, param] : bad) {
    const ApiError error = chat_refusal(more);
    EXPECT_EQ(error.status, 400) << more;
    EXPECT_EQ(error.param, param) << more;
  }
  std::string many;
  for (int i = 0; i <= 256; ++i)
    many += (i > 0 ? "," : "") + (R"({"type": "function", "function": {"name": "f)" + std::to_string(i) + "\"}}");
  EXPECT_EQ(chat_refusal("\"tools\": [" + many + "]").code, "limit");
  EXPECT_EQ(chat_refusal(R"("tools": [{"type": "function", "function": {"name": "f", "parameters": {"description": ")" +
                         std::string(kToolSchemaBytes, 'x') + "\"}}}]")
                .code,
            "limit");
}

TEST(ServeRequest, ErrorsHaveTheShapeThatClientsRead) {
  const ApiError error = api_error(context_error(2048, 2000, 100, "messages"));
  EXPECT_EQ(error.status, 400);
  EXPECT_EQ(error.code, "context_length_exceeded");
  EXPECT_EQ(
      error.message.find("This model's maximum context length is 2048 tokens. However, you requested 2100 tokens"), 0U);
  const Json json = error_json(error);
  EXPECT_EQ(json["error"]["type"], "invalid_request_error");
  EXPECT_EQ(json["error"]["param"], "messages");
  EXPECT_EQ(api_error(Error{.code = "scheduler.queue", .found = "x"}).status, 429);
  EXPECT_EQ(api_error(Error{.code = "numeric.nan", .found = "x"}).code, "numeric_error");
  EXPECT_EQ(api_error(Error{.code = "server.loading", .found = "x"}).status, 503);
  EXPECT_EQ(api_error(Error{.code = "whatever", .file = "/secret", .found = "x"}).message.find("secret"),
            std::string::npos);
}

}  // namespace
}  // namespace moracle::serve
