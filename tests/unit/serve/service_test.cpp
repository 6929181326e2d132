// What clients ask and get, of a server with an engine that echoes.
#include "serve/service.h"

#include <gtest/gtest.h>

#include <array>
#include <thread>
#include <vector>

#include "serve/page/assets.h"
#include "support/serve_fixture.h"

namespace moracle::serve {
namespace {

using test::get_text;
using test::HttpAnswer;
using test::HttpClient;
using test::kAsk;
using test::kChat;
using test::post_text;

class ServeTest : public test::ServeFixture {
 protected:
  [[nodiscard]] double metric_of(const std::string& name) const {
    const std::string text = ask(get_text("/metrics")).body;
    const std::size_t begin = text.find("\n" + name + "{");
    if (begin == std::string::npos) return -1;
    return std::stod(text.substr(text.find("} ", begin) + 2));
  }
};

std::vector<Json> frames_of(const std::string& body) {
  std::vector<Json> frames;
  for (std::size_t at = 0; at < body.size();) {
    const std::size_t end = body.find("\n\n", at);
    const std::string event = body.substr(at, end - at);
    at = end == std::string::npos ? body.size() : end + 2;
    if (event.starts_with("data: {")) frames.push_back(Json::parse(event.substr(6), nullptr, false));
  }
  return frames;
}

TEST_F(ServeTest, AnswersTheSmallEndpoints) {
  serve();
  EXPECT_EQ(ask(get_text("/health")).json()["status"], "ok");
  EXPECT_TRUE(ask(get_text("/version")).json().contains("version"));
  const Json models = ask(get_text("/v1/models")).json();
  EXPECT_EQ(models["data"][0]["id"], "echo");
  EXPECT_EQ(models["data"][1]["id"], "second");
  EXPECT_EQ(models["data"][0]["max_model_len"], 2048);
  EXPECT_EQ(ask(get_text("/v1/models/second")).json()["id"], "second");
  for (const char* const wrong : {"/v1/routing?id=a", "/v1/routing?request=a&b", "/v1/routing?request=%0d"}) {
    EXPECT_EQ(ask(get_text(wrong)).status, 400) << wrong;
  }
  const HttpAnswer missing = ask(get_text("/v1/models/third"));
  EXPECT_EQ(missing.status, 404);
  EXPECT_EQ(missing.json()["error"]["code"], "model_not_found");
  EXPECT_EQ(ask(get_text("/openapi.json")).json()["openapi"], "3.1.0");
  EXPECT_TRUE(ask(get_text("/metrics")).has("vllm:num_requests_running"));
  EXPECT_EQ(ask(get_text("/v1/status")).json()["state"], "ready");
  EXPECT_EQ(ask(get_text("/tokenizer_info")).json()["eos_token"], "<|endoftext|>");
  const HttpAnswer head = ask("HEAD / HTTP/1.1\r\nHost: localhost\r\n\r\n");
  EXPECT_EQ(head.status, 200);
  const HttpAnswer page = ask(get_text("/"));
  EXPECT_TRUE(page.has("Content-Security-Policy: default-src 'none'"));
  for (const Asset& asset : page_assets()) {
    const std::string path = "/page/" + std::string(asset.name);
    const HttpAnswer file = ask(get_text(path));
    EXPECT_EQ(file.body, asset.text) << path;
    EXPECT_TRUE(file.has("Content-Security-Policy: default-src 'none'")) << path;
    EXPECT_EQ(ask(get_text(path, "If-None-Match: " + std::string(asset.tag) + "\r\n")).status, 304) << path;
  }
  for (const char* const path : {"/page/", "/page/absent.js", "/page/../v1/status", "/page/main.js/"})
    EXPECT_EQ(ask(get_text(path)).status, 404) << path;
  EXPECT_EQ(ask(get_text("/nothing")).status, 404);
  EXPECT_EQ(ask(get_text("/../etc/passwd")).status, 404);
  const HttpAnswer method = ask(get_text("/v1/completions"));
  EXPECT_EQ(method.status, 405);
  EXPECT_TRUE(method.has("Allow: POST"));
  EXPECT_EQ(ask("POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nContent-Length: 2\r\n\r\n{}").status, 415);
  const HttpAnswer packed = ask(post_text("/v1/completions", "\x1F\x8B", "Content-Encoding: gzip\r\n"));
  EXPECT_EQ(packed.status, 415);
  EXPECT_TRUE(packed.has("Content-Encoding"));
}

TEST_F(ServeTest, TokenizesAndBack) {
  serve();
  const Json tokens = post("/tokenize", R"({"prompt": "hello wörld"})").json();
  EXPECT_EQ(tokens["count"], tokens["tokens"].size());
  EXPECT_EQ(tokens["max_model_len"], 2048);
  EXPECT_EQ(post("/detokenize", Json{{"tokens", tokens["tokens"]}}.dump()).json()["prompt"], "hello wörld");
  EXPECT_GT(post("/tokenize", R"({"messages": [{"role": "user", "content": "a"}]})").json()["count"], 3);
  const std::string asked = R"({"messages": [{"role": "user", "content": "a"}])";
  const auto count = [&](const std::string& more) { return post("/tokenize", asked + more + "}").json()["count"]; };
  EXPECT_LT(count(R"(, "add_generation_prompt": false)"), count(""));
  for (const char* const more :
       {R"(, "add_special_tokens": "no")", R"(, "add_generation_prompt": 1)", R"(, "return_token_strs": 1)",
        R"(, "chat_template": "{{ 1 }}")", R"(, "tools": [{"type": "function", "function": {"name": "a b"}}])"})
    EXPECT_EQ(post("/tokenize", asked + more + "}").status, 400) << more;
  EXPECT_EQ(post("/tokenize", R"({"prompt": "a", "add_special_tokens": "no"})").status, 400);
  EXPECT_EQ(post("/tokenize", R"({"prompt": "a", "model": "third"})").json()["error"]["code"], "model_not_found");
  EXPECT_EQ(post("/detokenize", R"({"tokens": [1], "model": "third"})").status, 404);
  EXPECT_EQ(post("/detokenize", R"({"tokens": [1], "model": "second"})").status, 200);
  for (const char* const bad : {R"({"tokens": [-1]})", R"({"tokens": [5000]})", R"({"tokens": ["a"]})", "{}"})
    EXPECT_EQ(post("/detokenize", bad).status, 400) << bad;
}

TEST_F(ServeTest, ChatsInOnePiece) {
  serve();
  const HttpAnswer answer = post("/v1/chat/completions", std::string(kChat) + R"(, "seed": 7, "foo": 1})");
  ASSERT_EQ(answer.status, 200) << answer.body;
  EXPECT_TRUE(answer.has("x-moracle-ignored: foo"));
  const Json reply = answer.json();
  EXPECT_EQ(reply["object"], "chat.completion");
  EXPECT_EQ(reply["seed"], 7);
  EXPECT_EQ(post("/v1/chat/completions", std::string(kChat) + R"(, "seed": -7})").json()["seed"], -7);
  EXPECT_EQ(reply["system_fingerprint"], "fp_test");
  EXPECT_EQ(reply["model"], "echo");
  EXPECT_EQ(reply["choices"][0]["finish_reason"], "length");
  EXPECT_TRUE(reply["choices"][0]["message"]["content"].is_string());
  EXPECT_EQ(reply["usage"]["completion_tokens"], 5);
}

TEST_F(ServeTest, BytesOfScoredTokensMakeWholeCharacters) {
  serve();
  const std::string hand = "\xF0\x9F\x91\xA9\xF0\x9F\x8F\xBD";
  const Json reply = post("/v1/chat/completions", R"({"messages": [{"role": "user", "content": ")" + hand +
                                                      R"("}], "max_tokens": 40, "ignore_eos": true, "logprobs": true})")
                         .json();
  std::string bytes;
  int parts = 0;
  for (const Json& token : reply["choices"][0]["logprobs"]["content"]) {
    for (const Json& byte : token["bytes"]) bytes.push_back(static_cast<char>(byte.get<int>()));
    parts += token["token"].get<std::string>().find("\xEF\xBF\xBD") != std::string::npos ? 1 : 0;
  }
  EXPECT_GT(parts, 1);
  EXPECT_NE(bytes.find(hand), std::string::npos);
}

