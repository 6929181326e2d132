#include "text/tokenizer/search/regex_syntax.h"

#include <fmt/format.h>

#include <algorithm>
#include <optional>
#include <utility>

#include "text/tokenizer/search/regex_classes.h"
#include "text/unicode.h"

namespace moracle {
namespace {

constexpr std::size_t kMaxPattern = std::size_t{1} << 16;
constexpr std::size_t kMaxResult = std::size_t{1} << 22;
constexpr int kMaxDepth = 100;
constexpr std::size_t kFar = PatternText::kUnbounded;

// How much of a text an expression takes and looks at, in characters; all that is kFar or more is kFar.
struct Extent {
  // Whether it may match nothing: an anchor, a look-around, an optional atom, a group of such. Oniguruma refuses some
  // repeats of these, and ends others elsewhere than PCRE2; no tokenizer needs any.
  bool nullable = false;
  std::size_t longest = 0;  // match
  std::size_t ahead = 0;    // of its start
  std::size_t beyond = 0;   // its end
  std::size_t behind = 0;   // its start

  static Extent character() { return {.longest = 1, .ahead = 1}; }
  // An anchor looks at a line feed and at whether the text ends behind it.
  static Extent anchor() { return {.nullable = true, .ahead = 2, .beyond = 2, .behind = 1}; }
  static Extent look_ahead(const Extent& body) {
    return {.nullable = true, .ahead = body.ahead, .beyond = body.ahead, .behind = body.behind};
  }
  static Extent look_behind(const Extent& body) {
    return {.nullable = true,
            .ahead = body.beyond,
            .beyond = body.beyond,
            .behind = std::min(body.longest + body.behind, kFar)};
  }

  [[nodiscard]] Extent then(const Extent& next) const {
    return {nullable && next.nullable, std::min(longest + next.longest, kFar),
            std::max(ahead, std::min(longest + next.ahead, kFar)), std::max(beyond, next.beyond),
            std::max(behind, next.behind)};
  }
  [[nodiscard]] Extent otherwise(const Extent& other) const {
    return {nullable || other.nullable, std::max(longest, other.longest), std::max(ahead, other.ahead),
            std::max(beyond, other.beyond), std::max(behind, other.behind)};
  }
  [[nodiscard]] Extent repeated(std::size_t most, bool optional) const {
    const std::size_t before = longest * (most > 0 ? most - 1 : 0);
    return {optional, std::min(longest * most, kFar), std::min(before + ahead, kFar), beyond, behind};
  }
};

struct Flags {
  bool caseless = false;
  bool extended = false;
  // Within a look-behind of the kind.
  bool behind_positive = false;
  bool behind_negative = false;
};

bool is_digit(char c) {
  return c >= '0' && c <= '9';
}
bool is_letter(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z');
}

// Recursive descent over one pattern; every parse_* returns PCRE2 text of what it consumed.
class Translator {
 public:
  explicit Translator(std::string_view pattern) : pattern_(pattern) {}

  Result<PatternText> run() {
    if (pattern_.size() > kMaxPattern) return refuse("a pattern of more than 64 KiB");
    MORACLE_ASSIGN(std::string text, parse_alternation(Flags{}, 0));
    if (!at_end()) return refuse("an unmatched )");
    if (text.size() > kMaxResult) return refuse("a pattern that expands to more than 4 MiB");
    return PatternText{std::move(text), extent_.ahead, extent_.behind};
  }

 private:
  [[nodiscard]] bool at_end() const { return at_ >= pattern_.size(); }
  [[nodiscard]] char peek(std::size_t ahead = 0) const {
    return at_ + ahead < pattern_.size() ? pattern_[at_ + ahead] : '\0';
  }
  bool accept(std::string_view text) {
    if (pattern_.substr(at_, text.size()) != text) return false;
    at_ += text.size();
    return true;
  }
  [[nodiscard]] Error refuse(std::string what) const {
    return {.code = "tokenizer.unsupported",
            .wanted = "a regular expression of the supported syntax",
            .found = fmt::format("{} near byte {}", what, at_)};
  }
  char32_t take_code() {
    const auto next = unicode::decode_at(pattern_, at_);
    at_ += next.size;
    return next.code;
  }

  Result<std::string> parse_alternation(Flags flags, int depth) {
    if (depth > kMaxDepth) return refuse("groups nested more than 100 deep");
    std::string text;
    Extent extent;
    for (;;) {
      MORACLE_ASSIGN(const std::string sequence, parse_sequence(flags, depth));
      text += sequence;
      extent = extent.otherwise(extent_);
      if (!accept("|")) break;
      text += '|';
    }
    extent_ = extent;
    return text;
  }

