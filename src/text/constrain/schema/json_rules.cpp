#include "text/constrain/schema/json_rules.h"

#include <fmt/format.h>

#include <vector>

#include "text/constrain/schema/number_rules.h"

namespace moracle {

namespace {

// Characters of a string that need no escape, and escapes behind their backslash; a pair of surrogates is one. Half of
// a pair is none.
std::string plain_characters(const GrammarText& grammar) {
  return ebnf_class(grammar.escaped_characters().complement());
}

// None begins another, and all are spelled out, as xgrammar counts the repeats of a rule.
std::string escapes() {
  constexpr std::string_view kHex = "[0-9a-fA-F]";
  const std::string slash = ebnf_literal("\\");
  const std::string simple = fmt::format(R"({} [\U00000022\U0000005c\U0000002fbfnrt])", slash);
  const std::string four =
      fmt::format(R"({0} "u" [0-9a-cA-CefEF] {1} {1} {1} | {0} "u" [dD] [0-7] {1} {1})", slash, kHex);
  const std::string pair = fmt::format(R"({0} "u" [dD] [89abAB] {1} {1} {0} "u" [dD] [c-fC-F] {1} {1})", slash, kHex);
  return simple + " | " + four + " | " + pair;
}

std::string string_characters(const GrammarText& grammar) {
  return plain_characters(grammar) + (grammar.has_escapes() ? " | " + escapes() : "");
}

// The rest of a string of any length and the quote behind it. It names itself, so that tokens of many characters stay
// within one rule, whose masks are made once.
std::string rest_of_string(GrammarText& grammar) {
  std::string name = grammar.named("json_string_rest");
  if (!grammar.has(name)) {
    const std::string escaped = grammar.has_escapes() ? fmt::format(" | ({}) {}", escapes(), name) : "";
    grammar.define(name, fmt::format("{} | {} {}{}", grammar.quote(), plain_characters(grammar), name, escaped));
  }
  return name;
}

}  // namespace

std::string space_expression(GrammarText& grammar) {
  constexpr std::string_view kName = "json_space";  // by which the patched xgrammar counts its repeats
  if (!grammar.has(kName)) grammar.define(std::string(kName), R"((" " | "\n" [ \t]{0,32})?)");
  return std::string(kName);
}

std::string string_expression(GrammarText& grammar, std::int64_t least, std::optional<std::int64_t> most) {
  const std::string quote = grammar.quote();
  if (most == 0) return grammar.rule(quote + " " + quote);
  if (least == 0 && !most) return grammar.rule(quote + " " + rest_of_string(grammar));
  return grammar.rule(fmt::format("{0} {1} {0}", quote, grammar.repeated(string_characters(grammar), least, most)));
}

std::string any_object_expression(GrammarText& grammar) {
  return grammar.rule(
      fmt::format("\"{{\" {0} ({1} {0} \":\" {0} {2} {0} (\",\" {0} {1} {0} \":\" {0} {2} {0})*)? \"}}\"",
                  space_expression(grammar), string_expression(grammar), any_value_expression(grammar)));
}

std::string any_value_expression(GrammarText& grammar) {
  std::string name = grammar.named("json_value");
  if (grammar.has(name)) return name;
  const std::string space = space_expression(grammar);
  grammar.define(name, "");  // named before its parts name it
  const std::string list = grammar.rule(fmt::format("\"[\" {0} ({1} {0} (\",\" {0} {1} {0})*)? \"]\"", space, name));
  grammar.define(name, fmt::format("{} | {} | {} | {} | {} | {} | {}", grammar.word("null"), grammar.word("true"),
                                   grammar.word("false"), grammar.rule(*number_expression({})),
                                   string_expression(grammar), list, any_object_expression(grammar)));
  return name;
}

std::string value_literal(const OrderedJson& value, const GrammarText& grammar) {
  if (value.is_null() || value.is_boolean()) return grammar.word(value.dump());
  if (value.is_string()) return grammar.name_literal(value.get_ref<const std::string&>());
  if (value.is_structured()) {
    std::vector<std::string> parts;
    for (const auto& [name, part] : value.items()) {
      const std::string lead = value.is_object() ? grammar.name_literal(name) + " \":\" " : "";
      parts.push_back(lead + value_literal(part, grammar));
    }
    const char* const brackets = value.is_object() ? "{}" : "[]";
    return fmt::format("\"{}\" {} \"{}\"", brackets[0], fmt::join(parts, " \",\" "), brackets[1]);
  }
  return grammar.json_literal(value.dump(-1, ' ', false, OrderedJson::error_handler_t::replace));
}

}  // namespace moracle