TEST_F(ServeTest, StreamsFramesThatMakeTheSameReply) {
  serve();
  const Json whole =
      post("/v1/chat/completions", std::string(kChat) + R"(, "n": 2, "logprobs": true, "top_logprobs": 2})").json();
  const HttpAnswer answer = post("/v1/chat/completions", std::string(kChat) +
                                                             R"(, "n": 2, "logprobs": true, "top_logprobs": 2,
                                  "stream": true, "stream_options": {"include_usage": true}})");
  EXPECT_TRUE(answer.whole);
  EXPECT_TRUE(answer.has("text/event-stream"));
  EXPECT_TRUE(answer.has("Cache-Control: no-cache"));
  EXPECT_TRUE(answer.has("X-Accel-Buffering: no"));
  EXPECT_TRUE(answer.body.ends_with("data: [DONE]\n\n"));
  const auto frames = frames_of(answer.body);
  std::array<std::string, 2> texts;
  std::array<Json, 2> scores = {Json::array(), Json::array()};
  std::array<int, 2> ends{}, opens{};
  for (std::size_t i = 0; i + 1 < frames.size(); ++i) {
    EXPECT_EQ(frames[i]["id"], frames[0]["id"]);
    EXPECT_TRUE(frames[i]["usage"].is_null());
    ASSERT_EQ(frames[i]["choices"].size(), 1U);
    const Json& choice = frames[i]["choices"][0];
    const auto index = choice["index"].get<std::size_t>();
    EXPECT_EQ(ends[index], 0) << "nothing follows a finish_reason";
    if (choice["delta"].contains("role")) ++opens[index];
    EXPECT_EQ(opens[index], 1);
    texts[index] += choice["delta"].value("content", "");
    if (choice["logprobs"].is_object()) {
      for (const Json& entry : choice["logprobs"]["content"]) scores[index].push_back(entry);
    }
    if (!choice["finish_reason"].is_null()) ++ends[index];
  }
  for (std::size_t i = 0; i < 2; ++i) {
    EXPECT_EQ(Json(texts[i]), whole["choices"][i]["message"]["content"]);
    EXPECT_EQ(scores[i], whole["choices"][i]["logprobs"]["content"]);
    EXPECT_EQ(ends[i], 1);
  }
  EXPECT_EQ(frames.back()["choices"], Json::array());
  EXPECT_EQ(frames.back()["usage"], whole["usage"]);
  EXPECT_TRUE(ask(get_text("/metrics"))
                  .has(R"(http_requests_total{handler="/v1/chat/completions",method="POST",status="2xx"} 2)"));
}