  Result<std::string> parse_sequence(Flags flags, int depth) {
    std::string text;
    Extent extent{.nullable = true};
    while (!at_end() && peek() != '|' && peek() != ')') {
      if (flags.extended && skip_extended()) continue;
      if (accept("(?#")) {
        while (!at_end() && peek() != ')') ++at_;
        if (!accept(")")) return refuse("an open comment");
        continue;
      }
      MORACLE_ASSIGN(std::string atom, parse_atom(flags, depth));
      MORACLE_ASSIGN(const std::string repeated, parse_repeats(flags, std::move(atom)));
      extent = extent.then(extent_);
      text += repeated;
      if (text.size() > kMaxResult) return refuse("a pattern that expands to more than 4 MiB");
    }
    extent_ = extent;
    return text;
  }

  bool skip_extended() {
    const char c = peek();
    if (c == ' ' || (c >= '\t' && c <= '\r')) {
      ++at_;
      return true;
    }
    if (c != '#') return false;
    while (!at_end() && peek() != '\n') ++at_;
    return true;
  }

  // "{n}", "{n,}", "{n,m}" or "{,m}" at the cursor as PCRE2 spells it; empty (and nothing consumed) for anything else.
  struct Interval {
    std::string text;
    bool exact = false;
    bool optional = false;  // no time at all will do
    std::size_t most = kFar;
  };
  std::optional<Interval> accept_interval() {
    std::size_t end = at_ + 1;
    const auto digits = [&] {
      const std::size_t start = end;
      while (end < pattern_.size() && is_digit(pattern_[end])) ++end;
      return std::string(pattern_.substr(start, end - start));
    };
    const std::string low = digits();
    const bool comma = end < pattern_.size() && pattern_[end] == ',';
    if (comma) ++end;
    const std::string high = comma ? digits() : "";
    if (end >= pattern_.size() || pattern_[end] != '}' || (low.empty() && high.empty())) return std::nullopt;
    at_ = end + 1;
    return Interval{.text = fmt::format("{{{}{}{}}}", low.empty() ? "0" : low, comma ? "," : "", high),
                    .exact = !comma,
                    .optional = low.find_first_not_of('0') == std::string::npos,
                    .most = comma ? number(high) : number(low)};
  }

  // None is without a limit.
  static std::size_t number(std::string_view digits) {
    if (digits.empty()) return kFar;
    std::size_t value = 0;
    for (const char c : digits) value = std::min(value * 10 + static_cast<std::size_t>(c - '0'), kFar);
    return value;
  }

  Result<std::string> parse_repeats(Flags flags, std::string atom) {
    for (bool repeated = false;; repeated = true) {
      while (flags.extended && skip_extended()) {
      }
      const char c = peek();
      std::string suffix;
      bool optional = c != '+';
      std::size_t most = c == '?' ? 1 : kFar;
      if (!at_end() && (c == '*' || c == '+' || c == '?')) {
        suffix = c;
        ++at_;
        if (peek() == '?' || peek() == '+') suffix += pattern_[at_++];
      } else if (c == '{') {
        // In this syntax "+" after an interval repeats the whole, and "?" after {n} makes it optional: both are further
        // repeats, not possessive or lazy marks.
        const auto interval = accept_interval();
        if (!interval) return atom;
        suffix = interval->text;
        optional = interval->optional;
        most = interval->most;
        if (!interval->exact && accept("?")) suffix += '?';
      } else {
        return atom;
      }
      if (extent_.nullable) return refuse("a repeat of what may be empty");
      atom = (repeated ? "(?:" + atom + ")" : atom) + suffix;
      if (atom.size() > kMaxResult) return refuse("a pattern that expands to more than 4 MiB");
      extent_ = extent_.repeated(most, optional);
    }
  }

  Result<std::string> parse_atom(Flags flags, int depth) {
    extent_ = Extent::character();
    switch (peek()) {
      case '(':
        return parse_group(flags, depth);
      case '[':
        ++at_;
        return parse_class(flags, depth);
      case '\\':
        return parse_escape(flags);
      case '^':
      case '$':
        extent_ = Extent::anchor();
        [[fallthrough]];
      case '.':
        return std::string(1, pattern_[at_++]);
      case '*':
      case '+':
      case '?':
        return refuse("a repeat of nothing");
      case '{':
        if (accept_interval()) return refuse("a repeat of nothing");
        [[fallthrough]];
      default:
        if (at_end()) return refuse("the end of the pattern");
        return code_text(take_code());
    }
  }

  Result<std::string> close_group(const std::string& open, Flags flags, int depth) {
    MORACLE_ASSIGN(const std::string body, parse_alternation(flags, depth + 1));
    if (!accept(")")) return refuse("an open group");
    return open + body + ")";
  }

