// Shared by the readers of tokenizer.json components.
#pragma once

#include <functional>
#include <string>
#include <string_view>

#include "base/budget.h"
#include "base/json.h"
#include "base/result.h"

namespace moracle {

// Sequences may nest; nothing real nests deeper than two.
inline constexpr int kMaxSequenceDepth = 16;

// What normalizers, pre-tokenizers, post-processors and decoders differ in while they are read.
struct ComponentKind {
  const char* name;   // for errors
  const char* items;  // the member of a Sequence that lists its components
};

// Calls `add` for every component of `json` but Sequences, whose components follow in order; of null for none. Each
// makes a pass over every text, and may have a pattern to compile, so they are counted. Errors: "tokenizer.limit",
// "tokenizer.unsupported" (no type, too deep), "config.type", those of `add`.
using AddComponent = std::function<Result<>(const Json& json, const std::string& type, const std::string& pointer)>;
Result<> read_components(const Json& json, const ComponentKind& kind, const std::string& file,
                         const std::string& pointer, Budget& budget, const AddComponent& add);

// The error of a step, with the step's place before the place in the text.
[[nodiscard]] Error at_place(Error error, const std::string& place);

[[nodiscard]] Error unsupported(const std::string& file, const std::string& pointer, std::string wanted,
                                std::string found);

// A required string or boolean member. Errors: "config.missing" and those of JsonReader.
Result<std::string> required_string(const JsonReader& reader, std::string_view key);
Result<bool> required_boolean(const JsonReader& reader, std::string_view key);

// Members that may be left out; null is no answer. Errors: as of the required ones.
Result<std::string> optional_string(const JsonReader& reader, std::string_view key, std::string fallback);
Result<bool> optional_boolean(const JsonReader& reader, std::string_view key, bool fallback);

// Switches of a ByteLevel, whatever reads them: a pre-tokenizer alone splits and adds a space, and trim_offsets
// concerns offsets, which nobody asks for.
Result<> check_byte_level(const JsonReader& reader);

// A Metaspace, as a pre-tokenizer and as a decoder.
struct MetaspaceSettings {
  enum class Prepend { kAlways, kFirst, kNever };
  std::string replacement;
  Prepend prepend;
  bool split;
};
// Errors: those of the members, "tokenizer.unsupported".
Result<MetaspaceSettings> read_metaspace(const JsonReader& reader);

// At most kTokenizerTextBytes. Error: "tokenizer.unsupported".
Result<> check_text_size(std::string_view text, const std::string& file, const std::string& pointer);

// A required string of such a size. Error: also "tokenizer.unsupported".
Result<std::string> required_text(const JsonReader& reader, std::string_view key);

// A required string of exactly one character, as its UTF-8 bytes.
Result<std::string> required_character(const JsonReader& reader, std::string_view key);

// A token id: 0 <= id < 2^31 - 1, so that one more still counts in 32 bits. Error: "tokenizer.id".
Result<std::int32_t> token_id(const Json& json, const std::string& file, const std::string& pointer);

}  // namespace moracle
