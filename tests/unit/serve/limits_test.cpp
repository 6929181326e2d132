// Clients that leave, stall, trickle, crowd or mislead, of a server with an engine that echoes.
#include <gtest/gtest.h>
#include <ifaddrs.h>
#include <net/if.h>

#include <future>
#include <memory>
#include <thread>
#include <vector>

#include "serve/service.h"
#include "support/serve_fixture.h"

namespace moracle::serve {
namespace {

using test::get_text;
using test::HttpAnswer;
using test::HttpClient;
using test::kAsk;
using test::kChat;
using test::post_text;

class ServeLimits : public test::ServeFixture {};

// An IPv4 address of this machine off loopback; empty: it has none.
std::string own_address() {
  ifaddrs* all = nullptr;
  if (getifaddrs(&all) != 0) return "";
  std::string found;
  for (const ifaddrs* one = all; one != nullptr && found.empty(); one = one->ifa_next) {
    const bool usable = (one->ifa_flags & IFF_UP) != 0 && (one->ifa_flags & IFF_LOOPBACK) == 0;
    if (!usable || one->ifa_addr == nullptr || one->ifa_addr->sa_family != AF_INET) continue;
    char text[INET_ADDRSTRLEN] = {};
    inet_ntop(AF_INET, &reinterpret_cast<const sockaddr_in*>(one->ifa_addr)->sin_addr, text, sizeof text);
    found = text;
  }
  freeifaddrs(all);
  return found;
}

TEST_F(ServeLimits, AFullQueueIsTooManyRequests) {
  serve({.engine = {.queue = 0}});
  const HttpAnswer answer = post("/v1/chat/completions", std::string(kChat) + R"(, "stream": true})");
  EXPECT_EQ(answer.status, 429);
  EXPECT_TRUE(answer.has("Retry-After: "));
  EXPECT_EQ(answer.json()["error"]["type"], "rate_limit_exceeded");
}

TEST_F(ServeLimits, AClientThatLeavesEndsItsRequest) {
  serve({.engine = {.step = std::chrono::milliseconds(5)}});
  const std::string body = std::string(kAsk) + R"(, "max_tokens": 1000, "ignore_eos": true)";
  for (const char* const stream : {R"(, "stream": true})", "}"}) {
    {
      HttpClient client(port_);
      client.send(post_text("/v1/chat/completions", body + stream));
      ASSERT_TRUE(reaches("open_requests", 1));
    }
    EXPECT_TRUE(reaches("open_requests", 0)) << stream;
  }
  HttpClient half(port_);
  half.send(post_text("/v1/chat/completions", body + "}"));
  ASSERT_TRUE(reaches("open_requests", 1));
  half.half_close();
  EXPECT_TRUE(reaches("open_requests", 0));
  HttpClient pipelined(port_);
  pipelined.send(post_text("/v1/completions", R"({"prompt": "a b c", "max_tokens": 20})") + get_text("/health"));
  EXPECT_EQ(pipelined.answer().status, 200);
  EXPECT_EQ(pipelined.answer().json()["status"], "ok");
}

TEST_F(ServeLimits, AReaderThatStallsIsLeft) {
  // By what is queued, and, where its request is held meanwhile, by the time.
  for (const HttpOptions& http : {HttpOptions{.stream_bytes = 65536, .backlog_bytes = std::size_t{1} << 20},
                                  HttpOptions{.backlog_bytes = 1024, .write_s = 0.5}}) {
    serve({.engine = {.step = std::chrono::microseconds(500)}, .http = http});
    HttpClient client(port_);
    client.send(post_text("/v1/completions",
                          R"({"prompt": "a b c", "max_tokens": 2000, "n": 16, "logprobs": 20, "stream": true})"));
    ASSERT_TRUE(client.receive_until("data: "));
    EXPECT_TRUE(reaches("open_requests", 0));
    EXPECT_EQ(ask(get_text("/health")).status, 200);
    TearDown();
  }
}

TEST_F(ServeLimits, WhatNobodyReadsIsNotMade) {
  serve({.engine = {.step = std::chrono::milliseconds(2)}, .http = {.backlog_bytes = 4096}});
  HttpClient client(port_);
  client.send(
      post_text("/v1/completions", R"({"prompt": "a b c", "max_tokens": 1000, "logprobs": 20, "stream": true})"));
  ASSERT_TRUE(client.receive_until("data: "));
  // The system's own buffers fill first, in steps: it tries the reader again after longer and longer times.
  for (int i = 0, seen = 0, same = 0; i < 100 && same < 5; ++i) {
    std::this_thread::sleep_for(std::chrono::milliseconds(200));
    same = engine_->holds == seen && seen == engine_->releases + 1 ? same + 1 : 0;
    seen = engine_->holds;
  }
  EXPECT_EQ(engine_->holds, engine_->releases + 1);
  const int before = engine_->releases;
  const HttpAnswer answer = client.answer(true, 30000);
  EXPECT_TRUE(answer.whole);
  EXPECT_TRUE(answer.body.ends_with("data: [DONE]\n\n"));
  EXPECT_GT(engine_->releases, before);
}

// Tokens come faster than the I/O thread tells of them: 8 MB, where a stream may have 64 KiB that were not taken.
TEST_F(ServeLimits, AReaderThatKeepsUpIsNotLeftForALateServer) {
  serve({.http = {.stream_bytes = 65536}});
  HttpClient client(port_);
  client.send(post_text(
      "/v1/completions",
      R"({"prompt": "a b c", "max_tokens": 200, "n": 16, "logprobs": 20, "stream": true, "stream_options": {"include_usage": true}})"));
  const HttpAnswer answer = client.answer(true, 30000);
  EXPECT_TRUE(answer.whole);
  EXPECT_TRUE(answer.has(R"("completion_tokens":3200)"));
}

TEST_F(ServeLimits, SilentStreamsAreKeptAlive) {
  serve({.engine = {.step = std::chrono::milliseconds(20), .running = 0}, .http = {.keep_alive_s = 0.3}});
  HttpClient client(port_);
  client.send(post_text("/v1/chat/completions", std::string(kChat) + R"(, "stream": true})"));
  EXPECT_TRUE(client.receive_until(": keep-alive\n\n"));
}

TEST_F(ServeLimits, SlowSendersAreLeft) {
  serve({.http = {.header_s = 0.3, .body_rate = 1e6, .idle_s = 0.3}});
  HttpClient head(port_);
  head.send("GET /health HT");
  EXPECT_EQ(head.answer().status, 408);
  HttpClient body(port_);
  body.send(
      "POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: "
      "100\r\n\r\n{");
  EXPECT_EQ(body.answer().status, 408);
  HttpClient idle(port_);
  EXPECT_EQ(idle.receive(3000), "");
}

// While the thread that prepares requests is busy, their bodies count; a client that leaves takes its own along.
TEST_F(ServeLimits, BodiesThatWaitAreBounded) {
  serve({.http = {.bodies_bytes = 100000}});
  std::string words;
  for (int i = 0; i < 10000; ++i) words += "hello ";
  const std::string body = Json{{"prompt", words}}.dump();
  const auto size = static_cast<std::int64_t>(body.size());
  std::promise<void> free;
  service_->post_preparing([gate = free.get_future().share()] { gate.wait(); });
  for (const char* const path : {"/tokenize", "/v1/completions"}) {
    ASSERT_TRUE(reaches("body_bytes", 0)) << "the one before has left";
    HttpClient first(port_);
    first.send(post_text(path, body));
    ASSERT_TRUE(reaches("body_bytes", size)) << path;
    const HttpAnswer second = post(path, body);
    EXPECT_EQ(second.status, 503) << path;
    EXPECT_TRUE(second.has("Retry-After: ")) << path;
    EXPECT_EQ(second.json()["error"]["code"], "busy") << path;
  }
  ASSERT_TRUE(reaches("body_bytes", 0));
  HttpClient last(port_);
  last.send(post_text("/tokenize", body));
  ASSERT_TRUE(reaches("body_bytes", size));
  free.set_value();
  EXPECT_EQ(last.answer().status, 200);
  EXPECT_TRUE(reaches("body_bytes", 0));
}

TEST_F(ServeLimits, ConnectionsAreBounded) {
  serve({.http = {.connections = 3}});
  std::vector<std::unique_ptr<HttpClient>> clients;
  for (int i = 0; i < 3; ++i) {
    clients.push_back(std::make_unique<HttpClient>(port_));
    clients.back()->send(get_text("/health"));
    EXPECT_EQ(clients.back()->answer().status, 200);
  }
  HttpClient one_more(port_);
  EXPECT_EQ(one_more.answer().status, 429);
  clients.clear();
  std::this_thread::sleep_for(std::chrono::milliseconds(600));
  EXPECT_EQ(ask(get_text("/health")).status, 200);
}

TEST_F(ServeLimits, ConnectionsOfOneAddressAreBounded) {
  const std::string own = own_address();
  if (own.empty()) GTEST_SKIP() << "this machine has no IPv4 address off loopback";
  serve({.http = {.listen = "0.0.0.0", .connections_per_peer = 2}});
  std::vector<std::unique_ptr<HttpClient>> clients;
  for (int i = 0; i < 2; ++i) {
    clients.push_back(std::make_unique<HttpClient>(port_, own));
    clients.back()->send(get_text("/health"));
    EXPECT_EQ(clients.back()->answer().status, 200);
  }
  HttpClient one_more(port_, own);
  const HttpAnswer refused = one_more.answer();
  EXPECT_EQ(refused.status, 429);
  EXPECT_TRUE(refused.has("2 of one address"));
  EXPECT_EQ(ask(get_text("/health")).status, 200);  // loopback is not counted
}

TEST_F(ServeLimits, AmbiguousRequestsAreRefusedAndTheConnectionCloses) {
  serve();
  const std::string head = "POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n";
  const std::string hidden = "GET /version HTTP/1.1\r\nHost: localhost\r\n\r\n";
  const std::vector<std::string> requests = {
      head + "Content-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n" + hidden,            // CL.TE
      head + "Transfer-Encoding: chunked\r\nContent-Length: 5\r\n\r\n0\r\n\r\n" + hidden,            // TE.CL
      head + "Transfer-Encoding: chunked\r\nTransfer-Encoding: identity\r\n\r\n0\r\n\r\n" + hidden,  // TE.TE
      head + "Transfer-Encoding: xchunked\r\n\r\n0\r\n\r\n" + hidden,
      head + "Transfer-Encoding: chunked, identity\r\n\r\n" + hidden,
      head + "Transfer-Encoding: gzip, chunked\r\n\r\n0\r\n\r\n" + hidden,
      head + "Transfer-Encoding : chunked\r\n\r\n0\r\n\r\n" + hidden,
      head + "Content-Length: 5\r\nContent-Length: 6\r\n\r\n{\"a\":1" + hidden,
      head + "Content-Length: -1\r\n\r\n" + hidden,
      head + "Content-Length: 0x5\r\n\r\n{\"a\"1" + hidden,
      head + "Content-Length: 99999999999999999999\r\n\r\n" + hidden,
      "POST /v1/completions HTTP/1.1\nHost: localhost\n\n" + hidden,  // bare LF
      "GET /health HTTP/1.1\r\nHost: localhost\r\nHost: evil\r\n\r\n" + hidden,
      "GET /health HTTP/1.1\r\n\r\n" + hidden,
      "GET http://localhost/health HTTP/1.1\r\nHost: localhost\r\n\r\n" + hidden,
      "POST /v1/completions HTTP/1.0\r\nTransfer-Encoding: chunked\r\nContent-Type: application/json\r\n\r\n0\r\n\r\n" +
          hidden,
      head + "Transfer-Encoding: chunked\r\n\r\nfffffffffffffffff\r\n" + hidden,
      "\x16\x03\x01\x02" + hidden,                                        // TLS
      head + "X: a\r\n b\r\nContent-Length: 5\r\n\r\n{\"a\":1" + hidden,  // obs-fold
      head + "Transfer-Encoding:\r\n\tchunked\r\n\r\n0\r\n\r\n" + hidden,
  };
  for (const std::string& request : requests) {
    HttpClient client(port_);
    client.send(request);
    const HttpAnswer answer = client.answer();
    EXPECT_TRUE(answer.status == 400 || answer.status == 413) << answer.status << "\n" << request;
    EXPECT_TRUE(answer.has("Connection: close")) << request;
    EXPECT_EQ(client.receive(3000), "") << "a second answer to\n" << request;
  }
  EXPECT_EQ(ask(head + "Content-Length: 999999999\r\n\r\n").status, 413);
  EXPECT_EQ(ask("GET /health HTTP/1.1\r\nHost: localhost\r\nX: " + std::string(20000, 'a') + "\r\n\r\n").status, 431);
  EXPECT_EQ(ask("GET /health HTTP/1.1\r\nHost: evil.example\r\n\r\n").status, 403);
  EXPECT_EQ(ask(get_text("/health", "Origin: http://evil.example\r\n")).status, 403);
  EXPECT_EQ(ask("GET /health HTTP/1.0\r\n\r\n").status, 200);  // a probe
  EXPECT_EQ(ask("GET /health HTTP/1.0\r\nHost: evil.example\r\n\r\n").status, 403);
  EXPECT_EQ(ask("GET /version HTTP/1.0\r\n\r\n").status, 403);
  // A chunked body with an extension and a trailer is one.
  EXPECT_EQ(ask(head + "Transfer-Encoding: chunked\r\n\r\n1;x=y\r\n{\r\n1\r\n}\r\n0\r\nT: v\r\n\r\n")
                .json()["error"]["param"],
            "prompt");
  HttpClient expecting(port_);
  expecting.send(head + "Content-Length: 2\r\nExpect: 100-continue\r\n\r\n");
  EXPECT_EQ(expecting.answer(false).status, 100);
  expecting.send("{}");
  EXPECT_EQ(expecting.answer().status, 400);
}

TEST_F(ServeLimits, KeysAndOrigins) {
  serve({.access = {.keys = {{"ann", "secret-of-ann"}}, .cors_origins = {"https://chat.example"}}});
  EXPECT_EQ(ask(get_text("/v1/models")).status, 401);
  EXPECT_EQ(ask(get_text("/metrics")).status, 401);
  EXPECT_EQ(ask(get_text("/health")).status, 200);
  const std::string key = "Authorization: Bearer secret-of-ann\r\n";
  EXPECT_EQ(ask(get_text("/v1/models", key)).status, 200);
  const HttpAnswer shared = ask(get_text("/v1/models", key + "Origin: https://chat.example\r\n"));
  EXPECT_TRUE(shared.has("Access-Control-Allow-Origin: https://chat.example"));
  EXPECT_FALSE(shared.has("Access-Control-Allow-Credentials"));
  const std::string stream = R"({"prompt": "a", "stream": true})";
  const std::string origin = "Origin: https://chat.example\r\n";
  for (const HttpAnswer& answer :
       {ask(post_text("/v1/completions", stream, key + origin)), ask(post_text("/v1/completions", "{}", key + origin)),
        ask(get_text("/v1/models", origin)), ask(get_text("/nowhere", key + origin)),
        ask(get_text("/v1/completions", key + origin))})
    EXPECT_TRUE(answer.has("Access-Control-Allow-Origin: https://chat.example")) << answer.head;
  EXPECT_FALSE(ask(post_text("/v1/completions", stream, key)).has("Access-Control"));
  const HttpAnswer preflight =
      ask("OPTIONS /v1/models HTTP/1.1\r\nHost: localhost\r\nOrigin: https://chat.example\r\n\r\n");
  EXPECT_EQ(preflight.status, 204);
  EXPECT_TRUE(
      preflight.has("Access-Control-Allow-Headers: *, authorization\r\n"));  // openai-node has a dozen of its own
  EXPECT_EQ(ask("OPTIONS /v1/models HTTP/1.1\r\nHost: localhost\r\n\r\n").status, 401);
}

TEST_F(ServeLimits, OriginsReadWhatIsWrongWithTheirRequests) {
  serve({.http = {.header_bytes = 1024, .body_bytes = 1024, .header_s = 0.3, .body_rate = 1e6},
         .access = {.cors_origins = {"https://chat.example"}}});
  const std::string origin = "Origin: https://chat.example\r\n";
  const std::string large(2000, 'a');
  const std::string slow = "POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n" +
                           origin + "Content-Length: 100\r\n\r\n{";
  for (const auto& [text, status] :
       {std::pair(post_text("/v1/completions", large, origin), 413),
        std::pair(get_text("/health", origin + "X-Large: " + large + "\r\n"), 431), std::pair(slow, 408)}) {
    const HttpAnswer answer = ask(text);
    EXPECT_EQ(answer.status, status);
    EXPECT_TRUE(answer.has("Access-Control-Allow-Origin: https://chat.example")) << answer.head;
  }
}

TEST_F(ServeLimits, InventedMethodsAreOneSeries) {
  serve();
  for (const char* const method : {"FIRST", "SECOND", "THIRD"})
    EXPECT_EQ(ask(std::string(method) + " /health HTTP/1.1\r\nHost: localhost\r\n\r\n").status, 405);
  const std::string metrics = ask(get_text("/metrics")).body;
  EXPECT_EQ(metrics.find("SECOND"), std::string::npos);
  EXPECT_NE(metrics.find(R"(method="none",status="4xx"} 3)"), std::string::npos) << metrics;
}

}  // namespace
}  // namespace moracle::serve
