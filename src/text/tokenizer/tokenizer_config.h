// What the JSON files beside a tokenizer say: tokenizer_config.json, special_tokens_map.json and added_tokens.json,
// merged as transformers 5 merges them.
#pragma once

#include <compare>
#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/json.h"
#include "base/result.h"

namespace moracle {

// A text that becomes one id wherever it occurs.
struct AddedToken {
  std::string content;
  bool single_word = false;  // not inside a word
  bool lstrip = false;       // takes the white space before it
  bool rstrip = false;       // takes the white space behind it
  bool normalized = false;   // is looked for in normalized text
  bool special = false;      // is left out of decoded text

  friend auto operator<=>(const AddedToken&, const AddedToken&) = default;
};

struct TokenizerConfig {
  // Reads what there is of the three files. `own` are the added tokens of tokenizer.json, by id, and `whole` says
  // whether there is a tokenizer.json. Errors: "config.type" naming the member, those of read_json.
  static Result<TokenizerConfig> load(const std::filesystem::path& folder,
                                      const std::vector<std::pair<std::int32_t, AddedToken>>& own, bool whole);

  std::vector<AddedToken> tokens{};                          // to be added behind tokenizer.json's own, in this order
  std::vector<std::pair<std::int32_t, AddedToken>> by_id{};  // added_tokens_decoder, sorted
  std::vector<std::pair<std::string, std::string>> named{};  // {"bos_token", "<s>"}, as templates see them
  std::string tokenizer_class{};
  bool split_special_tokens = false;  // special tokens in a text are text
  std::optional<bool> add_bos_token{}, add_eos_token{}, add_prefix_space{};
  bool remakes_byte_level = false;  // the class makes its byte-level step anew, with add_prefix_space
  Json chat_template{};             // as it stands in tokenizer_config.json; null: not there
  std::string file{};               // path of tokenizer_config.json, for messages
  std::vector<std::string> warnings{};

  // "" where there is no such token.
  [[nodiscard]] std::string token(std::string_view name) const;
};

}  // namespace moracle
