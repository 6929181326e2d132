#include "base/json/document.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <iterator>
#include <limits>
#include <set>
#include <tuple>
#include <utility>
#include <vector>

#include "base/json_scanner.h"
#include "base/printable.h"

namespace moracle {

namespace {

// Builds a document in one pass over the text.
class DocumentReader {
 public:
  // `base` is the position of `text` in the file.
  DocumentReader(std::string_view text, std::uint64_t base, const std::string& file, const JsonLimits& limits,
                 std::span<const std::string_view> ordered_members)
      : scanner_(text, base, file, "json.syntax"), limits_(limits), ordered_members_(ordered_members) {
    document_.ordered.resize(ordered_members.size());
  }

  Result<JsonDocument> read() {
    MORACLE_TRY(value(document_.json, 0));
    MORACLE_TRY(scanner_.expect_end());
    return std::move(document_);
  }
  Result<OrderedJson> read_ordered() {
    OrderedJson json;
    MORACLE_TRY(value(json, 0));
    MORACLE_TRY(scanner_.expect_end());
    return json;
  }

 private:
  struct Member {
    Member(std::string key_, std::uint64_t byte_) : key(std::move(key_)), byte(byte_) {}
    std::string key;
    std::uint64_t byte;
    Json value;
  };

  template <class AnyJson>
  Result<> value(AnyJson& out, int depth) {
    if (++values_ > limits_.values) {
      return limit("json.values", "at most " + std::to_string(limits_.values) + " values", "more");
    }
    switch (scanner_.peek()) {
      case '{':
        return depth < limits_.depth ? object(out, depth + 1) : too_deep();
      case '[':
        return depth < limits_.depth ? array(out, depth + 1) : too_deep();
      case '"': {
        MORACLE_ASSIGN(std::string text, scanner_.string());
        note_text(text);
        out = std::move(text);
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
      note_text(key);
      OrderedJson* const ordered = depth == 1 ? ordered_place(key) : nullptr;
      // Writers sort their keys, or write few. Of many others each would be looked for all over the memory: they wait.
      if (!later.empty() || (members.size() >= kFewMembers && key < members.rbegin()->first)) {
        if (Result<> counted = count_scattered(); !counted.ok()) return counted;
        Json& place = later.emplace_back(std::move(key), byte).value;
        return ordered != nullptr ? value(*ordered, depth) : value(place, depth);
      }
      const std::size_t before = members.size();
      const auto member = members.emplace_hint(members.end(), std::move(key), nullptr);
      if (members.size() == before) return duplicate(member->first, byte);
      return ordered != nullptr ? value(*ordered, depth) : value(member->second, depth);
    }));
    return add_sorted(std::move(later), members);
  }

  Result<> object(OrderedJson& out, int depth) {
    out = OrderedJson::object();
    auto& members = out.get_ref<OrderedJson::object_t&>();
    std::set<std::string> keys;
    bool scattered = false;
    return scanner_.object([&](std::string key, std::uint64_t byte) -> Result<> {
      note_text(key);
      scattered = scattered || (keys.size() >= kFewMembers && key < *keys.rbegin());
      if (scattered) MORACLE_TRY(count_scattered());
      if (!keys.insert(key).second) return duplicate(key, byte);
      return value(members.emplace_back(std::move(key), nullptr).second, depth);
    });
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

  template <class AnyJson>
  Result<> array(AnyJson& out, int depth) {
    out = AnyJson::array();
    auto& elements = out.template get_ref<typename AnyJson::array_t&>();
    return scanner_.array([&](std::size_t) { return value(elements.emplace_back(), depth); });
  }

  // The words of JSON, and three that Python writes.
  template <class AnyJson>
  bool literal(AnyJson& out) {
    constexpr double kInfinity = std::numeric_limits<double>::infinity();
    static const std::array<std::pair<std::string_view, AnyJson>, 6> words{
        {{"true", true},
         {"false", false},
         {"null", nullptr},
         {"NaN", std::numeric_limits<double>::quiet_NaN()},
         {"Infinity", kInfinity},
         {"-Infinity", -kInfinity}}};
    for (const auto& [word, value] : words) {
      if (!scanner_.literal(word)) continue;
      out = value;
      document_.has_not_finite = document_.has_not_finite || value.is_number_float();
      return true;
    }
    return false;
  }

  // Whole numbers that fit 64 bits stay whole; others are the nearest double.
  template <class AnyJson>
  Result<> number(AnyJson& out) {
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

  // Where an ordered member's value goes; null: the key names none.
  OrderedJson* ordered_place(std::string_view key) {
    const auto name = std::find(ordered_members_.begin(), ordered_members_.end(), key);
    if (name == ordered_members_.end()) return nullptr;
    return &document_.ordered[static_cast<std::size_t>(name - ordered_members_.begin())];
  }

  void note_text(std::string_view text) {
    document_.has_nul = document_.has_nul || text.find('\0') != std::string_view::npos;
  }

  Result<> count_scattered() {
    if (++scattered_ <= kMaxScattered) return Ok{};
    return limit("json.values", "at most " + std::to_string(kMaxScattered) + " members in no order", "more");
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
  static constexpr std::size_t kMaxScattered = 600'000;  // of a document, in an order that must be sorted

  JsonScanner scanner_;
  const JsonLimits& limits_;
  std::span<const std::string_view> ordered_members_;
  JsonDocument document_;
  std::size_t values_ = 0, scattered_ = 0;
};

constexpr std::string_view kByteOrderMark = "\xEF\xBB\xBF";

// read(reader) of a text within the limit of bytes.
template <class Read>
auto read_text_with(std::string_view text, const std::string& file, const JsonLimits& limits,
                    std::span<const std::string_view> ordered_members, const Read& read)
    -> decltype(read(std::declval<DocumentReader&>())) {
  if (text.size() > limits.bytes) {
    return Error{.code = "json.size",
                 .file = file,
                 .wanted = "at most " + std::to_string(limits.bytes) + " bytes",
                 .found = std::to_string(text.size()) + " bytes"};
  }
  const std::size_t base = text.starts_with(kByteOrderMark) ? kByteOrderMark.size() : 0;
  DocumentReader reader(text.substr(base), base, file, limits, ordered_members);
  return read(reader);
}

}  // namespace

Result<JsonDocument> parse_document(std::string_view text, const std::string& file, JsonLimits limits,
                                    std::span<const std::string_view> ordered_members) {
  return read_text_with(text, file, limits, ordered_members, [](DocumentReader& reader) { return reader.read(); });
}

Result<OrderedJson> parse_ordered_json(std::string_view text, const std::string& file, JsonLimits limits) {
  return read_text_with(text, file, limits, {}, [](DocumentReader& reader) { return reader.read_ordered(); });
}

}  // namespace moracle
