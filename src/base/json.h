// Guarded JSON: configuration files and requests are hostile input.
#pragma once

#include <cstddef>
#include <filesystem>
#include <limits>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>

#include "base/files/file.h"
#include "base/json/json_fwd.h"
#include "base/result.h"

namespace moracle {

// A document takes at most 40 bytes of memory for each byte of its text, and 128 for each value beyond its strings:
// with these limits 1 GiB, whatever the text.
struct JsonLimits {
  std::size_t bytes = std::size_t{64} << 20;
  int depth = 64;
  std::size_t values = std::size_t{8} << 20;  // members and elements, and what holds them
};

// Parses `text` in time proportional to its length, times the logarithm of the members where an object's keys are not
// sorted; `file` only labels the error. NaN, Infinity and -Infinity are read as Python writes them; JsonReader hands
// out finite numbers only. Errors: "json.size", "json.syntax" (with the byte, from 0), "json.depth", "json.values",
// "json.duplicate" (the same key twice in one object).
Result<Json> parse_json(std::string_view text, const std::string& file, JsonLimits limits = {});

// Reads a whole file, then parse_json. Errors: "file.open", "file.read" and those of parse_json.
Result<Json> read_json(const std::filesystem::path& path, JsonLimits limits = {});

// Numbers that a member may hold.
struct NumberRange {
  double low = std::numeric_limits<double>::lowest();
  double high = std::numeric_limits<double>::max();
  bool above_low = false;  // `low` itself is out of range

  [[nodiscard]] bool holds(double value) const {
    return (above_low ? value > low : value >= low) && value <= high;  // never NaN
  }
};

// Typed, checked access to one object's members. Every getter names `file` and the member's JSON pointer in its
// error ("config.type", "config.missing", "config.range"). A fallback is held to the range of the value: a member that
// is absent or null and whose fallback is out of range is "config.missing".
class JsonReader {
 public:
  JsonReader(const Json& object, std::string file, std::string pointer = "")
      : object_(object), file_(std::move(file)), pointer_(std::move(pointer)) {}
  [[nodiscard]] bool has(std::string_view key) const;  // present and not null
  [[nodiscard]] Result<std::int64_t> integer(std::string_view key, std::int64_t low, std::int64_t high) const;
  [[nodiscard]] Result<std::int64_t> integer_or(std::string_view key, std::int64_t fallback, std::int64_t low,
                                                std::int64_t high) const;
  [[nodiscard]] Result<double> number_or(std::string_view key, double fallback, NumberRange range = {}) const;
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