TEST_F(ServeTest, MessagesWithoutContentAreOnesWithAnEmptyText) {
  serve();
  const auto chat = [&](const std::string& content) {
    const HttpAnswer answer =
        post("/v1/chat/completions", R"({"messages": [{"role": "user", "content": "a"}, {"role": "assistant")" +
                                         content + R"(}, {"role": "user", "content": "b"}], "max_tokens": 9,
                                         "return_token_ids": true})");
    EXPECT_EQ(answer.status, 200) << answer.body;
    return answer.json()["choices"][0]["prompt_token_ids"];
  };
  const Json empty = chat(R"(, "content": "")");
  EXPECT_EQ(chat(R"(, "content": null)"), empty);
  EXPECT_EQ(chat(R"(, "content": [])"), empty);
  EXPECT_EQ(chat(""), empty);
}

TEST_F(ServeTest, RefusalsNameTheField) {
  serve();
  const auto param = [&](const char* path, const char* body) {
    const HttpAnswer answer = post(path, body);
    EXPECT_EQ(answer.status, 400) << body;
    return answer.json()["error"]["param"];
  };
  EXPECT_EQ(param("/v1/completions", R"({"prompt": ""})"), "prompt");
  EXPECT_EQ(param("/v1/completions", R"({"prompt": [999999]})"), "prompt");
  EXPECT_EQ(param("/detokenize", R"({"tokens": [999999]})"), "tokens");
  EXPECT_EQ(param("/v1/chat/completions", R"({"messages": [{"role": "user", "content": "a"}], "functions": [1]})"),
            "functions");
}

