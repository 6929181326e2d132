// Agreement with Hugging Face `tokenizers`: ids, decoded text and streamed text of the strings that
// tests/tools/tokenizer_fuzz.py wrote (the file format is described there).
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "support/test_data.h"
#include "text/tokenizer/tokenizer.h"

namespace moracle {
namespace {

struct Case {
  std::string text;
  std::vector<std::int32_t> ids;
  std::string decoded;
  bool plain = false;  // without special tokens
  bool keep = false;   // decoding keeps special tokens
};

class CaseReader {
 public:
  explicit CaseReader(std::string data) : data_(std::move(data)) {}

  std::optional<Case> next() {
    if (at_ >= data_.size()) return std::nullopt;
    Case result;
    result.text = text();
    const auto flags = static_cast<unsigned char>(data_.at(at_++));
    result.plain = (flags & 1U) != 0;
    result.keep = (flags & 2U) != 0;
    result.ids.resize(u32());
    for (auto& id : result.ids) id = leb128();
    result.decoded = (flags & 4U) != 0 ? result.text : text();
    return result;
  }

 private:
  std::uint32_t u32() {
    std::uint32_t value = 0;
    for (unsigned shift = 0; shift < 32; shift += 8) {
      value |= static_cast<std::uint32_t>(static_cast<unsigned char>(data_.at(at_++))) << shift;
    }
    return value;
  }
  std::int32_t leb128() {
    std::uint32_t value = 0;
    for (unsigned shift = 0;; shift += 7) {
      const auto byte = static_cast<unsigned char>(data_.at(at_++));
      value |= (byte & 0x7FU) << shift;
      if (byte < 0x80) return static_cast<std::int32_t>(value);
    }
  }
  std::string text() {
    const std::uint32_t size = u32();
    at_ += size;
    return data_.substr(at_ - size, size);
  }

  std::string data_;
  std::size_t at_ = 0;
};

std::filesystem::path cases_dir() {
  const char* other = std::getenv("MORACLE_TOKENIZER_CASES");
  return other != nullptr ? std::filesystem::path(other) : test::reference_dir() / "tokenizer";
}

std::vector<std::string> case_names() {
  std::vector<std::string> names;
  for (const auto& entry : std::filesystem::directory_iterator(cases_dir())) {
    if (entry.path().extension() == ".cases") names.push_back(entry.path().stem().string());
  }
  std::sort(names.begin(), names.end());
  return names;
}

class Agreement : public testing::TestWithParam<std::string> {};

TEST_P(Agreement, IdsTextAndStream) {
  const auto path = cases_dir() / GetParam();
  const auto json = read_json(path.string() + ".json");
  ASSERT_TRUE(json.ok()) << json.error().message();
  const auto tokenizer = Tokenizer::from_json(*json, GetParam());
  ASSERT_TRUE(tokenizer.ok()) << tokenizer.error().message();
  std::ifstream file(path.string() + ".cases", std::ios::binary);
  CaseReader reader({std::istreambuf_iterator<char>(file), {}});
  int count = 0;
  int failures = 0;
  while (const auto next = reader.next()) {
    ++count;
    const auto ids = tokenizer->encode(next->text, {.add_special_tokens = !next->plain});
    ASSERT_TRUE(ids.ok()) << ids.error().message();
    const auto decoded = tokenizer->decode(next->ids, !next->keep);
    DetokenizerStream stream(*tokenizer, !next->keep);
    std::string streamed;
    for (const auto id : next->ids) streamed += *stream.push(id);
    streamed += *stream.finish();
    EXPECT_EQ(*ids, next->ids) << "case " << count << ": " << testing::PrintToString(next->text);
    EXPECT_EQ(*decoded, next->decoded) << "case " << count;
    EXPECT_EQ(streamed, next->decoded) << "case " << count;
    if (*ids != next->ids || *decoded != next->decoded) ++failures;
    ASSERT_LT(failures, 5);
  }
  EXPECT_GT(count, 0);
}

INSTANTIATE_TEST_SUITE_P(Tokenizers, Agreement, testing::ValuesIn(case_names()),
                         [](const auto& name) { return name.param; });

// The strings of the checkpoints' own tokenizers are at least ten thousand.
TEST(AgreementData, IsLargeEnough) {
  int count = 0;
  for (const std::string name : {"qwen3moe", "mixtral", "gpt_oss", "deepseek"}) {
    std::ifstream file(cases_dir() / (name + ".cases"), std::ios::binary);
    CaseReader reader({std::istreambuf_iterator<char>(file), {}});
    while (reader.next()) ++count;
  }
  EXPECT_GE(count, 10000);
}

}  // namespace
}  // namespace moracle
