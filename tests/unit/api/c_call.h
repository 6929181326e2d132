// Calls of the C interface as tests want them: owned texts, and errors as values.
#pragma once

#include <gtest/gtest.h>
#include <moracle/moracle.h>

#include <cstdint>
#include <string>
#include <vector>

#include "base/json.h"
#include "support/test_data.h"

namespace moracle::test {

// The error of a call, freed with it.
struct CallError {
  moracle_error* error = nullptr;
  CallError() = default;
  CallError(const CallError&) = delete;
  CallError& operator=(const CallError&) = delete;
  ~CallError() { moracle_error_free(error); }
  [[nodiscard]] std::string code() const { return error == nullptr ? "" : error->code; }
  [[nodiscard]] std::string message() const { return error == nullptr ? "" : error->message; }
};

// A document that a call writes; a failure of the test where it fails.
template <class Call>
Json document_of(const Call& call) {
  char* text = nullptr;
  CallError error;
  EXPECT_EQ(call(&text, &error.error), MORACLE_OK) << error.message();
  Json document = text == nullptr ? Json() : Json::parse(text, nullptr, false);
  moracle_free(text);
  return document;
}

// The code of a call's error; empty where it succeeds. Its status has to be `status`.
template <class Call>
std::string code_of(moracle_status status, const Call& call) {
  CallError error;
  EXPECT_EQ(call(&error.error), status) << error.message();
  if (status != MORACLE_OK) {
    EXPECT_NE(error.error, nullptr);
    EXPECT_FALSE(error.message().empty());
  }
  return error.code();
}

inline std::string checkpoint_folder(const std::string& name) {
  return (data_dir() / "checkpoints" / name).string();
}

// Two threads; `kv` and `tool_format` may be null.
inline moracle_engine* opened_engine(const std::string& folder, const char* kv = nullptr,
                                     const char* tool_format = nullptr) {
  moracle_engine_options options{};
  options.size = sizeof options;
  options.threads = 2;
  options.kv = kv;
  options.tool_format = tool_format;
  moracle_engine* engine = nullptr;
  CallError error;
  EXPECT_EQ(moracle_engine_open(folder.c_str(), &options, &engine, &error.error), MORACLE_OK) << error.message();
  return engine;
}
inline std::vector<std::int32_t> tokens_of(moracle_engine* engine, const std::string& text) {
  std::int32_t* ids = nullptr;
  std::uint64_t count = 0;
  CallError error;
  EXPECT_EQ(moracle_engine_tokenize(engine, text.data(), text.size(), &ids, &count, &error.error), MORACLE_OK)
      << error.message();
  std::vector<std::int32_t> copy(ids, ids + count);
  moracle_free(ids);
  return copy;
}
// So many tokens, whichever they are.
inline moracle_generate_options greedy(std::int64_t tokens) {
  moracle_generate_options options{};
  options.size = sizeof options;
  options.set = MORACLE_SET_MAX_TOKENS | MORACLE_SET_TEMPERATURE;
  options.max_tokens = tokens;
  options.ignore_eos = 1;
  return options;
}

inline constexpr const char* kMixtral = "mixtral-awq-w4g32";
inline constexpr const char* kQwen = "qwen3moe-gptq-w4g128-sym";
inline constexpr const char* kActOrder = "qwen3moe-gptq-w4g32-actorder-cut";

}  // namespace moracle::test
