#include "text/constrain/output_format.h"

#include <utility>

#include "text/constrain/grammar/grammar_text.h"
#include "text/constrain/regex/regex_syntax.h"
#include "text/constrain/schema/json_rules.h"
#include "text/constrain/schema/schema_rules.h"

namespace moracle {

namespace {

Error wrong(const char* code, std::string wanted, std::string found) {
  return {.code = code, .wanted = std::move(wanted), .found = std::move(found)};
}

Result<std::string> regex_expression(const std::string& spelled, GrammarText& grammar) {
  if (spelled.size() > kOutputFormatBytes) return wrong("constrain.complex", "at most 256 KiB", "more");
  MORACLE_ASSIGN(const Regex regex, parse_regex(spelled));
  const RegexNode node = whole(regex);
  if (!matchable(node)) return wrong("regex.empty", "an expression that some text matches", "one that none does");
  std::string expression = grammar.expression(node, RegexText::plain, "");
  MORACLE_TRY(grammar.check_repeats());
  return expression;
}

Result<std::string> choices_expression(const std::vector<std::string>& choices) {
  if (choices.empty() || choices.size() > kMostOutputChoices) {
    return wrong("constrain.choice", "1 to " + std::to_string(kMostOutputChoices) + " choices",
                 std::to_string(choices.size()));
  }
  std::size_t bytes = 0;
  std::vector<std::string> bodies;
  for (const std::string& choice : choices) {
    if (choice.empty()) return wrong("constrain.choice", "choices that are not empty", "an empty one");
    bytes += choice.size();
    bodies.push_back(ebnf_literal(choice));
  }
  if (bytes > kOutputFormatBytes) return wrong("constrain.complex", "at most 256 KiB", "more");
  return ebnf_either(bodies);
}

}  // namespace

Result<std::string> add_output_rules(const OutputFormat& format, GrammarText& grammar) {
  switch (format.kind) {
    case OutputFormat::Kind::json_object:
      return space_expression(grammar) + " " + any_object_expression(grammar);
    case OutputFormat::Kind::json_schema: {
      MORACLE_ASSIGN(const std::string value, add_schema_rules(format.schema, grammar));
      return space_expression(grammar) + " " + value;
    }
    case OutputFormat::Kind::regex:
      return regex_expression(format.regex, grammar);
    case OutputFormat::Kind::choice:
      return choices_expression(format.choices);
  }
  return std::string("\"\"");
}

Result<std::string> grammar_of(const OutputFormat& format) {
  GrammarText grammar;
  MORACLE_ASSIGN(const std::string answer, add_output_rules(format, grammar));
  return grammar.text(answer);
}

}  // namespace moracle
