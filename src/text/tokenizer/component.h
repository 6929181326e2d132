// Shared by the readers of tokenizer.json components.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

#include "base/budget.h"
#include "base/json.h"
#include "base/result.h"

namespace moracle {

// Sequences may nest; nothing real nests deeper than two.
inline constexpr int kMaxSequenceDepth = 16;

// Counts the components of one kind while they are read: each makes a pass over every text, and may have a pattern to
// compile. Error: "tokenizer.limit".
class Components {
 public:
  Components(const char* kind, Budget& budget) : kind_(kind), budget_(budget) {}
  Result<> add(const std::string& file, const std::string& pointer);

 private:
  const char* kind_;
  Budget& budget_;
  std::size_t count_ = 0;
};

// The error of a step, with the step's place before the place in the text.
[[nodiscard]] Error at_place(Error error, const std::string& place);

[[nodiscard]] Error unsupported(const std::string& file, const std::string& pointer, std::string wanted,
                                std::string found);

// The "type" of a component object. Errors: "tokenizer.unsupported" when it is no object or has no type.
Result<std::string> component_type(const Json& json, const std::string& file, const std::string& pointer);

// The array `key` of a Sequence.
Result<const Json*> sequence_items(const Json& json, const char* key, const std::string& file,
                                   const std::string& pointer, int depth);

// A required string or boolean member. Errors: "config.missing" and those of JsonReader.
Result<std::string> required_string(const JsonReader& reader, std::string_view key);
Result<bool> required_boolean(const JsonReader& reader, std::string_view key);

// A required string of at most kTokenizerTextBytes. Error: also "tokenizer.unsupported".
Result<std::string> required_text(const JsonReader& reader, std::string_view key);

// A required string of exactly one character, as its UTF-8 bytes.
Result<std::string> required_character(const JsonReader& reader, std::string_view key);

// A token id: 0 <= id < 2^31 - 1, so that one more still counts in 32 bits. Error: "tokenizer.id".
Result<std::int32_t> token_id(const Json& json, const std::string& file, const std::string& pointer);

}  // namespace moracle
