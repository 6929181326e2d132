// A server on a port of this machine, with an engine that echoes.
#pragma once

#include <gtest/gtest.h>

#include <chrono>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <thread>
#include <utility>

#include "checkpoint/checkpoint.h"
#include "serve/service.h"
#include "support/fake_engine.h"
#include "support/http_client.h"
#include "support/test_data.h"
#include "text/constrain/model_outputs.h"

namespace moracle::test {

// Bodies of chats, to be ended by further fields and a brace.
inline constexpr const char* kAsk = R"({"messages": [{"role": "user", "content": "one two three"}])";
inline constexpr const char* kChat = R"({"messages": [{"role": "user", "content": "one two three"}], "max_tokens": 5)";

class ServeFixture : public ::testing::Test {
 protected:
  struct Setup {
    EchoEngine::Options engine{};
    serve::HttpOptions http{};
    serve::ServiceOptions service{};
    serve::AccessRules access{};
    bool ready = true;
  };

  static void SetUpTestSuite() {
    const auto folder = source_dir() / "examples/models/qwen3moe-gptq-w4g128-sym";
    const auto config = Checkpoint::read_config(folder);
    ASSERT_TRUE(config.ok());
    auto text = ModelText::open(folder, *config, true);
    ASSERT_TRUE(text.ok()) << text.error().message();
    text_ = std::make_unique<ModelText>(*std::move(text));
  }
  static void TearDownTestSuite() { text_.reset(); }

  void serve() { serve(Setup()); }
  void serve(Setup setup) {
    setup.http.port = 0;
    if (setup.service.names.empty()) setup.service.names = {"echo", "second"};
    engine_ = std::make_unique<EchoEngine>(setup.engine);
    service_ = std::make_unique<serve::Service>(setup.service, setup.access, log_);
    auto server = serve::HttpServer::open(setup.http, *service_);
    ASSERT_TRUE(server.ok()) << server.error().message();
    server_ = *std::move(server);
    service_->attach(*server_);
    if (setup.ready) make_ready();
    server_->start();
    const std::string address = server_->address();
    port_ = static_cast<std::uint16_t>(std::stoi(address.substr(address.rfind(':') + 1)));
  }
  void make_ready() {
    const auto vocabulary = static_cast<std::int32_t>(text_->info()->vocab_size);
    service_->set_ready({.text = text_.get(),
                         .outputs = std::make_shared<ModelOutputs>(text_->tokenizer(), text_->reply_format(),
                                                                   text_->call_format(), vocabulary),
                         .engine = engine_.get(),
                         .context = 2048,
                         .fingerprint = "fp_test"});
  }
  void TearDown() override {
    if (engine_) engine_->stop();
    if (service_) service_->stop_preparing();
    server_.reset();
    engine_.reset();  // replies that it holds know the service
    service_.reset();
  }

  [[nodiscard]] HttpAnswer ask(const std::string& request) const {
    HttpClient client(port_);
    EXPECT_TRUE(client.connected());
    client.send(request);
    return client.answer(!request.starts_with("HEAD"));
  }
  [[nodiscard]] HttpAnswer post(std::string_view path, std::string_view body) const {
    return ask(post_text(path, body));
  }
  // Until the figure of /v1/status has the value; false: it did not within five seconds.
  [[nodiscard]] bool reaches(const char* figure, std::int64_t value) const {
    for (int i = 0; i < 100; ++i) {
      if (ask(get_text("/v1/status")).json().value(figure, std::int64_t{-1}) == value) return true;
      std::this_thread::sleep_for(std::chrono::milliseconds(50));
    }
    return false;
  }

  static inline std::unique_ptr<ModelText> text_;
  serve::EventLog log_{-1};
  std::unique_ptr<EchoEngine> engine_;
  std::unique_ptr<serve::Service> service_;
  std::unique_ptr<serve::HttpServer> server_;
  std::uint16_t port_ = 0;
};

}  // namespace moracle::test
