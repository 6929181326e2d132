// The quantization section of a checkpoint, wherever the publisher's tool put it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "base/json.h"
#include "base/result.h"
#include "checkpoint/checkpoint.h"

namespace moracle {

// Entries of one list or object of the section: beyond every expert of the largest published models.
inline constexpr std::size_t kMaxListed = 262'144;

// How 32-bit words of codes lie in "<module>.qweight": GPTQ packs along the input, AWQ along the output.
enum class WordLayout : std::uint8_t { none, along_in, along_out };

// Keys of config.json's section, completed by the side file where that has more. Errors name `file` and `pointer` of
// config.json, or the side file when there is no section in config.json.
struct QuantConfig {
  Json values = Json::object();
  std::string file;
  std::string pointer;  // "/quantization_config", "/text_config/quantization_config", "/compression_config" or ""
  std::string side_file;
  std::string method;                   // quant_method, or what the keys imply; empty: unquantized
  WordLayout words = WordLayout::none;  // as stored
  std::vector<std::string> notes{};     // of what is said twice and differently

  [[nodiscard]] JsonReader reader() const { return JsonReader(values, file, pointer); }
  [[nodiscard]] Error error(std::string code, std::string_view key, std::string wanted, std::string found) const;
  // A string list under `key`, also when nested one level, and empty when absent or null. Errors: "config.type",
  // "config.range" for more than kMaxListed.
  [[nodiscard]] Result<std::vector<std::string>> strings(std::string_view key) const;
  // Keys of the object under `key` in the order of the file: Json sorts them, but the first rule that matches wins.
  // Errors: "config.type", "config.range" for more than kMaxListed, those of read_text.
  [[nodiscard]] Result<std::vector<std::string>> ordered_keys(std::string_view key) const;
};

// Reads the section. Of two places that say the same thing, config.json goes before a file beside it, the outer section
// before an inner one and a key's newer name before its older; where they differ, a note names both. A config without
// one and without side file has an empty method. Errors: "config.type", those of read_json for a side file.
Result<QuantConfig> find_quant_config(const Checkpoint& checkpoint);

}  // namespace moracle
