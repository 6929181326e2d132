#include "base/json.h"

#include <fmt/format.h>

#include <cmath>
#include <utility>

#include "base/json/document.h"

namespace moracle {

namespace {

Error member_error(const JsonReader& reader, std::string_view key, std::string code, std::string wanted,
                   std::string found) {
  return Error{.code = std::move(code),
               .file = reader.file(),
               .where = reader.pointer(key),
               .wanted = std::move(wanted),
               .found = std::move(found)};
}

std::string shown(const Json& value) {
  const double real = value.is_number_float() ? value.get<double>() : 0.0;
  if (std::isnan(real)) return "NaN";
  if (std::isinf(real)) return real > 0 ? "Infinity" : "-Infinity";
  return value.is_structured() ? value.type_name() : value.dump();
}

Error type_error(const JsonReader& reader, std::string_view key, std::string wanted) {
  return member_error(reader, key, "config.type", std::move(wanted), shown(reader.json().at(std::string(key))));
}

Error missing_error(const JsonReader& reader, std::string_view key, std::string wanted, const std::string& fallback) {
  return member_error(reader, key, "config.missing", std::move(wanted),
                      "nothing, and the default of " + fallback + " is out of range");
}

std::string range_text(std::int64_t low, std::int64_t high) {
  return std::to_string(low) + " to " + std::to_string(high);
}

std::string range_text(const NumberRange& range) {
  if (range.low == std::numeric_limits<double>::lowest()) {
    return range.high == std::numeric_limits<double>::max() ? "a finite number"
                                                            : fmt::format("a number up to {}", range.high);
  }
  const std::string low = fmt::format("a number {} {}", range.above_low ? "above" : "from", range.low);
  if (range.high == std::numeric_limits<double>::max()) return low + " on";
  return low + fmt::format(" to {}", range.high);
}

}  // namespace

Result<Json> parse_json(std::string_view text, const std::string& file, JsonLimits limits) {
  MORACLE_ASSIGN(JsonDocument document, parse_document(text, file, limits));
  return std::move(document.json);
}

Result<Json> read_json(const std::filesystem::path& path, JsonLimits limits) {
  MORACLE_ASSIGN(const std::string text, read_text(path));
  return parse_json(text, path.string(), limits);
}

bool JsonReader::has(std::string_view key) const {
  const auto it = object_.find(std::string(key));
  return it != object_.end() && !it->is_null();
}

Result<std::int64_t> JsonReader::integer(std::string_view key, std::int64_t low, std::int64_t high) const {
  if (!has(key)) {
    return Error{
        .code = "config.missing", .file = file_, .where = pointer(key), .wanted = "an integer", .found = "nothing"};
  }
  const Json& value = object_.at(std::string(key));
  std::int64_t number = 0;
  bool integral = value.is_number_integer();
  if (integral) {
    if (value.is_number_unsigned() && value.get<std::uint64_t>() > static_cast<std::uint64_t>(INT64_MAX)) {
      integral = false;
    } else {
      number = value.get<std::int64_t>();
    }
  } else if (value.is_number_float()) {
    const double real = value.get<double>();
    integral = std::floor(real) == real && std::abs(real) < 9e15;
    if (integral) number = static_cast<std::int64_t>(real);
  }
  if (!integral) return type_error(*this, key, "an integer");
  if (number < low || number > high) {
    return member_error(*this, key, "config.range", range_text(low, high), std::to_string(number));
  }
  return number;
}

Result<std::int64_t> JsonReader::integer_or(std::string_view key, std::int64_t fallback, std::int64_t low,
                                            std::int64_t high) const {
  if (has(key)) return integer(key, low, high);
  if (fallback >= low && fallback <= high) return fallback;
  return missing_error(*this, key, range_text(low, high), std::to_string(fallback));
}

Result<double> JsonReader::number_or(std::string_view key, double fallback, NumberRange range) const {
  if (!has(key)) {
    if (range.holds(fallback)) return fallback;
    return missing_error(*this, key, range_text(range), fmt::format("{}", fallback));
  }
  const Json& value = object_.at(std::string(key));
  if (!value.is_number() || !std::isfinite(value.get<double>())) return type_error(*this, key, "a finite number");
  const auto number = value.get<double>();
  if (!range.holds(number)) {
    return member_error(*this, key, "config.range", range_text(range), fmt::format("{}", number));
  }
  return number;
}

Result<bool> JsonReader::boolean_or(std::string_view key, bool fallback) const {
  if (!has(key)) return fallback;
  const Json& value = object_.at(std::string(key));
  if (!value.is_boolean()) return type_error(*this, key, "true or false");
  return value.get<bool>();
}

Result<std::string> JsonReader::string_or(std::string_view key, std::string fallback) const {
  if (!has(key)) return fallback;
  const Json& value = object_.at(std::string(key));
  if (!value.is_string()) return type_error(*this, key, "a string");
  return value.get<std::string>();
}

}  // namespace moracle
