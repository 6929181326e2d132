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

std::string GrammarText::characters(const CodeSet& set, RegexText as) {
  if (as == RegexText::plain) return ebnf_class(set);
  const CodeSet special = escaped_characters();
  const CodeSet plain = set.without(special);
  std::vector<std::string> bodies;
  if (!plain.empty()) bodies.push_back(ebnf_class(plain));
  const CodeSet spelled_out = special.without(set.complement());
  for (const CodeRange& range : spelled_out.ranges()) {
    for (char32_t code = range.first; code <= range.last; ++code) bodies.push_back(ebnf_literal(escaped(code)));
  }
  return ebnf_either(bodies);
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

std::string GrammarText::expression(const RegexNode& node, RegexText as) {
  std::vector<std::string> bodies;
  switch (node.kind) {
    case RegexNode::Kind::set:
      return characters(node.set, as);
    case RegexNode::Kind::sequence:
      for (const RegexNode& part : node.parts) bodies.push_back(expression(part, as));
      return bodies.empty() ? "\"\"" : fmt::format("({})", fmt::join(bodies, " "));
    case RegexNode::Kind::either:
      for (const RegexNode& part : node.parts) {
        if (matchable(part)) bodies.push_back(expression(part, as));
      }
      return ebnf_either(bodies);
    case RegexNode::Kind::repeat:
      if (node.most == 0 || !matchable(node.parts.front())) return "\"\"";
      return fmt::format("({}){}", expression(node.parts.front(), as), repeat_suffix(node.least, node.most));
  }
  return "\"\"";
}

std::string GrammarText::text(const std::string& root) const {
  std::string out = "root ::= " + root + "\n";
  for (const auto& [name, body] : rules_) out += name + " ::= " + body + "\n";
  return out;
}

}  // namespace moracle
