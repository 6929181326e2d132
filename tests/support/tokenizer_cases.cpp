#include "support/tokenizer_cases.h"

#include <algorithm>
#include <cstdlib>
#include <fstream>
#include <iterator>
#include <optional>
#include <utility>

#include "support/test_data.h"

namespace moracle::test {

namespace {

class CaseReader {
 public:
  explicit CaseReader(std::string data) : data_(std::move(data)) {}

  std::optional<TokenizerCase> next() {
    if (at_ >= data_.size()) return std::nullopt;
    TokenizerCase result;
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

}  // namespace

std::filesystem::path tokenizer_cases_dir() {
  const char* other = std::getenv("MORACLE_TOKENIZER_CASES");
  return other != nullptr ? std::filesystem::path(other) : reference_dir() / "tokenizer";
}

std::vector<std::string> tokenizer_case_names() {
  std::vector<std::string> names;
  for (const auto& entry : std::filesystem::directory_iterator(tokenizer_cases_dir())) {
    if (entry.path().extension() == ".cases") names.push_back(entry.path().stem().string());
  }
  std::sort(names.begin(), names.end());
  return names;
}

std::vector<TokenizerCase> read_tokenizer_cases(const std::filesystem::path& path) {
  std::ifstream file(path, std::ios::binary);
  CaseReader reader({std::istreambuf_iterator<char>(file), {}});
  std::vector<TokenizerCase> cases;
  while (auto next = reader.next()) cases.push_back(*std::move(next));
  return cases;
}

}  // namespace moracle::test