  Result<std::string> parse_group(Flags flags, int depth) {
    for (const std::string_view open : {"(?=", "(?!", "(?<=", "(?<!"}) {
      if (accept(open)) return parse_look_around(open, flags, depth);
    }
    for (const std::string_view open : {"(?:", "(?>"}) {
      if (accept(open)) return close_group(std::string(open), flags, depth);
    }
    if (accept("(?<")) {  // a named group; nothing refers to it
      if (!is_letter(peek()) && peek() != '_') return refuse("a group name");
      while (is_letter(peek()) || is_digit(peek()) || peek() == '_') ++at_;
      if (!accept(">")) return refuse("a group name");
    } else if (accept("(?")) {
      return parse_flags(flags, depth);
    } else {
      ++at_;
    }
    if (flags.behind_negative) return refuse("a capture in a negative look-behind");
    return close_group("(?:", flags, depth);
  }

  // Oniguruma takes no look-ahead within a look-behind, and no negative look-behind within a positive one.
  Result<std::string> parse_look_around(std::string_view open, Flags flags, int depth) {
    const bool ahead = open.size() == 3;
    const bool negative = open.back() == '!';
    if (flags.behind_positive && (ahead || negative)) return refuse("a look-around in a look-behind");
    if (flags.behind_negative && ahead) return refuse("a look-ahead in a look-behind");
    if (!ahead) (negative ? flags.behind_negative : flags.behind_positive) = true;
    MORACLE_ASSIGN(std::string around, close_group(std::string(open), flags, depth));
    extent_ = ahead ? Extent::look_ahead(extent_) : Extent::look_behind(extent_);
    return around;
  }

  // "(?i-m:...)" or "(?i)", which holds to the end of the enclosing group, alternatives included.
  Result<std::string> parse_flags(Flags flags, int depth) {
    if (peek() == ':' || peek() == ')') return refuse("a group without an option");
    std::string on;
    std::string off;
    bool negative = false;
    for (; !at_end() && peek() != ':' && peek() != ')'; ++at_) {
      switch (peek()) {
        case '-':
          negative = true;
          break;
        case 'i':
          flags.caseless = !negative;
          (negative ? off : on) += 'i';
          break;
        case 'm':  // here: the dot matches a line feed too
          (negative ? off : on) += 's';
          break;
        case 'x':
          flags.extended = !negative;
          break;
        default:
          return refuse(fmt::format("group option {}", peek()));
      }
    }
    const std::string open = off.empty() ? "(?" + on + ":" : "(?" + on + "-" + off + ":";
    if (accept(":")) return close_group(open, flags, depth);
    if (!accept(")")) return refuse("an open group");
    MORACLE_ASSIGN(const std::string rest, parse_alternation(flags, depth + 1));
    return open + rest + ")";
  }

  Result<std::string> parse_escape(Flags flags) {
    const char c = peek(1);
    if (const auto set = escape_class(c)) {
      at_ += 2;
      return set->render(false);
    }
    switch (c) {
      case 'p':
      case 'P': {
        MORACLE_ASSIGN(const ClassText set, parse_property(flags));
        return set.render(false);
      }
      case 'A':
      case 'z':
      case 'Z':
        if (c != 'A' && (flags.behind_positive || flags.behind_negative)) return refuse("an end in a look-behind");
        at_ += 2;
        extent_ = Extent::anchor();
        return fmt::format("\\{}", c);
      case 'b':
      case 'B': {
        at_ += 2;
        extent_ = Extent::anchor();
        const std::string word = escape_class('w')->render(false);
        if (c == 'b') return fmt::format("(?:(?<={0})(?!{0})|(?<!{0})(?={0}))", word);
        return fmt::format("(?:(?<={0})(?={0})|(?<!{0})(?!{0}))", word);
      }
      case 'R':
        at_ += 2;
        extent_ = Extent::character().repeated(2, false);
        return std::string(R"((?>\x{d}\x{a}|[\x{a}-\x{d}\x{85}\x{2028}\x{2029}]))");
      default: {
        MORACLE_ASSIGN(const char32_t code, parse_character_escape());
        return code_text(code);
      }
    }
  }

  // An escape that stands for one character; the cursor is at the backslash.
  Result<char32_t> parse_character_escape() {
    ++at_;
    if (at_end()) return refuse("a backslash at the end");
    const char c = peek();
    static constexpr std::pair<char, char32_t> kControls[] = {{'t', 9},  {'n', 10}, {'v', 11}, {'f', 12},
                                                              {'r', 13}, {'a', 7},  {'e', 27}};
    for (const auto& [letter, code] : kControls) {
      if (c == letter) return (++at_, code);
    }
    if (c == 'x' || c == 'u') {
      ++at_;
      if (c == 'x' && accept("{")) {
        MORACLE_ASSIGN(const char32_t code, parse_hex(1, 8));
        if (!accept("}")) return refuse("an open \\x{");
        return code;
      }
      MORACLE_ASSIGN(const char32_t code, c == 'u' ? parse_hex(4, 4) : parse_hex(1, 2));
      if (c == 'x' && code > 0x7F) return refuse("a raw byte");
      return code;
    }
    if (is_letter(c) || is_digit(c)) return refuse(fmt::format("\\{}", c));
    return take_code();
  }