TEST_F(ServeTest, CompletesTextsListsAndIds) {
  serve();
  const Json ids = post("/tokenize", R"({"prompt": "alpha beta gamma"})").json()["tokens"];
  const Json text = post("/v1/completions", R"({"prompt": "alpha beta gamma", "max_tokens": 4})").json();
  EXPECT_EQ(text["object"], "text_completion");
  Json body = {{"prompt", Json::array({ids, ids})}, {"max_tokens", 4}, {"n", 2}, {"return_token_ids", true}};
  const Json list = post("/v1/completions", body.dump()).json();
  ASSERT_EQ(list["choices"].size(), 4U) << list;
  for (std::size_t i = 0; i < 4; ++i) {
    EXPECT_EQ(list["choices"][i]["index"], i);
    EXPECT_EQ(list["choices"][i]["text"], text["choices"][0]["text"]);
    EXPECT_EQ(list["choices"][i]["token_ids"].size(), 4U);
    EXPECT_EQ(list["choices"][i]["prompt_token_ids"], ids);
  }
  EXPECT_EQ(list["usage"]["prompt_tokens"], 2 * ids.size());
  EXPECT_EQ(list["usage"]["completion_tokens"], 16);
}

TEST_F(ServeTest, EchoesWithScores) {
  serve();
  const HttpAnswer answer =
      post("/v1/completions", R"({"prompt": "alpha beta gamma", "max_tokens": 0, "echo": true, "logprobs": 1})");
  ASSERT_EQ(answer.status, 200) << answer.body;
  const Json choice = answer.json()["choices"][0];
  EXPECT_EQ(choice["text"], "alpha beta gamma");
  const Json& scores = choice["logprobs"];
  const std::size_t count = scores["tokens"].size();
  EXPECT_GT(count, 2U);
  EXPECT_EQ(scores["token_logprobs"].size(), count);
  EXPECT_EQ(scores["top_logprobs"].size(), count);
  EXPECT_EQ(scores["text_offset"].size(), count);
  EXPECT_TRUE(scores["token_logprobs"][0].is_null());
  EXPECT_TRUE(scores["top_logprobs"][0].is_null());
  const std::string token = scores["tokens"][1];
  EXPECT_EQ(scores["token_logprobs"][1], scores["top_logprobs"][1][token]);
}

TEST_F(ServeTest, StopsCutTheTextAcrossTokens) {
  serve();
  const std::string prompt = R"({"prompt": "alpha beta gamma ", "max_tokens": 30, "stop": "ta ga")";
  const Json choice = post("/v1/completions", prompt + "}").json()["choices"][0];
  EXPECT_EQ(choice["text"], "alpha be");
  EXPECT_EQ(choice["finish_reason"], "stop");
  EXPECT_EQ(choice["stop_reason"], "ta ga");
  EXPECT_EQ(post("/v1/completions", prompt + R"(, "include_stop_str_in_output": true})").json()["choices"][0]["text"],
            "alpha beta ga");
  std::string streamed;
  for (const Json& frame : frames_of(post("/v1/completions", prompt + R"(, "stream": true})").body))
    streamed += frame["choices"][0].value("text", "");
  EXPECT_EQ(streamed, "alpha be");
}

TEST_F(ServeTest, FailuresBeforeAndAfterTheFirstByte) {
  serve({.engine = {.fails_after = 2}});
  const HttpAnswer whole = post("/v1/chat/completions", std::string(kChat) + "}");
  EXPECT_EQ(whole.status, 500);
  EXPECT_EQ(whole.json()["error"]["code"], "numeric_error");
  const HttpAnswer stream = post("/v1/chat/completions", std::string(kChat) + R"(, "stream": true})");
  EXPECT_TRUE(stream.whole);
  EXPECT_EQ(stream.body.find("[DONE]"), std::string::npos);
  const auto frames = frames_of(stream.body);
  ASSERT_FALSE(frames.empty());
  EXPECT_TRUE(frames.back().contains("error"));
}

