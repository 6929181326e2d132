#include "text/constrain/grammar/grammar_text.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "base/json/document.h"
#include "base/unicode/utf8.h"

namespace moracle {

namespace {

bool is_plain(char32_t code) {
  return (code >= '0' && code <= '9') || (code >= 'A' && code <= 'Z') || (code >= 'a' && code <= 'z');
}

std::string spelled(char32_t code) {
  if (is_plain(code)) return std::string(1, static_cast<char>(code));
  return fmt::format("\\U{:08x}", static_cast<unsigned>(code));
}

// How a JSON string spells a character that it must escape.
std::string escaped(char32_t code) {
  switch (code) {
    case '"':
      return "\\\"";
    case '\\':
      return "\\\\";
    case '\n':
      return "\\n";
    case '\r':
      return "\\r";
    case '\t':
      return "\\t";
    case '\b':
      return "\\b";
    case '\f':
      return "\\f";
    default:
      return fmt::format("\\u{:04x}", static_cast<unsigned>(code));
  }
}

using Follow = std::optional<std::string_view>;

// What stands behind each alternative as it is, where a rule would be no shorter.
constexpr std::size_t kShortFollow = 16;

std::string joined(const std::string& body, Follow follow) {
  return follow && !follow->empty() ? fmt::format("{} {}", body, *follow) : body;
}

// Whether it is one class, text or name, which spell a space as an escape, and no repeat.
bool is_single(const std::string& body) {
  return body.find(' ') == std::string::npos && std::string_view("*+?}").find(body.back()) == std::string_view::npos;
}

std::string in_parentheses(const std::string& body) {
  return is_single(body) ? body : "(" + body + ")";
}

bool can_be_empty(const RegexNode& node) {
  switch (node.kind) {
    case RegexNode::Kind::set:
      return false;
    case RegexNode::Kind::sequence:
      return std::all_of(node.parts.begin(), node.parts.end(), can_be_empty);
    case RegexNode::Kind::either:
      return std::any_of(node.parts.begin(), node.parts.end(), can_be_empty);
    case RegexNode::Kind::repeat:
      return node.least == 0 || can_be_empty(node.parts.front());
  }
  return true;
}

// The longest row of parts that may all be left out.
std::size_t optional_row(const RegexNode& node) {
  std::size_t row = 0, longest = 0;
  for (const RegexNode& part : node.parts) {
    const std::size_t one = optional_row(part);
    row = node.kind == RegexNode::Kind::sequence && can_be_empty(part) ? row + one : 0;
    longest = std::max({longest, row, one});
  }
  const bool optional = node.kind == RegexNode::Kind::repeat && node.least == 0;
  return longest + (optional ? 1 : 0);
}

// Tells a node from all others.
std::string key_of(const RegexNode& node) {
  std::string key = fmt::format("{},{},{}", static_cast<int>(node.kind), node.least, node.most.value_or(-1));
  for (const CodeRange& range : node.set.ranges())
    key += fmt::format(",{}-{}", static_cast<unsigned>(range.first), static_cast<unsigned>(range.last));
  for (const RegexNode& part : node.parts) key += "(" + key_of(part) + ")";
  return key;
}

// Whether the first character of what follows is one literal that no text of a repeat of `set` begins with.
bool tells_end(const CodeSet& set, Follow follow) {
  if (!follow || follow->empty()) return follow.has_value();
  if (!follow->starts_with('"') || follow->starts_with("\"\"")) return false;
  constexpr std::string_view kSpelled = "\"\\U";
  constexpr std::size_t kDigits = 8;
  const bool spelled_out = follow->starts_with(kSpelled);
  const std::string digits(follow->substr(kSpelled.size(), kDigits));
  const auto first = spelled_out ? static_cast<char32_t>(std::stoul(digits, nullptr, 16))
                                 : static_cast<char32_t>(static_cast<unsigned char>((*follow)[1]));
  return first == U'"' || (first != U'\\' && !set.contains(first));
}

// What a state of a repeat of this set takes to compile with 131,072 tokens, most of which begin with a space or are
// words of letters: bench/masks/bombs.py.
std::int64_t state_ms(const CodeSet& set) {
  if (set.contains(U'\u4e00')) return 45;
  if (set.contains(U' ') && set.contains(U'e')) return 20;
  return set.contains(U'e') ? 8 : 1;
}

std::string repeat_suffix(std::int64_t least, std::optional<std::int64_t> most) {
  if (!most && least <= 1) return least == 0 ? "*" : "+";
  if (most == 1 && least == 0) return "?";
  if (most == least) return fmt::format("{{{}}}", least);
  return most ? fmt::format("{{{},{}}}", least, *most) : fmt::format("{{{},}}", least);
}

}  // namespace

std::string ebnf_literal(std::string_view utf8) {
  std::string out = "\"";
  for (std::size_t at = 0; at < utf8.size();) out += spelled(unicode::next_point(utf8, &at));
  return out + "\"";
}

std::string ebnf_set(const CodeSet& set) {
  const auto& ranges = set.ranges();
  if (ranges.size() != 1 || ranges[0].first != ranges[0].last) return ebnf_class(set);
  return '"' + spelled(ranges[0].first) + '"';
}

std::string ebnf_class(const CodeSet& set) {
  std::string out = "[";
  for (const CodeRange& range : set.ranges()) {
    out += spelled(range.first);
    if (range.last != range.first) out += "-" + spelled(range.last);
  }
  return out + "]";
}

std::string ebnf_either(const std::vector<std::string>& bodies) {
  return bodies.size() == 1 ? bodies.front() : fmt::format("({})", fmt::join(bodies, " | "));
}

bool matchable(const RegexNode& node) {
  switch (node.kind) {
    case RegexNode::Kind::set:
      return !node.set.empty();
    case RegexNode::Kind::sequence:
      return std::all_of(node.parts.begin(), node.parts.end(), matchable);
    case RegexNode::Kind::either:
      return std::any_of(node.parts.begin(), node.parts.end(), matchable);
    case RegexNode::Kind::repeat:
      return node.least == 0 || matchable(node.parts.front());
  }
  return false;
}

std::string GrammarText::reserve() {
  return fmt::format("r{}", next_++);
}

void GrammarText::define(const std::string& name, std::string body) {
  bytes_ += name.size() + body.size();
  rules_.insert_or_assign(name, std::move(body));
}

bool GrammarText::has(std::string_view name) const {
  return rules_.contains(name);
}

std::string GrammarText::rule(const std::string& body) {
  const auto found = names_.find(body);
  if (found != names_.end()) return found->second;
  std::string name = reserve();
  define(name, body);
  return names_.emplace(body, std::move(name)).first->second;
}

std::string GrammarText::rule_for(std::string_view use, const std::string& body) {
  const auto [place, fresh] = uses_.try_emplace(fmt::format("{}{}", use, body), fmt::format("{}{}", use, uses_.size()));
  if (fresh) define(place->second, body);
  return place->second;
}

std::string GrammarText::repeated(const std::string& body, std::int64_t least, std::optional<std::int64_t> most) {
  return (is_single(body) ? body : rule_for("many_", body)) + repeat_suffix(least, most);
}

std::string GrammarText::characters(const CodeSet& set, RegexText as) {
  if (as == RegexText::plain) return ebnf_set(set);
  const CodeSet special = escaped_characters();
  const CodeSet plain = set.without(special);
  if (!has_escapes()) return ebnf_set(plain);
  std::vector<std::string> bodies;
  if (!plain.empty()) bodies.push_back(ebnf_set(plain));
  const CodeSet spelled_out = special.without(set.complement());
  for (const CodeRange& range : spelled_out.ranges()) {
    for (char32_t code = range.first; code <= range.last; ++code) bodies.push_back(ebnf_literal(escaped(code)));
  }
  return fmt::format("{}", fmt::join(bodies, " | "));
}

CodeSet GrammarText::escaped_characters() const {
  if (!has_escapes()) {
    const auto first = form_.barred.empty() ? U'\0' : static_cast<char32_t>(form_.barred.front());
    return first == 0 ? CodeSet{} : CodeSet{{first, first}};
  }
  CodeSet special = {{0, 0x1F}, {'"', '"'}, {'\\', '\\'}};
  if (form_.escapes_less) special.add({'<', '<'});
  return special;
}

std::string GrammarText::json_literal(std::string_view json) const {
  std::string text;
  for (const char c : json) text += form_.escapes_less && c == '<' ? escaped('<') : std::string(1, c);
  return ebnf_literal(text);
}

void GrammarText::use(ValueForm form) {
  form_ = std::move(form);
  suffix_.clear();
  if (form_.escapes_less) suffix_ += "_less";
  if (!has_escapes()) suffix_ += "_marked";
  if (form_.python) suffix_ += "_python";
}

bool GrammarText::can_write(std::string_view text) const {
  return form_.barred.empty() || text.find(form_.barred) == std::string_view::npos;
}

std::string GrammarText::quote() const {
  return has_escapes() ? ebnf_literal("\"") : form_.text_mark;
}

std::string GrammarText::name_literal(const std::string& name, bool bare) const {
  const bool word = !name.empty() && std::all_of(name.begin(), name.end(), [](char c) {
    return is_plain(static_cast<unsigned char>(c)) || c == '_' || c == '-' || c == '.';
  });
  if (word && (bare || form_.bare_names)) return ebnf_literal(name);
  if (!has_escapes()) return fmt::format("{0} {1} {0}", quote(), ebnf_literal(name));
  return json_literal(OrderedJson(name).dump(-1, ' ', false, OrderedJson::error_handler_t::replace));
}

std::string GrammarText::word(std::string_view json) const {
  if (!form_.python) return ebnf_literal(json);
  return ebnf_literal(json == "null" ? "None" : json == "true" ? "True" : "False");
}

Result<> GrammarText::check_repeats() const {
  constexpr std::int64_t kMostMs = 1'000;
  constexpr std::size_t kMostOptional = 20;  // the time grows with the cube
  if (longest_row_ > kMostOptional) {
    return Error{.code = "constrain.complex",
                 .wanted = "an expression with at most 20 parts in a row that may be left out",
                 .found = std::to_string(longest_row_)};
  }
  if (spelled_out_ms_ <= kMostMs) return Ok{};
  return Error{.code = "constrain.complex",
               .wanted = "fewer classes, and long repeats that what follows them does not begin as",
               .found = "what would take long to compile",
               .advice = "lower the bound, leave it out, or let another character follow"};
}

void GrammarText::weigh_sequence(const RegexNode& node) {
  longest_row_ = std::max(longest_row_, optional_row(node));
  const auto classes = std::count_if(node.parts.begin(), node.parts.end(), [](const RegexNode& part) {
    return part.kind == RegexNode::Kind::set && !part.set.empty() &&
           part.set.ranges().front().first != part.set.ranges().back().last;
  });
  const std::string use = "sequence " + key_of(node);
  if (classes > 1 && uses_.try_emplace(use, "").second) spelled_out_ms_ += classes / 2;
}

void GrammarText::weigh(const RegexNode& repeat, Follow follow) {
  constexpr std::int64_t kShort = 16, kUnrolled = 129;  // of xgrammar
  const std::int64_t most = std::max(repeat.least, repeat.most.value_or(0));
  const CodeSet& set = repeat.parts.front().set;
  if (most <= kShort || tells_end(set, follow)) return;
  const std::string use = fmt::format("spelled out {}", key_of(repeat));
  if (uses_.try_emplace(use, "").second) spelled_out_ms_ += std::min(most, kUnrolled) * state_ms(set);
}

std::string GrammarText::repeated(const RegexNode& node, RegexText as, Follow follow) {
  const RegexNode& part = node.parts.front();
  const bool may_share = follow && (part.kind != RegexNode::Kind::set || follow->size() <= kShortFollow);
  if (node.least == 0 && node.most == 1 && may_share) {
    const std::string rest = shared(*follow);
    return fmt::format("({} | {})", expression(part, as, rest), rest.empty() ? R"("")" : rest);
  }
  const bool set = part.kind == RegexNode::Kind::set;
  if (!set && node.least <= 1 && !node.most && follow && !can_be_empty(part)) return loop(node, as, *follow);
  if (set) weigh(node, follow);
  const std::string element = set ? characters(part.set, as) : expression(part, as, std::nullopt);
  const std::string body = repeated(element, node.least, node.most);
  return follow && follow->empty() ? rule_for("last_", body) : joined(body, follow);
}

std::string GrammarText::loop(const RegexNode& node, RegexText as, std::string_view follow) {
  const RegexNode& part = node.parts.front();
  const std::string use = fmt::format("loop {}{} {} {}", static_cast<int>(as), suffix_, key_of(part), follow);
  const auto [place, fresh] = uses_.try_emplace(use, "");
  if (fresh) {
    place->second = reserve();
    const std::string name = place->second;
    const std::string body = expression(part, as, name);
    define(name, fmt::format("{} | {}", follow.empty() ? R"("")" : follow, body));
    uses_.emplace("first " + use, rule(body));
  }
  return node.least == 0 ? uses_.at(use) : uses_.at("first " + use);
}

std::string GrammarText::either(const RegexNode& node, RegexText as, Follow follow) {
  const auto rest = follow ? std::optional(shared(*follow)) : std::nullopt;
  std::vector<std::string> bodies;
  for (const RegexNode& part : node.parts) {
    if (matchable(part)) bodies.push_back(expression(part, as, rest));
  }
  return ebnf_either(bodies);
}

std::string GrammarText::shared(std::string_view follow) {
  return follow.size() <= kShortFollow ? std::string(follow) : rule(std::string(follow));
}

std::string GrammarText::expression(const RegexNode& node, RegexText as, Follow follow) {
  switch (node.kind) {
    case RegexNode::Kind::set:
      return joined(in_parentheses(characters(node.set, as)), follow);
    case RegexNode::Kind::sequence: {
      weigh_sequence(node);
      std::string body;
      for (auto part = node.parts.rbegin(); part != node.parts.rend(); ++part) {
        body = expression(*part, as, body.empty() ? follow : Follow(body));
      }
      return body.empty() ? joined(R"("")", follow) : body;
    }
    case RegexNode::Kind::either:
      return either(node, as, follow);
    case RegexNode::Kind::repeat:
      if (node.most == 0 || !matchable(node.parts.front())) return joined(R"("")", follow);
      return repeated(node, as, follow);
  }
  return joined(R"("")", follow);
}

std::string GrammarText::text(const std::string& root) const {
  std::string out = "root ::= " + root + "\n";
  for (const auto& [name, body] : rules_) out += name + " ::= " + body + "\n";
  return out;
}

}  // namespace moracle
