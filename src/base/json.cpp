#include "base/json.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <iterator>
#include <tuple>
#include <utility>
#include <vector>

#include "base/json_scanner.h"
#include "base/printable.h"

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

namespace {

// Builds a document in one pass over the text.
class DocumentReader {
 public:
  // `base` is the position of `text` in the file.
  DocumentReader(std::string_view text, std::uint64_t base, const std::string& file, const JsonLimits& limits)
      : scanner_(text, base, file, "json.syntax"), limits_(limits) {}

  Result<Json> read() {
    Json document;
    MORACLE_TRY(value(document, 0));
    MORACLE_TRY(scanner_.expect_end());
    return document;
  }

 private:
  struct Member {
    Member(std::string key_, std::uint64_t byte_) : key(std::move(key_)), byte(byte_) {}
    std::string key;
    std::uint64_t byte;
    Json value;
  };

  Result<> value(Json& out, int depth) {
    if (++values_ > limits_.values) {
      return limit("json.values", "at most " + std::to_string(limits_.values) + " values", "more");
    }
    switch (scanner_.peek()) {
      case '{':
        return depth < limits_.depth ? object(out, depth + 1) : too_deep();
      case '[':
        return depth < limits_.depth ? array(out, depth + 1) : too_deep();
      case '"': {
        MORACLE_ASSIGN(out, scanner_.string());
        return Ok{};
      }
      default:
        return literal(out) ? Result<>(Ok{}) : number(out);
    }
  }

  Result<> object(Json& out, int depth) {
    out = Json::object();
    auto& members = out.get_ref<Json::object_t&>();
    std::vector<Member> later;
    MORACLE_TRY(scanner_.object([&](std::string key, std::uint64_t byte) -> Result<> {
      // Writers sort their keys, or write few. Of many others each would be looked for all over the memory: they wait.
      if (!later.empty() || (members.size() >= kFewMembers && key < members.rbegin()->first)) {
        if (++scattered_ > kMostScattered) {
          return limit("json.values", "at most " + std::to_string(kMostScattered) + " members in no order", "more");
        }
        return value(later.emplace_back(std::move(key), byte).value, depth);
      }
      const std::size_t before = members.size();
      const auto member = members.emplace_hint(members.end(), std::move(key), nullptr);
      if (members.size() == before) return duplicate(member->first, byte);
      return value(member->second, depth);
    }));
    return add_sorted(std::move(later), members);
  }

  Result<> add_sorted(std::vector<Member> later, Json::object_t& members) {
    std::sort(later.begin(), later.end(),
              [](const Member& a, const Member& b) { return std::tie(a.key, a.byte) < std::tie(b.key, b.byte); });
    auto behind = members.begin();
    for (Member& next : later) {
      const std::size_t before = members.size();
      const auto member = members.emplace_hint(behind, std::move(next.key), std::move(next.value));
      if (members.size() == before) return duplicate(member->first, next.byte);
      behind = std::next(member);
    }
    return Ok{};
  }

  Result<> array(Json& out, int depth) {
    out = Json::array();
    auto& elements = out.get_ref<Json::array_t&>();
    return scanner_.array([&](std::size_t) { return value(elements.emplace_back(), depth); });
  }

  // The words of JSON, and three that Python writes.
  bool literal(Json& out) {
    constexpr double kInfinity = std::numeric_limits<double>::infinity();
    static const std::array<std::pair<std::string_view, Json>, 6> words{
        {{"true", true},
         {"false", false},
         {"null", nullptr},
         {"NaN", std::numeric_limits<double>::quiet_NaN()},
         {"Infinity", kInfinity},
         {"-Infinity", -kInfinity}}};
    for (const auto& [word, value] : words) {
      if (!scanner_.literal(word)) continue;
      out = value;
      return true;
    }
    return false;
  }

  // Whole numbers that fit 64 bits stay whole; others are the nearest double.
  Result<> number(Json& out) {
    const std::uint64_t byte = scanner_.position();
    if (const char next = scanner_.peek(); next != '-' && (next < '0' || next > '9')) {
      return scanner_.error("a JSON value");
    }
    MORACLE_ASSIGN(const std::string_view token, scanner_.number());
    const char* const begin = token.data();
    const char* const end = begin + token.size();
    if (token.find_first_of(".eE") == std::string_view::npos) {
      const auto parse = [&](auto whole) {
        const bool fits = std::from_chars(begin, end, whole).ec == std::errc();
        if (fits) out = whole;
        return fits;
      };
      if (token.front() == '-' ? parse(std::int64_t{}) : parse(std::uint64_t{})) return Ok{};
    }
    double real = 0.0;
    const std::errc failure = std::from_chars(begin, end, real).ec;
    // Too small to be told from zero is zero; too large is an error.
    const bool tiny = failure == std::errc::result_out_of_range && magnitude_is_small(token);
    if (failure != std::errc() && !tiny) {
      return Error{.code = "json.syntax",
                   .file = scanner_.file(),
                   .where = at(byte),
                   .wanted = "a number that a double can hold",
                   .found = std::string(token.substr(0, 40))};
    }
    out = tiny ? 0.0 : real;
    return Ok{};
  }

  // Of numbers out of a double's range.
  static bool magnitude_is_small(std::string_view token) {
    const std::size_t exponent = token.find_first_of("eE");
    if (exponent != std::string_view::npos) return token[exponent + 1] == '-';
    return token.starts_with("0.") || token.starts_with("-0.");
  }

  static std::string at(std::uint64_t byte) { return "byte " + std::to_string(byte); }

  Error limit(const char* code, std::string wanted, std::string found) {
    return Error{.code = code,
                 .file = scanner_.file(),
                 .where = at(scanner_.position()),
                 .wanted = std::move(wanted),
                 .found = std::move(found)};
  }
  Error too_deep() {
    return limit("json.depth", "nesting of at most " + std::to_string(limits_.depth), "deeper nesting");
  }
  Error duplicate(const std::string& key, std::uint64_t byte) const {
    return Error{.code = "json.duplicate",
                 .file = scanner_.file(),
                 .where = in_quotes(key) + " at " + at(byte),
                 .wanted = "each key once",
                 .found = "a key that occurs twice"};
  }

  static constexpr std::size_t kFewMembers = 256;
  static constexpr std::size_t kMostScattered = 600'000;  // of a document, in an order that must be sorted

  JsonScanner scanner_;
  const JsonLimits& limits_;
  std::size_t values_ = 0, scattered_ = 0;
};

}  // namespace

Result<Json> parse_json(std::string_view text, const std::string& file, JsonLimits limits) {
  if (text.size() > limits.bytes) {
    return Error{.code = "json.size",
                 .file = file,
                 .wanted = "at most " + std::to_string(limits.bytes) + " bytes",
                 .found = std::to_string(text.size()) + " bytes"};
  }
  constexpr std::string_view kByteOrderMark = "\xEF\xBB\xBF";
  const std::size_t base = text.starts_with(kByteOrderMark) ? kByteOrderMark.size() : 0;
  return DocumentReader(text.substr(base), base, file, limits).read();
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
