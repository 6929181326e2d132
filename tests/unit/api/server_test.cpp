// The server through its C interface.
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <string>

#include "support/http_client.h"
#include "unit/api/c_call.h"

namespace moracle::test {
namespace {

class CServer : public ::testing::Test {
 protected:
  void SetUp() override {
    engine_ = opened_engine(checkpoint_folder(kQwen));
    ASSERT_NE(engine_, nullptr);
  }
  void TearDown() override {
    if (engine_ != nullptr) {
      EXPECT_EQ(moracle_engine_close(engine_), MORACLE_OK);
    }
  }

  static moracle_server_options anywhere() {
    moracle_server_options options{};
    options.size = sizeof options;
    return options;
  }
  moracle_server* open(const moracle_server_options& options) {
    moracle_server* server = nullptr;
    CallError error;
    EXPECT_EQ(moracle_server_open(engine_, &options, &server, &error.error), MORACLE_OK) << error.message();
    return server;
  }
  static std::uint16_t port_of(moracle_server* server) {
    const Json described =
        document_of([&](char** json, moracle_error** error) { return moracle_server_json(server, json, error); });
    const std::string address = described["address"];
    return static_cast<std::uint16_t>(std::stoi(address.substr(address.rfind(':') + 1)));
  }
  std::string refused(moracle_status status, const moracle_server_options& options) {
    moracle_server* server = nullptr;
    return code_of(status, [&](auto** error) { return moracle_server_open(engine_, &options, &server, error); });
  }

