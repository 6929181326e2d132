#include "text/constrain/regex/regex_syntax.h"

#include <algorithm>
#include <string>
#include <utility>

#include "base/unicode/utf8.h"
#include "text/constrain/regex/character_class.h"

namespace moracle {

namespace {

constexpr int kMostDepth = 64;
constexpr char32_t kEnd = 0xFFFFFFFF;
constexpr std::int64_t kMany = std::int64_t{1} << 40;

RegexNode node_of(CodeSet set) {
  return {.kind = RegexNode::Kind::set, .set = std::move(set)};
}

CharacterClass single(char32_t code) {
  return {{{code, code}}, {{code, code}}};
}

// The characters that a node counts for once its repeats are multiplied out.
std::int64_t expanded(const RegexNode& node) {
  std::int64_t sum = node.parts.empty() ? 1 : 0;
  for (const RegexNode& part : node.parts) sum = std::min(sum + expanded(part), kMany);
  if (node.kind != RegexNode::Kind::repeat) return sum;
  return std::min(sum * std::clamp<std::int64_t>(node.most.value_or(node.least + 1), 1, kMany / kMostRepeats), kMany);
}

class Parser {
 public:
  explicit Parser(std::string_view text) : text_(text) {}

  Result<Regex> parse() {
    Regex regex;
    MORACLE_TRY(branches(regex));
    if (next() != kEnd) return error("regex.syntax", "a group that is opened", "a closing parenthesis");
    std::int64_t sum = 0;
    for (const RegexBranch& branch : regex.branches) sum = std::min(sum + expanded(branch.body), kMany);
    if (sum > kMostRepeats)
      return error("constrain.complex", "at most " + std::to_string(kMostRepeats) + " characters with repeats", "more");
    return regex;
  }

 private:
  [[nodiscard]] char32_t next(std::size_t ahead = 0) const {
    std::size_t at = at_;
    for (; ahead > 0 && at < text_.size(); --ahead) at += unicode::decode_at(text_, at).size;
    return at < text_.size() ? unicode::decode_at(text_, at).code : kEnd;
  }
  char32_t take() {
    const char32_t code = next();
    if (at_ < text_.size()) at_ += unicode::decode_at(text_, at_).size;
    return code;
  }
  bool skip(std::string_view word) {
    if (text_.substr(at_, word.size()) != word) return false;
    at_ += word.size();
    return true;
  }
  [[nodiscard]] Error error(const char* code, std::string wanted, std::string found) const {
    return {
        .code = code, .where = "byte " + std::to_string(at_), .wanted = std::move(wanted), .found = std::move(found)};
  }
  [[nodiscard]] Error unsupported(std::string found) const {
    return error("regex.unsupported", "an expression without it", std::move(found));
  }

  // The alternatives of the whole, or of one group that is all of it.
  Result<> branches(Regex& regex) {
    do {
      RegexBranch branch;
      while (skip("^") || skip("\\A")) branch.from_start = true;
      MORACLE_ASSIGN(branch.body, sequence());
      while (skip("$") || skip("\\Z") || skip("\\z")) branch.to_end = true;
      if (next() != '|' && next() != kEnd && next() != ')') return unsupported("an anchor in the middle");
      regex.branches.push_back(std::move(branch));
    } while (skip("|"));
    return Ok{};
  }

  [[nodiscard]] bool at_anchor() const {
    const char32_t second = next(1);
    return next() == '^' || next() == '$' || (next() == '\\' && (second == 'A' || second == 'Z' || second == 'z'));
  }

  Result<RegexNode> sequence() {
    RegexNode node;
    while (next() != kEnd && next() != '|' && next() != ')' && !at_anchor()) {
      if (++nodes_ > kMostRepeats) return error("constrain.complex", "a shorter expression", "more than 20000 parts");
      MORACLE_ASSIGN(RegexNode part, atom());
      MORACLE_ASSIGN(part, quantified(std::move(part)));
      node.parts.push_back(std::move(part));
    }
    return node;
  }

  Result<RegexNode> atom() {
    const char32_t code = take();
    switch (code) {
      case '(':
        return group();
      case '[':
        return set();
      case '.':
        return node_of(any_but_line_end().least);
      case '\\': {
        MORACLE_ASSIGN(const CharacterClass set, escape(false));
        return node_of(set.least);
      }
      case '*':
      case '+':
      case '?':
        return error("regex.syntax", "something that is repeated", "nothing before a quantifier");
      default:
        return node_of({{code, code}});
    }
  }

