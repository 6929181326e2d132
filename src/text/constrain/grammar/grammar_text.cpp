#include "text/constrain/grammar/grammar_text.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

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

// What may stand behind each alternative once more.
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
  std::vector<std::string> bodies;
  if (!plain.empty()) bodies.push_back(ebnf_set(plain));
  const CodeSet spelled_out = special.without(set.complement());
  for (const CodeRange& range : spelled_out.ranges()) {
    for (char32_t code = range.first; code <= range.last; ++code) bodies.push_back(ebnf_literal(escaped(code)));
  }
  return fmt::format("{}", fmt::join(bodies, " | "));
}

CodeSet GrammarText::escaped_characters() const {
  CodeSet special = {{0, 0x1F}, {'"', '"'}, {'\\', '\\'}};
  if (escapes_less_) special.add({'<', '<'});
  return special;
}

std::string GrammarText::json_literal(std::string_view json) const {
  std::string text;
  for (const char c : json) text += escapes_less_ && c == '<' ? escaped('<') : std::string(1, c);
  return ebnf_literal(text);
}

std::string GrammarText::repeated(const RegexNode& node, RegexText as, Follow follow) {
  const RegexNode& part = node.parts.front();
  if (node.least == 0 && node.most == 1 && follow && follow->size() <= kShortFollow) {
    return fmt::format("({} | {})", expression(part, as, follow), follow->empty() ? R"("")" : *follow);
  }
  const bool set = part.kind == RegexNode::Kind::set;
  const std::string element = set ? characters(part.set, as) : expression(part, as, std::nullopt);
  const std::string body = repeated(element, node.least, node.most);
  return follow && follow->empty() ? rule_for("last_", body) : joined(body, follow);
}

std::string GrammarText::either(const RegexNode& node, RegexText as, Follow follow) {
  const bool inside = follow && follow->size() <= kShortFollow;
  std::vector<std::string> bodies;
  for (const RegexNode& part : node.parts) {
    if (matchable(part)) bodies.push_back(expression(part, as, inside ? follow : std::nullopt));
  }
  return inside ? ebnf_either(bodies) : joined(ebnf_either(bodies), follow);
}

std::string GrammarText::expression(const RegexNode& node, RegexText as, Follow follow) {
  switch (node.kind) {
    case RegexNode::Kind::set:
      return joined(in_parentheses(characters(node.set, as)), follow);
    case RegexNode::Kind::sequence: {
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