  moracle_engine* engine_ = nullptr;
};

#ifdef MORACLE_SERVE

TEST_F(CServer, KeepsItsEngineAndEndsOnce) {
  moracle_server* const server = open(anywhere());
  EXPECT_EQ(moracle_engine_close(engine_), MORACLE_OK);
  engine_ = nullptr;
  const std::uint16_t port = port_of(server);
  {
    HttpClient client(port);
    client.send(post_text("/v1/completions", R"({"prompt": "The", "max_tokens": 2, "ignore_eos": true})"));
    const HttpAnswer answer = client.answer();
    EXPECT_EQ(answer.status, 200);
    EXPECT_EQ(answer.json()["usage"]["completion_tokens"], 2);
  }
  std::int32_t ended = 1;
  EXPECT_EQ(moracle_server_wait(server, 0, &ended, nullptr), MORACLE_OK);
  EXPECT_EQ(ended, 0);
  EXPECT_EQ(moracle_server_stop(server, nullptr), MORACLE_OK);
  EXPECT_EQ(moracle_server_wait(server, -1, &ended, nullptr), MORACLE_OK);
  EXPECT_EQ(ended, 1);
  EXPECT_EQ(moracle_server_close(server), MORACLE_OK);
  EXPECT_EQ(moracle_server_close(server), MORACLE_INVALID);
  EXPECT_EQ(code_of(MORACLE_INVALID, [&](auto** error) { return moracle_server_stop(server, error); }),
            "handle.closed");
}

TEST_F(CServer, ASecondStopEndsWhatIsUnderWay) {
  moracle_server_options options = anywhere();
  options.drain_s = 3600;
  moracle_server* const server = open(options);
  HttpClient client(port_of(server));
  client.send(post_text("/v1/completions",
                        R"({"prompt": "The", "max_tokens": 200, "ignore_eos": true, "n": 16, "stream": true})"));
  ASSERT_TRUE(client.receive_until("data: {"));
  std::int32_t ended = 1;
  EXPECT_EQ(moracle_server_stop(server, nullptr), MORACLE_OK);
  EXPECT_EQ(moracle_server_wait(server, 0, &ended, nullptr), MORACLE_OK);
  EXPECT_EQ(ended, 0);
  EXPECT_EQ(moracle_server_stop(server, nullptr), MORACLE_OK);
  EXPECT_EQ(moracle_server_wait(server, 60, &ended, nullptr), MORACLE_OK);
  EXPECT_EQ(ended, 1);
  EXPECT_FALSE(client.receive_until("[DONE]"));
  EXPECT_EQ(moracle_server_close(server), MORACLE_OK);
}

TEST_F(CServer, TakesWhatAnOlderHeaderHas) {
  moracle_server_options older = anywhere();
  older.size = offsetof(moracle_server_options, names);
  older.name_count = 1;  // beyond what it had
  EXPECT_EQ(moracle_server_close(open(older)), MORACLE_OK);
  EXPECT_EQ(moracle_server_close(open(anywhere())), MORACLE_OK);
  moracle_server* server = nullptr;
  EXPECT_EQ(moracle_server_open(engine_, nullptr, &server, nullptr), MORACLE_OK);
  EXPECT_EQ(moracle_server_close(server), MORACLE_OK);
}

TEST_F(CServer, WrongOptionsAreErrors) {
  moracle_server* const first = open(anywhere());
  moracle_server_options options = anywhere();
  options.port = port_of(first);
  EXPECT_EQ(refused(MORACLE_FAILED, options), "server.listen");
  EXPECT_EQ(moracle_server_close(first), MORACLE_OK);
  const auto with = [&](moracle_status status, const auto& change) {
    moracle_server_options changed = anywhere();
    change(changed);
    return refused(status, changed);
  };
  static const char* const kShort = "me:short";
  static const char* const kBroken = "\xFF";
  EXPECT_EQ(with(MORACLE_INVALID, [](auto& o) { o.port = 65536; }), "argument.range");
  EXPECT_EQ(with(MORACLE_INVALID, [](auto& o) { o.size = 4; }), "argument.size");
  EXPECT_EQ(with(MORACLE_INVALID, [](auto& o) { o.name_count = 1; }), "argument.null");
  EXPECT_EQ(with(MORACLE_INVALID, [](auto& o) { o.name_count = UINT64_MAX; }), "argument.range");
  EXPECT_EQ(with(MORACLE_INVALID, [](auto& o) { o.hosts = &kBroken, o.host_count = 1; }), "argument.utf8");
  EXPECT_EQ(with(MORACLE_INVALID, [](auto& o) { o.drain_s = std::numeric_limits<double>::quiet_NaN(); }),
            "argument.range");
  EXPECT_EQ(with(MORACLE_FAILED, [](auto& o) { o.keys = &kShort, o.key_count = 1; }), "access.keys");
  EXPECT_EQ(with(MORACLE_FAILED, [](auto& o) { o.listen = "0.0.0.0"; }), "access.open");
  EXPECT_EQ(with(MORACLE_FAILED, [](auto& o) { o.listen = "nowhere", o.everybody = 1; }), "server.address");
  moracle_scheduler_options scheduler{};
  scheduler.size = sizeof scheduler;
  scheduler.context = INT64_MAX;
  EXPECT_EQ(with(MORACLE_INVALID, [&](auto& o) { o.scheduler = &scheduler; }), "argument.range");
  EXPECT_EQ(
      code_of(MORACLE_INVALID, [&](auto** error) { return moracle_server_open(engine_, nullptr, nullptr, error); }),
      "argument.null");
}

TEST_F(CServer, HandlesThatAreNone) {
  auto* const other = reinterpret_cast<moracle_server*>(engine_);
  std::int32_t ended = 0;
  char* json = nullptr;
  EXPECT_EQ(code_of(MORACLE_INVALID, [&](auto** error) { return moracle_server_json(other, &json, error); }),
            "handle.kind");
  EXPECT_EQ(code_of(MORACLE_INVALID, [&](auto** error) { return moracle_server_wait(nullptr, 0, &ended, error); }),
            "handle.null");
  EXPECT_EQ(moracle_server_close(other), MORACLE_INVALID);
  EXPECT_EQ(moracle_server_close(nullptr), MORACLE_INVALID);
  moracle_server* server = nullptr;
  EXPECT_EQ(code_of(MORACLE_INVALID,
                    [&](auto** error) {
                      return moracle_server_open(reinterpret_cast<moracle_engine*>(&json), nullptr, &server, error);
                    }),
            "handle.closed");
  moracle_server* const open_one = open(anywhere());
  EXPECT_EQ(code_of(MORACLE_INVALID,
                    [&](auto** error) { return moracle_server_wait(open_one, std::nan(""), &ended, error); }),
            "argument.range");
  EXPECT_EQ(moracle_server_close(open_one), MORACLE_OK);
}

#else

TEST_F(CServer, IsAbsentWithoutBoost) {
  EXPECT_EQ(refused(MORACLE_FAILED, anywhere()), "server.absent");
}

#endif

}  // namespace
}  // namespace moracle::test
