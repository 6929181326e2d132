// The strings that tests/tools/tokenizer_fuzz.py wrote, with what Hugging Face `tokenizers` makes of them (the file
// format is described there).
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

namespace moracle::test {

struct TokenizerCase {
  std::string text;
  std::vector<std::int32_t> ids;
  std::string decoded;
  bool plain = false;  // without special tokens
  bool keep = false;   // decoding keeps special tokens
};

// $MORACLE_TOKENIZER_CASES, else those of the reference data: NAME.json and NAME.cases.
[[nodiscard]] std::filesystem::path tokenizer_cases_dir();
[[nodiscard]] std::vector<std::string> tokenizer_case_names();
[[nodiscard]] std::vector<TokenizerCase> read_tokenizer_cases(const std::filesystem::path& path);

}  // namespace moracle::test
