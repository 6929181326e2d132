// moracle.hpp as a C++ program uses it.
#include <gtest/gtest.h>
#include <moracle/moracle.hpp>

#include <cstdint>
#include <nlohmann/json.hpp>
#include <stdexcept>
#include <string>
#include <vector>

#include "support/test_data.h"

namespace moracle::test {
namespace {

using Json = nlohmann::json;

std::string folder() {
  return (data_dir() / "checkpoints" / "qwen3moe-gptq-w4g128-sym").string();
}

Json json_of(const Expected<std::string>& document) {
  EXPECT_TRUE(document) << document.error().message;
  return document ? Json::parse(*document, nullptr, false) : Json();
}

TEST(CppInterface, QuestionsAndTheirProgress) {
  EXPECT_EQ(json_of(inspect(folder())), json_of(Checkpoint::open(folder())->inspect()));
  EXPECT_EQ(explain_vllm("{").error().code, "json.syntax");
  std::uint64_t last = 0;
  const Json whole = json_of(verify(folder(), {.threads = 2, .tokens = 2, .on_progress = [&](auto done, auto total) {
                                                 last = total - done;
                                                 return true;
                                               }}));
  EXPECT_TRUE(whole["ok"].get<bool>());
  EXPECT_EQ(last, 0U);
  const auto stopped = verify(folder(), {.on_progress = [](auto, auto) { return false; }});
  ASSERT_FALSE(stopped);
  EXPECT_EQ(stopped.error().status, MORACLE_INTERRUPTED);
  const auto throws = [](auto, auto) -> bool { throw std::runtime_error("mine"); };
  EXPECT_THROW(static_cast<void>(verify(folder(), {.on_progress = throws})), std::runtime_error);
  EXPECT_THROW(static_cast<void>(Engine::open(folder(), 2, {}, {}, "cpu", throws)), std::runtime_error);
  EXPECT_EQ(verify(folder(), {.device = "cuda:x"}).error().code, "device.unknown");
  EXPECT_FALSE(verify(folder(), {.layout = "nobody"}));
}

TEST(CppInterface, SpansOfALayerAreMeasured) {
  const auto pool = Pool::open({.threads = 2});
  ASSERT_TRUE(pool) << pool.error().message;
  EXPECT_EQ(Pool::open({.threads = -1}).error().code, "argument.range");
  const auto layer = Checkpoint::open(folder())->experts(0, {}, {}, pool->handle());
  ASSERT_TRUE(layer) << layer.error().message;
  const auto hidden = static_cast<std::size_t>(layer->info()->hidden);
  EXPECT_GT(*layer->workspace_bytes(3, 2), 0U);
  const std::vector<float> x(3 * hidden, 0.5F), weights(6, 0.5F);
  const std::vector<std::int32_t> ids = {0, 1, 2, 3, 4, 5};
  std::vector<float> out(3 * hidden);
  EXPECT_FALSE(layer->run(3, 2, x, ids, weights, out));
  const auto code = [&](std::int64_t tokens, std::int64_t top_k, std::size_t rows, std::size_t chosen) {
    const auto error = layer->run(tokens, top_k, std::span(x).first(rows * hidden), std::span(ids).first(chosen),
                                  std::span(weights).first(chosen), out);
    return error ? error->code + " " + error->where : "";
  };
  EXPECT_EQ(code(3, 2, 2, 6), "argument.shape x");
  EXPECT_EQ(code(3, 2, 3, 5), "argument.shape ids");
  EXPECT_EQ(code(3, -2, 3, 6), "argument.shape ids");
  EXPECT_EQ(code(2, 3, 2, 6), "argument.shape out");
}

TEST(CppInterface, AnEngineTellsAndTakesAllThatTheCInterfaceDoes) {
  const auto engine = Engine::open(folder(), 2);
  ASSERT_TRUE(engine) << engine.error().message;
  EXPECT_EQ(json_of(engine->describe())["threads"], 2);
  const auto prompt = engine->tokenize("The old man");
  ASSERT_TRUE(prompt);
  EXPECT_EQ(*engine->detokenize(prompt->ids), "The old man");
  const auto ids = [&](const GenerateOptions& options) { return json_of(engine->generate(*prompt, options))["ids"]; };
  const GenerateOptions plain{.max_tokens = 12, .temperature = 0};
  GenerateOptions penal = plain;
  penal.repetition_penalty = 1.8;
  EXPECT_NE(ids(penal), ids(plain));
  GenerateOptions wrong = plain;
  wrong.frequency_penalty = 1e300 * 1e300;
  EXPECT_EQ(engine->generate(*prompt, wrong).error().code, "sampling.range");
  GenerateOptions shorter = plain;
  shorter.context = 6;
  EXPECT_LT(ids(shorter).size(), ids(plain).size());
}

}  // namespace
}  // namespace moracle::test
