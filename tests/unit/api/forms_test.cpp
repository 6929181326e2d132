// Answers of the C interface that are held to forms.
#include <cstddef>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "text/constrain/grammar/grammar_compiler.h"
#include "unit/api/c_call.h"

namespace moracle::test {
namespace {

constexpr const char* kPlace =
    R"({"type": "json_schema", "json_schema": {"schema": {"type": "object", "properties": {"city": {"enum": ["Oslo",
        "Rome"]}}, "required": ["city"], "additionalProperties": false}}})";
constexpr const char* kUnique =
    R"({"type": "json_schema", "json_schema": {"schema": {"type": "array", "uniqueItems": true}}})";
constexpr const char* kChoice = R"({"choice": ["yes", "no"]})";

class CForms : public ::testing::Test {
 protected:
  void SetUp() override {
    if (!can_constrain()) GTEST_SKIP() << "built without xgrammar";
    engine_ = opened_engine(checkpoint_folder(kQwen));
    ASSERT_NE(engine_, nullptr);
  }
  void TearDown() override {
    if (engine_ == nullptr) return;
    EXPECT_EQ(moracle_engine_close(engine_), MORACLE_OK);
  }

  static moracle_generate_options asking(const char* response_format, const char* structured_outputs = nullptr) {
    moracle_generate_options options = greedy(200);
    options.ignore_eos = 0;
    options.response_format = response_format;
    options.structured_outputs = structured_outputs;
    return options;
  }
  [[nodiscard]] Json reply_of(const moracle_generate_options& options) const {
    const auto ids = tokens_of(engine_, "A city:");
    return document_of([&](char** json, moracle_error** error) {
      return moracle_engine_generate(engine_, ids.data(), ids.size(), "A city:", &options, nullptr, nullptr, json,
                                     error);
    });
  }
  // The code of the error, and its place.
  std::pair<std::string, std::string> refusal_of(const moracle_generate_options& options) {
    const auto ids = tokens_of(engine_, "A city:");
    char* json = nullptr;
    CallError error;
    EXPECT_NE(moracle_engine_generate(engine_, ids.data(), ids.size(), nullptr, &options, nullptr, nullptr, &json,
                                      &error.error),
              MORACLE_OK);
    return {error.code(), error.error == nullptr ? "" : error.error->where};
  }

  moracle_engine* engine_ = nullptr;
};

TEST_F(CForms, HoldAnswers) {
  const Json reply = reply_of(asking(kPlace));
  const Json answer = Json::parse(reply["answer"].get<std::string>(), nullptr, false);
  EXPECT_TRUE(answer == Json({{"city", "Oslo"}}) || answer == Json({{"city", "Rome"}})) << reply["answer"];
  EXPECT_EQ(reply["finish_reason"], "stop");
  const Json chosen = reply_of(asking(nullptr, kChoice));
  EXPECT_TRUE(chosen["answer"] == "yes" || chosen["answer"] == "no") << chosen["answer"];
}

TEST_F(CForms, AreRefusedWithTheirPlace) {
  using Refusal = std::pair<std::string, std::string>;
  EXPECT_EQ(refusal_of(asking(kUnique)),
            Refusal("schema.unsupported", "options.response_format.json_schema.schema/uniqueItems"));
  EXPECT_EQ(refusal_of(asking("{")), Refusal("argument.json", "options.response_format"));
  EXPECT_EQ(refusal_of(asking("[]")), Refusal("argument.type", "options.response_format"));
  EXPECT_EQ(refusal_of(asking(R"({"type": "xml"})")), Refusal("argument.unsupported", "options.response_format.type"));
  EXPECT_EQ(refusal_of(asking("\xff")).first, "argument.utf8");
  EXPECT_EQ(refusal_of(asking(kPlace, kChoice)), Refusal("argument.value", "options.structured_outputs"));
  moracle_generate_options endless = asking(kPlace);
  endless.ignore_eos = 1;
  EXPECT_EQ(refusal_of(endless), Refusal("argument.range", "options.ignore_eos"));
}

TEST_F(CForms, AreNoMembersOfEarlierStructs) {
  moracle_generate_options options = asking(kUnique, kChoice);
  options.max_tokens = 4;
  options.size = offsetof(moracle_generate_options, response_format);
  EXPECT_EQ(reply_of(options)["ids"].size(), 4U);
}

TEST_F(CForms, HoldRequestsOfASchedulerEach) {
  moracle_scheduler* scheduler = nullptr;
  ASSERT_EQ(moracle_scheduler_open(engine_, nullptr, &scheduler, nullptr), MORACLE_OK);
  const auto ids = tokens_of(engine_, "A city:");
  const moracle_generate_options held = asking(nullptr, kChoice);
  const moracle_generate_options free = greedy(4);
  std::vector<std::uint64_t> numbers;
  for (const moracle_generate_options* const options : {&held, &free}) {
    moracle_request request{};
    request.size = sizeof request;
    request.options = options;
    request.prompt = "A city:";
    CallError error;
    EXPECT_EQ(
        moracle_scheduler_submit(scheduler, ids.data(), ids.size(), &request, &numbers.emplace_back(), &error.error),
        MORACLE_OK)
        << error.message();
  }
  std::map<std::uint64_t, std::string> texts;
  const moracle_on_event take = [](void* context, const moracle_event* event) {
    (*static_cast<std::map<std::uint64_t, std::string>*>(context))[event->request].append(event->text, event->bytes);
  };
  for (std::int32_t more = 1; more != 0;)
    ASSERT_EQ(moracle_scheduler_step(scheduler, take, &texts, &more, nullptr), MORACLE_OK);
  EXPECT_TRUE(texts[numbers[0]] == "yes" || texts[numbers[0]] == "no") << texts[numbers[0]];
  EXPECT_EQ(texts[numbers[1]], document_of([&](char** json, moracle_error** error) {
              return moracle_engine_generate(engine_, ids.data(), ids.size(), nullptr, &free, nullptr, nullptr, json,
                                             error);
            })["text"]);
  EXPECT_EQ(moracle_scheduler_close(scheduler), MORACLE_OK);
}

}  // namespace
}  // namespace moracle::test