TEST_F(ServeTest, TokensCountOnceHoweverTheReplyEnds) {
  const auto counted = [this](const char* figure) { return ask(get_text("/v1/status")).json()[figure].get<int>(); };
  const std::string asked = R"({"prompt": [7, 8, 9], "max_tokens": 4, "ignore_eos": true)";
  serve();
  EXPECT_EQ(post("/v1/completions", asked + R"(, "n": 2})").status, 200);
  EXPECT_EQ(counted("generated_tokens"), 8);
  EXPECT_EQ(counted("prompt_tokens"), 3);
  TearDown();
  serve({.engine = {.fails_after = 3}});
  EXPECT_EQ(post("/v1/completions", asked + "}").status, 500);
  EXPECT_EQ(counted("generated_tokens"), 3);
  EXPECT_EQ(post("/v1/completions", asked + R"(, "stream": true})").status, 200);
  EXPECT_EQ(counted("generated_tokens"), 6);
  EXPECT_EQ(counted("prompt_tokens"), 6);
  TearDown();
  serve({.engine = {.step = std::chrono::milliseconds(20)}});
  {
    HttpClient client(port_);
    client.send(
        post_text("/v1/completions", R"({"prompt": "a b c", "max_tokens": 500, "ignore_eos": true, "stream": true})"));
    ASSERT_TRUE(client.receive_until("data: "));
  }
  ASSERT_TRUE(reaches("open_requests", 0));
  EXPECT_GE(counted("generated_tokens"), 1);
  EXPECT_LT(counted("generated_tokens"), 500);
  EXPECT_EQ(metric_of("vllm:generation_tokens_total"), counted("generated_tokens"));
  TearDown();
  serve({.engine = {.queue = 0}});
  EXPECT_EQ(post("/v1/completions", asked + "}").status, 429);
  EXPECT_EQ(counted("prompt_tokens"), 0);
}

TEST_F(ServeTest, TheContextIsHeldInTheWordsThatClientsKnow) {
  serve();
  std::string words;
  for (int i = 0; i < 3000; ++i) words += "hello ";
  const HttpAnswer answer = post("/v1/completions", Json{{"prompt", words}}.dump());
  EXPECT_EQ(answer.status, 400);
  EXPECT_EQ(answer.json()["error"]["code"], "context_length_exceeded");
  EXPECT_TRUE(answer.has("This model's maximum context length is 2048 tokens. However, you requested "));
  EXPECT_EQ(post("/v1/chat/completions", std::string(kAsk) + R"(, "max_tokens": 2048})").json()["error"]["code"],
            "context_length_exceeded");
}

TEST_F(ServeTest, NamesOfTheHubAreFoundAsClientsSpellThem) {
  serve({.service = {.names = {"org/a model"}}});
  for (const char* const path :
       {"/v1/models/org/a%20model", "/v1/models/org%2Fa%20model", "/v1/models/org%2fa%20model"}) {
    EXPECT_EQ(ask(get_text(path)).json()["id"], "org/a model") << path;
  }
  for (const char* const path :
       {"/v1/models/org%2", "/v1/models/org%zza%20model", "/v1/models/%", "/v1/models/%ff%00"}) {
    EXPECT_EQ(ask(get_text(path)).status, 404) << path;
  }
}

TEST_F(ServeTest, UnknownModelsAreNotFound) {
  serve();
  const HttpAnswer answer = post("/v1/chat/completions", std::string(kChat) + R"(, "model": "gpt-4"})");
  EXPECT_EQ(answer.status, 404);
  EXPECT_EQ(answer.json()["error"]["code"], "model_not_found");
  EXPECT_EQ(post("/v1/chat/completions", std::string(kChat) + R"(, "model": "second"})").json()["model"], "second");
}

