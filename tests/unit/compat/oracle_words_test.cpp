// The oracle decides by what cards declare: no format, model family, kernel or table is named in its code.
#include <gtest/gtest.h>

#include <algorithm>
#include <cctype>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <regex>
#include <set>
#include <string>

#include "compat/vllm/tables/tables.h"
#include "kernels/kernel.h"
#include "model/spec/architecture.h"
#include "support/test_data.h"

namespace moracle {
namespace {

std::string lower(std::string_view text) {
  std::string out(text);
  std::transform(out.begin(), out.end(), out.begin(),
                 [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
  return out;
}

std::string contents_of(const std::filesystem::path& file) {
  std::ifstream stream(file);
  return {std::istreambuf_iterator<char>(stream), {}};
}

// Comments may say what a rule is for.
std::string without_comments(const std::string& text) {
  return std::regex_replace(text, std::regex("//[^\n]*"), "");
}

bool is_word(char c) {
  return std::isalnum(static_cast<unsigned char>(c)) != 0 || c == '_';
}

bool names(const std::string& text, const std::string& word) {
  for (std::size_t at = text.find(word); at != std::string::npos; at = text.find(word, at + 1)) {
    const bool begins = at == 0 || !is_word(text[at - 1]);
    const std::size_t end = at + word.size();
    if (begins && (end == text.size() || !is_word(text[end]))) return true;
  }
  return false;
}

std::set<std::string> forbidden_words() {
  std::set<std::string> words;
  for (const Architecture* row : architectures()) {
    for (const std::string_view type : row->model_types)
      if (!type.empty()) words.insert(lower(type));
  }
  const std::string registry = contents_of(test::source_dir() / "src" / "format" / "registry.cpp");
  const std::regex row("Row\\{\"([^\"]+)\", make_");
  for (std::sregex_iterator it(registry.begin(), registry.end(), row), end; it != end; ++it)
    words.insert(lower((*it)[1].str()));
  for (const Table* table : all_tables()) {
    words.insert(lower(table->name));
    for (const TableRow& row : table->rows) {
      words.insert(lower(row.card->id));
      words.insert(lower(row.card->backend));
    }
  }
  for (const vllm::Table* table : vllm::all_tables()) {
    words.insert(lower(table->name));
    for (const vllm::Row& row : table->rows) {
      words.insert(lower(row.experts->id));
      words.insert(lower(row.experts->backend));
      words.insert(lower(row.backend));
    }
  }
  // Kinds of devices and of numerics, after which backends are called as well.
  for (const char* kind : {"", "cpu", "xpu", "emulation"}) words.erase(kind);
  return words;
}

TEST(OracleWords, NoFormatFamilyKernelOrTableIsNamed) {
  const std::set<std::string> words = forbidden_words();
  for (const char* known : {"gptq", "awq", "qwen3_moe", "avx512bf16", "marlin", "wna16", "mxfp4", "ref"})
    EXPECT_TRUE(words.contains(known)) << known;
  int files = 0;
  for (const auto& entry : std::filesystem::directory_iterator(test::source_dir() / "src" / "oracle")) {
    if (entry.path().extension() != ".cpp" && entry.path().extension() != ".h") continue;
    ++files;
    const std::string code = lower(without_comments(contents_of(entry.path())));
    for (const std::string& word : words) EXPECT_FALSE(names(code, word)) << entry.path().filename() << ": " << word;
  }
  EXPECT_GE(files, 10);
}

}  // namespace
}  // namespace moracle