  Result<char32_t> parse_hex(std::size_t least, std::size_t most) {
    std::uint32_t value = 0;
    std::size_t count = 0;
    for (; count < most; ++count, ++at_) {
      const char c = peek();
      if (is_digit(c)) {
        value = value * 16 + static_cast<std::uint32_t>(c - '0');
      } else if ((c >= 'a' && c <= 'f') || (c >= 'A' && c <= 'F')) {
        value = value * 16 + static_cast<std::uint32_t>((c | 0x20) - 'a') + 10;
      } else {
        break;
      }
    }
    if (count < least || value > 0x10FFFF || (value >= 0xD800 && value < 0xE000)) return refuse("a character code");
    return static_cast<char32_t>(value);
  }

  Result<ClassText> parse_property(Flags flags) {
    const bool negated = peek(1) == 'P';
    at_ += 2;
    if (!accept("{")) return refuse("\\p without braces");  // Oniguruma takes it for the letter
    const std::size_t end = pattern_.find('}', at_);
    if (end == std::string_view::npos) return refuse("an open \\p{");
    const std::string_view name = pattern_.substr(at_, end - at_);
    at_ = end + 1;
    const auto set = property_class(name, negated);
    if (!set) return refuse(fmt::format("property {}", name));
    if (set->cased && flags.caseless) return refuse(fmt::format("property {} in a caseless group", name));
    return set->text;
  }

  // A bracket class; the cursor is after its "[".
  Result<std::string> parse_class(Flags flags, int depth) {
    if (depth > kMaxDepth) return refuse("classes nested more than 100 deep");
    const bool negated = accept("^");
    ClassText current;
    std::string intersected;  // look-aheads of the operands left of "&&"
    for (bool first = true;; first = false) {
      if (at_end()) return refuse("an open [");
      if (peek() == ']' && !first) break;
      if (accept("&&")) {
        intersected += "(?=" + current.render(false) + ")";
        current = {};
        continue;
      }
      MORACLE_TRY(parse_class_item(flags, depth, current));
    }
    ++at_;
    if (intersected.empty()) return current.render(negated);
    const std::string all = intersected + current.render(false);
    return negated ? "(?:(?!" + all + ")(?s:.))" : "(?:" + all + ")";
  }

  Result<> parse_class_item(Flags flags, int depth, ClassText& current) {
    if (accept("[:")) {
      const std::size_t end = pattern_.find(":]", at_);
      const auto set = end == std::string_view::npos ? std::nullopt : posix_class(pattern_.substr(at_, end - at_));
      if (!set) return refuse("a POSIX class");
      at_ = end + 2;
      current.add(*set);
      return Ok{};
    }
    if (accept("[")) {
      MORACLE_ASSIGN(std::string nested, parse_class(flags, depth + 1));
      current.extra.push_back(std::move(nested));
      return Ok{};
    }
    if (peek() == '\\') {
      std::optional<ClassText> set = escape_class(peek(1));
      if (set) {
        at_ += 2;
      } else if (peek(1) == 'p' || peek(1) == 'P') {
        MORACLE_ASSIGN(set, parse_property(flags));
      }
      if (set) {
        if (peek() == '-' && peek(1) != ']') return refuse("a range that starts at a class");
        current.add(*set);
        return Ok{};
      }
    }
    MORACLE_ASSIGN(const char32_t low, parse_class_code());
    current.items += code_text(low);
    if (peek() != '-' || peek(1) == ']' || at_ + 1 >= pattern_.size()) return Ok{};
    ++at_;
    if (peek() == '[' || (peek() == '&' && peek(1) == '&')) return refuse("a range that ends at a class");
    MORACLE_ASSIGN(const char32_t high, parse_class_code());
    if (high < low) return refuse("an empty range");
    current.items += "-" + code_text(high);
    if (peek() == '-' && peek(1) != ']') {  // "a-c-e": the second dash is itself
      ++at_;
      current.items += code_text('-');
    }
    return Ok{};
  }

  Result<char32_t> parse_class_code() {
    if (peek() != '\\') return take_code();
    if (peek(1) == 'b') {
      at_ += 2;
      return char32_t{8};
    }
    return parse_character_escape();
  }

  std::string_view pattern_;
  std::size_t at_ = 0;
  Extent extent_;  // of what was parsed last
};

}  // namespace

Result<PatternText> to_pcre2(std::string_view pattern) {
  return Translator(pattern).run();
}

}  // namespace moracle