  Result<RegexNode> group() {
    if (skip("?:")) {
    } else if (skip("?P<") || (next() == '?' && next(1) == '<' && next(2) != '=' && next(2) != '!' && skip("?<"))) {
      while (next() != '>' && next() != kEnd) take();
      take();
    } else if (next() == '?' || next() == '*') {
      return unsupported("a group of a special kind, such as look-around");
    }
    if (++depth_ > kMostDepth) return error("constrain.complex", "at most 64 groups inside each other", "more");
    RegexNode node{.kind = RegexNode::Kind::either};
    do {
      MORACLE_ASSIGN(RegexNode part, sequence());
      if (at_anchor()) return unsupported("an anchor within a group");
      node.parts.push_back(std::move(part));
    } while (skip("|"));
    --depth_;
    if (take() != ')') return error("regex.syntax", "a closing parenthesis", "the end");
    return node;
  }

  Result<RegexNode> quantified(RegexNode node) {
    std::int64_t least = 0;
    std::optional<std::int64_t> most;
    if (skip("*")) {
    } else if (skip("+")) {
      least = 1;
    } else if (skip("?")) {
      most = 1;
    } else {
      const std::size_t before = at_;
      MORACLE_ASSIGN(const bool counted, braces(least, most));
      if (!counted) {
        at_ = before;
        return node;
      }
    }
    if (next() == '+') return unsupported("a possessive quantifier");
    skip("?");
    if (next() == '*' || next() == '+' || next() == '?')
      return error("regex.syntax", "one quantifier", "a quantifier of a quantifier");
    RegexNode repeat{.kind = RegexNode::Kind::repeat, .least = least, .most = most};
    repeat.parts.push_back(std::move(node));
    return repeat;
  }

  std::optional<std::int64_t> count() {
    std::int64_t value = 0;
    const std::size_t begin = at_;
    while (next() >= '0' && next() <= '9') value = std::min<std::int64_t>(value * 10 + (take() - '0'), kMany);
    return at_ == begin ? std::nullopt : std::optional(value);
  }

  // "{n}", "{n,}" or "{n,m}"; other braces are characters.
  Result<bool> braces(std::int64_t& least, std::optional<std::int64_t>& most) {
    if (!skip("{")) return false;
    const auto low = count();
    if (!low) {
      if (next() == ',' && next(1) >= '0' && next(1) <= '9')
        return unsupported("{,n}, which dialects read differently");
      return false;
    }
    least = *low;
    most = low;
    if (skip(",")) most = count();
    if (!skip("}")) return false;
    if (most && *most < least) return error("regex.syntax", "a range in order", "one that ends before it begins");
    if (std::max(least, most.value_or(0)) > kMostRepeats)
      return error("constrain.complex", "at most " + std::to_string(kMostRepeats) + " repeats", "more");
    return true;
  }

  Result<char32_t> hex(int digits) {
    char32_t value = 0;
    for (int i = 0; i < digits; ++i) {
      const char32_t code = take();
      const bool decimal = code >= '0' && code <= '9';
      const char32_t letter = code | 0x20U;
      if (!decimal && (letter < 'a' || letter > 'f')) return error("regex.syntax", "a hexadecimal digit", "none");
      value = value * 16 + (decimal ? code - '0' : letter - 'a' + 10);
    }
    return value;
  }

  // A pair of surrogates is one character.
  Result<char32_t> unicode_escape() {
    char32_t code = 0;
    if (skip("{")) {
      int digits = 0;
      while (next(static_cast<std::size_t>(digits)) != '}' && digits < 7) ++digits;
      MORACLE_ASSIGN(code, hex(digits));
      if (!skip("}")) return error("regex.syntax", "a closing brace", "none");
    } else {
      MORACLE_ASSIGN(code, hex(4));
      if (code >= 0xD800 && code <= 0xDBFF && skip("\\u")) {
        MORACLE_ASSIGN(const char32_t low, hex(4));
        if (low < 0xDC00 || low > 0xDFFF) return error("regex.syntax", "a pair of surrogates", "half of one");
        code = 0x10000 + ((code - 0xD800) << 10U) + (low - 0xDC00);
      }
    }
    if (code > 0x10FFFF || (code >= 0xD800 && code <= 0xDFFF))
      return error("regex.syntax", "a character", "an escape of none");
    return code;
  }

