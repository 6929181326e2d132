#include "text/constrain/schema/json_rules.h"

#include <fmt/format.h>

#include "text/constrain/schema/number_rules.h"

namespace moracle {

namespace {

// Characters of a string that need no escape, and escapes behind their backslash; a pair of surrogates is one. Half of
// a pair is none.
std::string plain_characters(const GrammarText& grammar) {
  return ebnf_class(grammar.escaped_characters().complement());
}

std::string escapes() {
  return fmt::format(R"({1} ([\U00000022\U0000005c\U0000002fbfnrt] | "u" ([0-9a-cA-CefEF] {0} | [dD] [0-7]) {0} {0} | )"
                     R"("u" [dD] [89abAB] {0} {0} {1} "u" [dD] [c-fC-F] {0} {0}))",
                     "[0-9a-fA-F]", ebnf_literal("\\"));
}

// The rest of a string of any length and the quote behind it. It names itself, so that tokens of many characters stay
// within one rule, whose masks are made once.
std::string rest_of_string(GrammarText& grammar) {
  constexpr std::string_view kName = "json_string_rest";
  if (!grammar.has(kName)) {
    grammar.define(std::string(kName), fmt::format("{0} | {1} {3} | {2} {3}", ebnf_literal("\""),
                                                   plain_characters(grammar), escapes(), kName));
  }
  return std::string(kName);
}

}  // namespace

std::string space_expression() {
  return R"((" " | "\n" [ \t]{0,32})?)";
}

std::string string_expression(GrammarText& grammar, std::int64_t least, std::optional<std::int64_t> most) {
  const std::string quote = ebnf_literal("\"");
  const std::string one = fmt::format("({} | {})", plain_characters(grammar), escapes());
  if (most == 0) return grammar.rule(quote + " " + quote);
  if (most) return grammar.rule(fmt::format("{0} {1}{{{2},{3}}} {0}", quote, one, least, *most));
  const std::string head = least == 0 ? "" : fmt::format("{}{{{}}}", one, least);
  return grammar.rule(fmt::format("{} {} {}", quote, head, rest_of_string(grammar)));
}

std::string any_object_expression(GrammarText& grammar) {
  return grammar.rule(
      fmt::format("\"{{\" {0} ({1} {0} \":\" {0} {2} {0} (\",\" {0} {1} {0} \":\" {0} {2} {0})*)? \"}}\"",
                  grammar.rule(space_expression()), string_expression(grammar), any_value_expression(grammar)));
}

std::string any_value_expression(GrammarText& grammar) {
  constexpr std::string_view kName = "json_value";
  if (grammar.has(kName)) return std::string(kName);
  const std::string space = grammar.rule(space_expression());
  grammar.define(std::string(kName), "");  // named before its parts name it
  const std::string list = grammar.rule(fmt::format("\"[\" {0} ({1} {0} (\",\" {0} {1} {0})*)? \"]\"", space, kName));
  grammar.define(std::string(kName),
                 fmt::format(R"("null" | "true" | "false" | {} | {} | {} | {})", grammar.rule(*number_expression({})),
                             string_expression(grammar), list, any_object_expression(grammar)));
  return std::string(kName);
}

std::string value_literal(const OrderedJson& value, const GrammarText& grammar) {
  return grammar.json_literal(value.dump(-1, ' ', false, OrderedJson::error_handler_t::replace));
}

}  // namespace moracle
