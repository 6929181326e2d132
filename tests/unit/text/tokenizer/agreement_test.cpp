// Agreement with Hugging Face `tokenizers`: ids, decoded text and streamed text of the strings that
// tests/tools/tokenizer_fuzz.py wrote (the file format is described there).
#include <gtest/gtest.h>

#include <cstdint>
#include <string>
#include <vector>

#include "support/tokenizer_cases.h"
#include "text/tokenizer/tokenizer.h"

namespace moracle {
namespace {

class Agreement : public testing::TestWithParam<std::string> {};

TEST_P(Agreement, IdsTextAndStream) {
  const auto path = test::tokenizer_cases_dir() / GetParam();
  const auto json = read_json(path.string() + ".json");
  ASSERT_TRUE(json.ok()) << json.error().message();
  const auto tokenizer = Tokenizer::from_json(*json, GetParam());
  ASSERT_TRUE(tokenizer.ok()) << tokenizer.error().message();
  int count = 0;
  int failures = 0;
  for (const test::TokenizerCase& next : test::read_tokenizer_cases(path.string() + ".cases")) {
    ++count;
    const auto ids = tokenizer->encode(next.text, {.add_special_tokens = !next.plain});
    ASSERT_TRUE(ids.ok()) << ids.error().message();
    const auto decoded = tokenizer->decode(next.ids, !next.keep);
    DetokenizerStream stream(*tokenizer, !next.keep);
    std::string streamed;
    for (const auto id : next.ids) streamed += *stream.push(id);
    streamed += *stream.finish();
    EXPECT_EQ(*ids, next.ids) << "case " << count << ": " << testing::PrintToString(next.text);
    EXPECT_EQ(*decoded, next.decoded) << "case " << count;
    EXPECT_EQ(streamed, next.decoded) << "case " << count;
    if (*ids != next.ids || *decoded != next.decoded) ++failures;
    ASSERT_LT(failures, 5);
  }
  EXPECT_GT(count, 0);
}

INSTANTIATE_TEST_SUITE_P(Tokenizers, Agreement, testing::ValuesIn(test::tokenizer_case_names()),
                         [](const auto& name) { return name.param; });

// The strings of the checkpoints' own tokenizers are at least ten thousand.
TEST(AgreementData, IsLargeEnough) {
  int count = 0;
  for (const std::string name : {"qwen3moe", "mixtral", "gpt_oss", "deepseek"}) {
    count += static_cast<int>(test::read_tokenizer_cases(test::tokenizer_cases_dir() / (name + ".cases")).size());
  }
  EXPECT_GE(count, 10000);
}

}  // namespace
}  // namespace moracle