  // Behind a backslash.
  Result<CharacterClass> escape(bool in_set) {
    const char32_t code = take();
    if (const auto set = class_of_letter(code)) return *set;
    constexpr std::string_view kLetters = "ntrfv";
    constexpr std::string_view kControls = "\n\t\r\f\v";
    const bool ascii = code < 0x80;
    if (const std::size_t at = kLetters.find(static_cast<char>(code)); ascii && at != std::string_view::npos)
      return single(static_cast<unsigned char>(kControls[at]));
    if (code == 'x' || code == 'u') {
      MORACLE_ASSIGN(const char32_t value, code == 'x' ? hex(2) : unicode_escape());
      return single(value);
    }
    if (code == '0' && !(next() >= '0' && next() <= '9')) return single(0);
    if (in_set && code == 'b') return single('\b');
    const bool letter = (code >= '0' && code <= '9') || (code >= 'A' && code <= 'Z') || (code >= 'a' && code <= 'z');
    if (letter) return unsupported(std::string("\\") + static_cast<char>(code));
    if (code == kEnd) return error("regex.syntax", "a character behind a backslash", "the end");
    return single(code);
  }

  Result<CharacterClass> set_member() {
    if (next() == '[' && (next(1) == ':' || next(1) == '.' || next(1) == '=')) return unsupported("a POSIX class");
    if (next() == kEnd) return error("regex.syntax", "a closing bracket", "the end");
    const char32_t code = take();
    if ((code == '&' || code == '-' || code == '~' || code == '|') && next() == code)
      return unsupported("an operator of classes");
    return code == '\\' ? escape(true) : Result<CharacterClass>(single(code));
  }

  Result<RegexNode> set() {
    const bool negated = skip("^");
    CharacterClass members;
    if (next() == ']') return unsupported("an empty class, which dialects read differently");
    while (next() != ']') {
      MORACLE_ASSIGN(CharacterClass member, set_member());
      if (next() == '-' && next(1) != ']' && next(1) != kEnd) {
        take();
        MORACLE_ASSIGN(const CharacterClass last, set_member());
        MORACLE_ASSIGN(member, range(member, last));
      }
      members.add(member);
      if (members.least.ranges().size() > kMostRepeats / 10)
        return error("constrain.complex", "a shorter class", "one of thousands of ranges");
    }
    take();
    return node_of(negated ? members.complement().least : members.least);
  }

  Result<CharacterClass> range(const CharacterClass& first, const CharacterClass& last) {
    const auto code = [](const CharacterClass& set) {
      const auto& ranges = set.most.ranges();
      return ranges.size() == 1 && ranges[0].first == ranges[0].last ? ranges[0].first : kEnd;
    };
    if (code(first) == kEnd || code(last) == kEnd || code(first) > code(last))
      return error("regex.syntax", "a range from one character to a later one", "another one");
    const CodeSet set = {{code(first), code(last)}};
    return CharacterClass{set, set};
  }

  std::string_view text_;
  std::size_t at_ = 0;
  int depth_ = 0;
  std::int64_t nodes_ = 0;
};

RegexNode joined(const Regex& regex, bool anchored) {
  RegexNode any{.kind = RegexNode::Kind::repeat};
  any.parts.push_back(node_of(CodeSet::all()));
  RegexNode node{.kind = RegexNode::Kind::either};
  for (const RegexBranch& branch : regex.branches) {
    RegexNode sequence;
    if (!anchored && !branch.from_start) sequence.parts.push_back(any);
    sequence.parts.push_back(branch.body);
    if (!anchored && !branch.to_end) sequence.parts.push_back(any);
    node.parts.push_back(sequence.parts.size() == 1 ? branch.body : std::move(sequence));
  }
  return node.parts.size() == 1 ? std::move(node.parts.front()) : node;
}

}  // namespace

Result<Regex> parse_regex(std::string_view utf8) {
  return Parser(utf8).parse();
}

RegexNode searched(const Regex& regex) {
  return joined(regex, false);
}

RegexNode whole(const Regex& regex) {
  return joined(regex, true);
}

RegexNode without(RegexNode node, const CodeSet& set) {
  node.set = node.set.without(set);
  for (RegexNode& part : node.parts) part = without(std::move(part), set);
  return node;
}

}  // namespace moracle
