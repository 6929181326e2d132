// Guarded JSON: configuration files and requests are hostile input.
#pragma once

#include <cstddef>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>

#include "base/result.h"

namespace moracle {

using Json = nlohmann::json;

struct JsonLimits {
  std::size_t bytes = std::size_t{64} << 20;
  int depth = 64;
};

// Parses `text`; `file` only labels the error. Errors: "json.size", "json.syntax" (byte offset), "json.depth",
// "json.duplicate" (the same key twice in one object).
Result<Json> parse_json(std::string_view text, const std::string& file, JsonLimits limits = {});

// Reads a whole file, then parse_json. Errors: "file.open", "file.read" and those of parse_json.
Result<Json> read_json(const std::filesystem::path& path, JsonLimits limits = {});

// Reads a whole text file of at most `limit` bytes. Errors: "file.open", "file.read", "file.size".
Result<std::string> read_text(const std::filesystem::path& path, std::size_t limit = std::size_t{1} << 30);

// Typed, checked access to one object's members. Every getter names `file` and the member's JSON pointer in its
// error ("config.type", "config.missing", "config.range").
class JsonReader {
 public:
  JsonReader(const Json& object, std::string file, std::string pointer = "")
      : object_(object), file_(std::move(file)), pointer_(std::move(pointer)) {}
  [[nodiscard]] bool has(std::string_view key) const;  // present and not null
  [[nodiscard]] Result<std::int64_t> integer(std::string_view key, std::int64_t low, std::int64_t high) const;
  [[nodiscard]] Result<std::int64_t> integer_or(std::string_view key, std::int64_t fallback, std::int64_t low,
                                                std::int64_t high) const;
  [[nodiscard]] Result<double> number_or(std::string_view key, double fallback) const;  // finite
  [[nodiscard]] Result<bool> boolean_or(std::string_view key, bool fallback) const;
  [[nodiscard]] Result<std::string> string_or(std::string_view key, std::string fallback) const;
  [[nodiscard]] const Json& json() const { return object_; }
  [[nodiscard]] const std::string& file() const { return file_; }
  [[nodiscard]] std::string pointer(std::string_view key) const { return pointer_ + "/" + std::string(key); }

 private:
  const Json& object_;
  std::string file_;
  std::string pointer_;
};

}  // namespace moracle
