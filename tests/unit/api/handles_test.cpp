// Handles that are null, foreign, closed, of another kind or of another process; and the engine.
#include <sys/wait.h>
#include <unistd.h>

#include <cstddef>
#include <thread>
#include <vector>

#include "support/subprocess.h"
#include "unit/api/c_call.h"

namespace moracle::test {
namespace {

class CEngine : public ::testing::Test {
 protected:
  static moracle_generate_options some_tokens(std::int64_t count) {
    moracle_generate_options options{};
    options.size = sizeof options;
    options.set = MORACLE_SET_MAX_TOKENS | MORACLE_SET_TEMPERATURE;
    options.max_tokens = count;
    return options;
  }
  const std::string folder_ = checkpoint_folder(kQwen);
};

// A caller that was built before the choice existed passes a shorter struct.
TEST_F(CEngine, KeepsKeysAndValuesAsAsked) {
  moracle_engine_options older{};
  older.size = offsetof(moracle_engine_options, kv);
  older.kv = "no number";
  moracle_engine* engine = nullptr;
  CallError error;
  ASSERT_EQ(moracle_engine_open(folder_.c_str(), &older, &engine, &error.error), MORACLE_OK) << error.message();
  EXPECT_EQ(moracle_engine_close(engine), MORACLE_OK);
  older.size = sizeof older;
  EXPECT_EQ(moracle_engine_open(folder_.c_str(), &older, &engine, &error.error), MORACLE_INVALID);
  EXPECT_EQ(error.code(), "argument.name");

  const std::string prompt = "The old man went";
  for (const char* const kv : {"f32", "int8"}) {
    engine = opened_engine(folder_, kv);
    const auto ids = tokens_of(engine, prompt);
    const auto options = some_tokens(12);
    const Json reply = document_of([&](char** json, moracle_error** failed) {
      return moracle_engine_generate(engine, ids.data(), ids.size(), prompt.c_str(), &options, nullptr, nullptr, json,
                                     failed);
    });
    const RunOutcome run = run_process(
        {MORACLE_BINARY, "run", folder_, "-p", prompt, "-n", "12", "--temperature", "0", "--kv", kv, "--json"});
    EXPECT_EQ(reply.at("text"), Json::parse(run.out).at("text")) << kv;
    EXPECT_EQ(moracle_engine_close(engine), MORACLE_OK);
  }
}

TEST_F(CEngine, GeneratesWhatTheCommandLineDoes) {
  moracle_engine* const engine = opened_engine(folder_);
  const std::string prompt = "The old man went";
  const auto ids = tokens_of(engine, prompt);
  const auto options = some_tokens(12);
  std::string streamed;
  const moracle_on_text on_text = [](void* context, const char* text, std::uint64_t bytes) -> std::int32_t {
    static_cast<std::string*>(context)->append(text, bytes);
    return 0;
  };
  const Json reply = document_of([&](char** json, moracle_error** error) {
    return moracle_engine_generate(engine, ids.data(), ids.size(), prompt.c_str(), &options, on_text, &streamed, json,
                                   error);
  });
  const RunOutcome run =
      run_process({MORACLE_BINARY, "run", folder_, "-p", prompt, "-n", "12", "--temperature", "0", "--json"});
  const Json expected = Json::parse(run.out, nullptr, false);
  for (const char* const key : {"text", "ids", "prompt_ids", "answer", "reasoning", "finish_reason", "backend"})
    EXPECT_EQ(reply[key], expected[key]) << key;
  EXPECT_EQ(reply["text"], streamed);
  const std::vector<std::int32_t> made = reply["ids"];
  char* text = nullptr;
  EXPECT_EQ(moracle_engine_detokenize(engine, made.data(), made.size(), &text, nullptr, nullptr), MORACLE_OK);
  EXPECT_EQ(reply["text"], text);
  moracle_free(text);
  const Json described =
      document_of([&](char** json, moracle_error** error) { return moracle_engine_json(engine, json, error); });
  EXPECT_EQ(described["architecture"], "qwen3_moe");
  EXPECT_EQ(described["backend"], expected["backend"]);
  EXPECT_EQ(moracle_engine_close(engine), MORACLE_OK);
}

TEST_F(CEngine, TextOfIdsThatTheModelLacksIsAnError) {
  moracle_engine* const engine = opened_engine(folder_);
  const Json described =
      document_of([&](char** json, moracle_error** error) { return moracle_engine_json(engine, json, error); });
  const auto vocabulary = described.at("vocabulary").get<std::int32_t>();
  for (const std::int32_t id : {vocabulary, std::int32_t{-1}, INT32_MIN, INT32_MAX}) {
    const std::int32_t ids[] = {0, id};
    char* text = nullptr;
    CallError error;
    EXPECT_EQ(moracle_engine_detokenize(engine, ids, 2, &text, nullptr, &error.error), MORACLE_FAILED);
    EXPECT_EQ(text, nullptr);
    EXPECT_EQ(error.code(), "model.token");
    EXPECT_EQ(error.error->found, std::to_string(id));
    EXPECT_EQ(error.error->wanted, "ids from 0 to " + std::to_string(vocabulary - 1));
  }
  EXPECT_EQ(moracle_engine_close(engine), MORACLE_OK);
}

// `context` counts prompt and answer, as a scheduler's does.
TEST_F(CEngine, ContextIsNeverPassed) {
  moracle_engine* const engine = opened_engine(folder_);
  const auto ids = tokens_of(engine, "The old man went");
  auto options = greedy(50);
  const auto generate = [&](std::int64_t context, char** json, moracle_error** error) {
    options.context = context;
    return moracle_engine_generate(engine, ids.data(), ids.size(), nullptr, &options, nullptr, nullptr, json, error);
  };
  for (const std::int64_t room : {1, 2, 7}) {
    const auto reply =
        document_of([&](char** json, moracle_error** error) { return generate(std::ssize(ids) + room, json, error); });
    EXPECT_EQ(std::ssize(reply.at("ids")), room);
    EXPECT_EQ(reply.at("finish_reason"), "length");
  }
  char* json = nullptr;
  EXPECT_EQ(code_of(MORACLE_FAILED, [&](auto** error) { return generate(std::ssize(ids), &json, error); }),
            "model.context");
  EXPECT_EQ(moracle_engine_close(engine), MORACLE_OK);
}

TEST_F(CEngine, AppliesTheTemplate) {
  moracle_engine* const engine = opened_engine(folder_);
  char* text = nullptr;
  std::int32_t* ids = nullptr;
  std::uint64_t count = 0;
  const auto apply = [&](const char* json, moracle_error** error) {
    return moracle_engine_template(engine, json, &text, &ids, &count, error);
  };
  EXPECT_EQ(
      code_of(MORACLE_OK, [&](auto** e) { return apply(R"({"messages": [{"role": "user", "content": "Hi"}]})", e); }),
      "");
  const std::string made(text);
  EXPECT_NE(made.find("Hi"), std::string::npos);
  EXPECT_GT(count, 0U);
  moracle_free(text);
  moracle_free(ids);
  EXPECT_EQ(code_of(MORACLE_FAILED, [&](auto** e) { return apply("[", e); }), "json.syntax");
  EXPECT_EQ(code_of(MORACLE_FAILED, [&](auto** e) { return apply("[]", e); }), "chat.type");
  EXPECT_EQ(code_of(MORACLE_FAILED, [&](auto** e) { return apply(R"({"messages": 3})", e); }), "chat.type");
  EXPECT_EQ(code_of(MORACLE_FAILED, [&](auto** e) { return apply(R"({"message": []})", e); }), "chat.key");
  EXPECT_EQ(code_of(MORACLE_INVALID, [&](auto** e) { return apply(nullptr, e); }), "argument.null");
  EXPECT_EQ(moracle_engine_close(engine), MORACLE_OK);
}

TEST_F(CEngine, WrongRequestsAreErrors) {
  moracle_engine* const engine = opened_engine(folder_);
  const auto ids = tokens_of(engine, "The");
  char* json = nullptr;
  const auto code = [&](moracle_status status, const std::vector<std::int32_t>& prompt, const auto& change) {
    moracle_generate_options options = some_tokens(2);
    change(options);
    return code_of(status, [&](auto** error) {
      return moracle_engine_generate(engine, prompt.data(), prompt.size(), nullptr, &options, nullptr, nullptr, &json,
                                     error);
    });
  };
  const auto nothing = [](auto&) {};
  EXPECT_EQ(code(MORACLE_INVALID, {}, nothing), "argument.range");
  EXPECT_EQ(code(MORACLE_FAILED, {1 << 30}, nothing), "model.token");
  EXPECT_EQ(code(MORACLE_FAILED, {-1}, nothing), "model.token");
  EXPECT_EQ(code(MORACLE_FAILED, ids, [](auto& o) { o.temperature = -1; }), "sampling.range");
  EXPECT_EQ(code(MORACLE_INVALID, ids, [](auto& o) { o.max_tokens = 0; }), "argument.range");
  EXPECT_EQ(code(MORACLE_INVALID, ids, [](auto& o) { o.context = -5; }), "argument.range");
  EXPECT_EQ(code(MORACLE_INVALID, ids, [](auto& o) { o.stop_count = 1; }), "argument.null");
  EXPECT_EQ(code(MORACLE_OK, ids, nothing), "");
  moracle_free(json);
  EXPECT_EQ(moracle_engine_close(engine), MORACLE_OK);
}

// Within a callback: what would wait for itself is refused, the rest works.
struct Nested {
  moracle_engine* engine;
  moracle_scheduler* scheduler = nullptr;
  moracle_server* server = nullptr;
  std::vector<std::string> refused{};
  std::string text{};