TEST_F(ServeTest, TellsOfTheLoadUntilItIsDone) {
  serve({.ready = false});
  service_->set_progress(1, 4);
  const HttpAnswer health = ask(get_text("/health"));
  EXPECT_EQ(health.status, 503);
  EXPECT_EQ(health.json()["progress"], 0.25);
  EXPECT_TRUE(health.has("Retry-After: "));
  EXPECT_EQ(ask(get_text("/readyz")).status, 503);
  EXPECT_EQ(ask(get_text("/livez")).status, 200);
  const HttpAnswer early = post("/v1/chat/completions", std::string(kChat) + "}");
  EXPECT_EQ(early.status, 503);
  EXPECT_TRUE(early.has("Retry-After: "));
  make_ready();
  for (const char* const path : {"/health", "/livez", "/readyz"}) EXPECT_EQ(ask(get_text(path)).status, 200) << path;
  engine_->stalled_s = 61;
  for (const char* const path : {"/health", "/livez", "/readyz"}) EXPECT_EQ(ask(get_text(path)).status, 503) << path;
}

TEST_F(ServeTest, RetryAfterFollowsWhatWaitsAndHowFastRequestsEnd) {
  serve({.engine = {.step = std::chrono::milliseconds(20), .running = 1}});
  engine_->stalled_s = 61;
  engine_->request_seconds = 7;
  EXPECT_TRUE(ask(get_text("/health")).has("Retry-After: 1\r\n")) << "nothing waits";
  HttpClient busy(port_);
  busy.send(post_text("/v1/completions", R"({"prompt": "a b c", "max_tokens": 500, "n": 3})"));
  ASSERT_TRUE(reaches("waiting", 2));
  EXPECT_TRUE(ask(get_text("/health")).has("Retry-After: 14\r\n"));
  engine_->request_seconds = 700;
  EXPECT_TRUE(ask(get_text("/health")).has("Retry-After: 60\r\n"));
}

TEST_F(ServeTest, DrainingTakesNothingNewAndFinishesTheRest) {
  serve({.engine = {.step = std::chrono::milliseconds(20)}});
  HttpClient busy(port_);
  busy.send(post_text("/v1/completions", R"({"prompt": "a b c", "max_tokens": 30})"));
  ASSERT_TRUE(reaches("open_requests", 1));
  HttpClient early(port_);  // has asked nothing yet
  HttpClient other(port_);
  other.send(get_text("/health"));
  EXPECT_EQ(other.answer().status, 200);
  server_->post([&] {
    service_->set_draining();
    server_->drain();
  });
  EXPECT_EQ(other.receive(3000), "");
  early.send(get_text("/health"));
  EXPECT_EQ(early.answer().status, 503);
  const HttpAnswer late = post("/v1/completions", R"({"prompt": "a b c"})");
  EXPECT_EQ(late.status, 503);
  EXPECT_TRUE(late.has("Connection: close"));
  EXPECT_TRUE(late.has("Retry-After: "));
  const HttpAnswer health = ask(get_text("/health"));
  EXPECT_EQ(health.status, 503);
  EXPECT_EQ(health.json()["status"], "draining");
  EXPECT_EQ(busy.answer().json()["usage"]["completion_tokens"], 30);
}

TEST_F(ServeTest, ManyStreamsEndRight) {
  constexpr int kStreams = 200;
  serve({.engine = {.step = std::chrono::milliseconds(1), .running = 32}});
  std::vector<std::unique_ptr<HttpClient>> clients;
  for (int i = 0; i < kStreams; ++i) {
    clients.push_back(std::make_unique<HttpClient>(port_));
    ASSERT_TRUE(clients.back()->send(
        post_text("/v1/completions", R"({"prompt": "a b c d", "max_tokens": 9, "stream": true})")));
  }
  for (const auto& client : clients) {
    const HttpAnswer answer = client->answer(true, 30000);
    EXPECT_EQ(answer.status, 200);
    EXPECT_TRUE(answer.body.ends_with("data: [DONE]\n\n"));
  }
  EXPECT_TRUE(reaches("open_requests", 0));
}

}  // namespace
}  // namespace moracle::serve
