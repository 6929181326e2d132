#include "text/constrain/schema/json_rules.h"

#include <fmt/format.h>

#include "text/constrain/schema/number_rules.h"

namespace moracle {

namespace {

// Any character of a string, escaped or not; a pair of surrogates is one. Half of a pair is none.
std::string character_rule(GrammarText& grammar) {
  const CodeSet special = {{0, 0x1F}, {'"', '"'}, {'\\', '\\'}};
  const std::string hex = "[0-9a-fA-F]";
  const std::string escape =
      fmt::format(R"(([\U00000022\U0000005c\U0000002fbfnrt] | "u" ([0-9a-cA-CefEF] {0} | [dD] [0-7]) {0} {0} | )"
                  R"("u" [dD] [89abAB] {0} {0} {1} "u" [dD] [c-fC-F] {0} {0}))",
                  hex, ebnf_literal("\\"));
  return grammar.rule(fmt::format("{} | {} {}", ebnf_class(special.complement()), ebnf_literal("\\"), escape));
}

}  // namespace

std::string space_expression() {
  return R"((" " | "\n" [ \t]{0,32})?)";
}

std::string string_expression(GrammarText& grammar, std::int64_t least, std::optional<std::int64_t> most) {
  const std::string repeats = most ? fmt::format("{{{},{}}}", least, *most) : fmt::format("{{{},}}", least);
  const std::string characters = most == 0 ? "\"\"" : character_rule(grammar) + (least == 0 && !most ? "*" : repeats);
  return grammar.rule(fmt::format("{} {} {}", ebnf_literal("\""), characters, ebnf_literal("\"")));
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

std::string value_literal(const OrderedJson& value) {
  return ebnf_literal(value.dump(-1, ' ', false, OrderedJson::error_handler_t::replace));
}

}  // namespace moracle