  void call() {
    const std::int32_t id = 1;
    const moracle_generate_options options = greedy(1);
    const auto add = [&](const auto& function) { refused.push_back(code_of(MORACLE_INVALID, function)); };
    char* json = nullptr;
    add([&](auto** e) {
      return moracle_engine_generate(engine, &id, 1, nullptr, &options, nullptr, nullptr, &json, e);
    });
    moracle_scheduler* other = nullptr;
    add([&](auto** e) { return moracle_scheduler_open(engine, nullptr, &other, e); });
    moracle_server* serving = nullptr;
    add([&](auto** e) { return moracle_server_open(engine, nullptr, &serving, e); });
    if (scheduler != nullptr) {
      moracle_request request{};
      request.size = sizeof request;
      request.options = &options;
      std::uint64_t number = 0;
      std::int32_t more = 0;
      const moracle_on_event nothing = [](void*, const moracle_event*) {};
      add([&](auto** e) { return moracle_scheduler_submit(scheduler, &id, 1, &request, &number, e); });
      add([&](auto** e) { return moracle_scheduler_step(scheduler, nothing, nullptr, &more, e); });
      add([&](auto** e) { return moracle_scheduler_cancel(scheduler, 1, nullptr, e); });
      EXPECT_EQ(moracle_scheduler_close(scheduler), MORACLE_OK);
      scheduler = nullptr;
    }
    if (server != nullptr) {
      EXPECT_EQ(moracle_server_close(server), MORACLE_INVALID);
    }
    EXPECT_FALSE(tokens_of(engine, "The").empty());
    moracle_engine_close(engine);  // the first time; the answer goes on
  }
};

TEST_F(CEngine, CallsDoNotNest) {
  Nested nested{.engine = opened_engine(folder_)};
  CallError error;
  ASSERT_EQ(moracle_scheduler_open(nested.engine, nullptr, &nested.scheduler, &error.error), MORACLE_OK);
#ifdef MORACLE_SERVE
  ASSERT_EQ(moracle_server_open(nested.engine, nullptr, &nested.server, &error.error), MORACLE_OK) << error.message();
#endif
  const auto ids = tokens_of(nested.engine, "The old man went");
  const auto options = greedy(8);
  const moracle_on_text on_text = [](void* context, const char* text, std::uint64_t bytes) -> std::int32_t {
    auto& own = *static_cast<Nested*>(context);
    if (own.text.empty()) own.call();
    own.text.append(text, bytes);
    return 0;
  };
  const Json reply = document_of([&](char** json, moracle_error** failed) {
    return moracle_engine_generate(nested.engine, ids.data(), ids.size(), nullptr, &options, on_text, &nested, json,
                                   failed);
  });
  EXPECT_EQ(reply.at("text"), nested.text);
  EXPECT_EQ(nested.refused, std::vector<std::string>(6, "argument.nested"));
#ifdef MORACLE_SERVE
  EXPECT_EQ(moracle_server_close(nested.server), MORACLE_OK);
#endif
}

// Two engines, each with calls from several threads; a callback ends one answer.
TEST_F(CEngine, TwoAtOnce) {
  moracle_engine* const engines[] = {opened_engine(folder_), opened_engine(checkpoint_folder(kMixtral))};
  std::vector<std::string> texts(6);
  {
    std::vector<std::jthread> threads;
    for (std::size_t i = 0; i < texts.size(); ++i) {
      threads.emplace_back([&, i] {
        moracle_engine* const engine = engines[i % 2];
        const auto ids = tokens_of(engine, "The old man");
        const auto options = some_tokens(6);
        const Json reply = document_of([&](char** json, moracle_error** error) {
          return moracle_engine_generate(engine, ids.data(), ids.size(), nullptr, &options, nullptr, nullptr, json,
                                         error);
        });
        texts[i] = reply["text"];
      });
    }
  }
  for (std::size_t i = 2; i < texts.size(); ++i) EXPECT_EQ(texts[i], texts[i % 2]);
  const auto ids = tokens_of(engines[0], "The old man");
  const auto options = some_tokens(6);
  const Json stopped = document_of([&](char** json, moracle_error** error) {
    return moracle_engine_generate(
        engines[0], ids.data(), ids.size(), nullptr, &options,
        [](void*, const char*, std::uint64_t) -> std::int32_t { return 1; }, nullptr, json, error);
  });
  EXPECT_EQ(stopped["interrupted"], true);
  for (moracle_engine* const engine : engines) EXPECT_EQ(moracle_engine_close(engine), MORACLE_OK);
}

TEST_F(CEngine, HandlesThatAreNone) {
  moracle_engine* const engine = opened_engine(folder_);
  char* json = nullptr;
  const auto json_of = [&](const void* handle) {
    return [&json, handle](auto** error) {
      return moracle_engine_json(static_cast<moracle_engine*>(const_cast<void*>(handle)), &json, error);
    };
  };
  EXPECT_EQ(code_of(MORACLE_INVALID, json_of(nullptr)), "handle.null");
  EXPECT_EQ(code_of(MORACLE_INVALID, json_of(&json)), "handle.closed");
  EXPECT_EQ(code_of(MORACLE_INVALID, json_of(reinterpret_cast<const void*>(std::uintptr_t{0xFFFFFFFFFFFFFFFF}))),
            "handle.closed");
  EXPECT_EQ(code_of(MORACLE_INVALID,
                    [&](auto** error) {
                      return moracle_checkpoint_json(reinterpret_cast<moracle_checkpoint*>(engine), &json, error);
                    }),
            "handle.kind");
  EXPECT_EQ(moracle_pool_close(reinterpret_cast<moracle_pool*>(engine)), MORACLE_INVALID);
  EXPECT_EQ(moracle_engine_close(engine), MORACLE_OK);
  EXPECT_EQ(code_of(MORACLE_INVALID, json_of(engine)), "handle.closed");
  EXPECT_EQ(moracle_engine_close(engine), MORACLE_INVALID);
  EXPECT_EQ(moracle_engine_close(nullptr), MORACLE_INVALID);
  EXPECT_EQ(moracle_experts_close(nullptr), MORACLE_INVALID);
  EXPECT_EQ(moracle_dense_close(nullptr), MORACLE_INVALID);
  EXPECT_EQ(moracle_checkpoint_close(nullptr), MORACLE_INVALID);
  moracle_error_free(nullptr);
  moracle_free(nullptr);
}

// A child has the handles but not the threads: an error, closing works, and it may open its own.
TEST_F(CEngine, HandlesOfTheProcessBeforeAFork) {
  moracle_engine* const engine = opened_engine(folder_);
  const pid_t child = fork();
  if (child == 0) {
    char* json = nullptr;
    moracle_error* error = nullptr;
    bool good = moracle_engine_json(engine, &json, &error) == MORACLE_INVALID &&
                std::string_view(error->code) == "handle.forked";
    moracle_error_free(error);
    good = good && moracle_engine_close(engine) == MORACLE_OK;
    good = good && moracle_engine_close(engine) == MORACLE_INVALID;
    moracle_checkpoint* checkpoint = nullptr;
    good = good && moracle_checkpoint_open(folder_.c_str(), nullptr, &checkpoint, nullptr) == MORACLE_OK;
    moracle_experts* experts = nullptr;
    good = good && moracle_experts_open(checkpoint, 0, nullptr, &experts, nullptr) == MORACLE_OK;
    _exit(good ? 0 : 1);
  }
  int status = 0;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0) << status;
  EXPECT_FALSE(tokens_of(engine, "The").empty());
  EXPECT_EQ(moracle_engine_close(engine), MORACLE_OK);
}

}  // namespace
}  // namespace moracle::test
