// What a model folder may make us compute with texts. SECURITY.md lists these figures,
// and the test docs.security holds it to them.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>

#include "base/budget.h"

namespace moracle {

inline constexpr std::size_t kMiB = std::size_t{1} << 20U;

// Rendering one conversation with a chat template.
struct TemplateLimits {
  std::size_t steps = 2'000'000;         // one node walked, one element, or 128 bytes copied
  int depth = 200;                       // nesting of the source, of values and of macro calls
  std::size_t output_bytes = 16 * kMiB;  // of the output, and of each text on the way
  std::size_t bytes = 256 * kMiB;        // of all texts and containers made on the way
  std::chrono::milliseconds time{750};   // and one call more: a filter of the longest text takes up to 0.2 s
};
// A template's source, and the tokens it may have.
inline constexpr std::size_t kTemplateSourceBytes = 4 * kMiB;
inline constexpr std::size_t kTemplateTokens = 500'000;

// A tokenizer.json: its values, the tokens of its vocabulary, and its merges. Those of language models in use have half
// of each.
inline constexpr std::size_t kTokenizerValues = std::size_t{4} << 20U;
inline constexpr std::size_t kVocabularyTokens = std::size_t{1} << 19U;
inline constexpr std::size_t kMerges = std::size_t{1} << 20U;
// Its added tokens with those of the files beside it. Models that speak add one for each of 65,536 sounds.
inline constexpr std::size_t kAddedTokens = std::size_t{1} << 17U;

// Reading a tokenizer's components and added tokens. Vocabulary and merges are read before, in linear time.
inline constexpr BudgetLimits kTokenizerReading{
    .steps = 20'000'000, .bytes = 256 * kMiB, .matches = 4'000'000, .time = std::chrono::milliseconds(1000)};
// Components of a normalizer, pre-tokenizer, post-processor or decoder, sequences included.
inline constexpr std::size_t kTokenizerComponents = 64;
// Bytes of an added token, of a literal pattern, of what replaces a match, and of a subword's prefix or suffix.
inline constexpr std::size_t kTokenizerTextBytes = 4096;
// Ids that a post-processor adds to a text.
inline constexpr std::size_t kPostProcessorIds = 4096;

// Encoding one text: the base for whatever the files make of it, and more for each byte that the caller wrote.
inline constexpr BudgetLimits kEncoding{
    .steps = 20'000'000, .bytes = 256 * kMiB, .matches = 4'000'000, .time = std::chrono::milliseconds(1500)};
inline constexpr BudgetLimits kEncodingPerByte{
    .steps = 16, .bytes = 512, .matches = 16, .time = std::chrono::microseconds(1)};

// Decoding ids, at once or one by one: the base, and more for each id.
inline constexpr BudgetLimits kDecoding{
    .steps = 20'000'000, .bytes = 64 * kMiB, .matches = 4'000'000, .time = std::chrono::milliseconds(1000)};
inline constexpr BudgetLimits kDecodingPerId{
    .steps = 100, .bytes = 4096, .matches = 16, .time = std::chrono::microseconds(10)};

}  // namespace moracle
