// Structure-aware mutation of JSON: values dropped, nulled, set to extremes, of another type, spelled twice, moved.
#pragma once

#include <cstddef>
#include <random>
#include <string>
#include <string_view>
#include <vector>

namespace moracle::fuzz {

// What a target knows of its input: words that its reader compares with.
struct JsonVocabulary {
  std::vector<std::string> keys;
  std::vector<std::string> strings;
};

// The words of a text, split at spaces.
[[nodiscard]] std::vector<std::string> words_of(std::string_view text);

// One to four changes of `text`; text that is no JSON changes as bytes.
[[nodiscard]] std::string mutate_json(std::string_view text, const JsonVocabulary& vocabulary, std::mt19937& rng);

// The same within the value of one member of the outermost object.
[[nodiscard]] std::string mutate_member(std::string_view text, const char* member, const JsonVocabulary& vocabulary,
                                        std::mt19937& rng);

// `text` with one of its values replaced by, or completed with, a value of `other`.
[[nodiscard]] std::string cross_json(std::string_view text, std::string_view other, std::mt19937& rng);

// What libFuzzer itself makes of bytes; returns their new number.
std::size_t mutate_bytes(unsigned char* data, std::size_t size, std::size_t most);

// Copies as much of `text` as fits into the fuzzer's buffer; returns its size.
std::size_t give_back(std::string_view text, unsigned char* data, std::size_t most);

}  // namespace moracle::fuzz
