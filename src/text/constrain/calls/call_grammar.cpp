#include "text/constrain/calls/call_grammar.h"

#include <fmt/format.h>

#include <utility>

#include "base/json.h"
#include "text/constrain/calls/element_rules.h"
#include "text/constrain/grammar/grammar_text.h"
#include "text/constrain/schema/json_rules.h"
#include "text/constrain/schema/schema_rules.h"
#include "text/reply/harmony.h"
#include "text/reply/tool_schemas.h"

namespace moracle {

namespace {

ToolSchemas types_of(const CallRules& rules) {
  Json tools = Json::array();
  for (const ToolForm& tool : rules.tools)
    tools.push_back({{"function", {{"name", tool.name}, {"parameters", Json(tool.parameters)}}}});
  return ToolSchemas(tools);
}

// How the syntax writes values.
ValueForm form_of(const ReplyFormat& format) {
  const CallSyntax& row = *format.calls();
  const bool by_text = !format.is_token(row.value_close);
  ValueForm form;
  if (row.style == ArgumentStyle::elements) form.escapes_less = by_text;
  if (row.style != ArgumentStyle::keywords) return form;
  form.python = row.value_open.empty();
  if (form.python) return form;
  form.text_mark = mark_expression(format, row.value_open);
  form.bare_names = true;
  if (by_text) form.barred = row.value_open;
  return form;
}

class CallGrammarWriter {
 public:
  CallGrammarWriter(const CallRules& rules, const ReplyFormat& format)
      : rules_(rules),
        format_(format),
        row_(*format.calls()),
        types_(types_of(rules)),
        gap_(grammar_.rule(gap_expression())),
        space_(space_expression(grammar_)) {}

  Result<std::string> write() {
    grammar_.use(form_of(format_));
    if (row_.style == ArgumentStyle::channels) {
      MORACLE_ASSIGN(const std::string message, channel_message());
      return grammar_.text(message);
    }
    MORACLE_ASSIGN(const std::string body, call_body());
    if (!rules_.holds_all()) return grammar_.text(opened(body));
    std::vector<std::string> replies = {series(body)};
    if (!rules_.must) {
      grammar_.use({.escapes_less = form_of(format_).escapes_less});
      MORACLE_ASSIGN(std::string answer, add_output_rules(*rules_.answer, grammar_));
      replies.push_back(std::move(answer));
    }
    return grammar_.text(ebnf_either(replies));
  }

 private:
  [[nodiscard]] std::string mark(std::string_view text) const { return mark_expression(format_, text); }

  Result<std::string> add_arguments(const ToolForm& tool, const OrderedJson& schema, GrammarText& grammar) const {
    if (row_.style == ArgumentStyle::elements) return ElementRules(format_, types_, grammar).write(tool.name, schema);
    if (row_.style == ArgumentStyle::keywords) {
      const bool python = row_.value_open.empty();
      return add_keyword_rules(schema, python ? '=' : ':', python ? ')' : '}', grammar);
    }
    return add_schema_rules(schema, grammar);
  }

  Result<std::string> arguments_of(const ToolForm& tool) {
    const HoldSchema hold = [&](const OrderedJson& schema) -> Result<> {
      GrammarText trial;
      trial.use(form_of(format_));
      auto added = add_arguments(tool, schema, trial);
      if (!added.ok()) return std::move(added).error();
      return Ok{};
    };
    MORACLE_ASSIGN(const OrderedJson schema, held_schema(tool, hold));
    return add_arguments(tool, schema, grammar_);
  }

  // An id that Mistral's models give a call.
  [[nodiscard]] static std::string nine_letters() { return "[0-9A-Za-z]{9}"; }

  // The name, its arguments, and what stands around them up to the call's last mark.
  [[nodiscard]] std::string named_call(const ToolForm& tool, const std::string& arguments) const {
    std::string id;
    if (!row_.id_open.empty() && row_.ids == CallIds::nine) {
      id = fmt::format("({} {})?", mark(row_.id_open), nine_letters());
    } else if (!row_.id_open.empty()) {
      id = fmt::format("{} [1-9] [0-9]{{0,2}}", mark(row_.id_open));
    }
    const bool numbered = row_.ids == CallIds::given;
    const std::string name =
        numbered ? fmt::format("\"functions.\" {} \":\" (\"0\" | [1-9] [0-9]{{0,2}})", ebnf_literal(tool.name))
                 : ebnf_literal(tool.name);
    if (row_.style != ArgumentStyle::elements)
      return fmt::format("{} {} {} {} {}", name, id, mark(row_.name_end), arguments, ebnf_literal(row_.tail));
    return fmt::format("{} {} {} {} {}", name, mark(row_.name_end), gap_, arguments, mark(row_.body_close));
  }

  // {"name": ..., "arguments": ...}
  [[nodiscard]] std::string object_call(const ToolForm& tool, const std::string& arguments) const {
    const std::string id =
        row_.ids == CallIds::nine
            ? fmt::format(R"(({0} "," {0} "\"id\"" {0} ":" {0} "\"" {1} "\"")?)", space_, nine_letters())
            : "";
    const auto member = [&](std::string_view name, const std::string& value) {
      return fmt::format("\"\\\"\" {1} \"\\\"\" {0} \":\" {0} {2}", space_, ebnf_literal(name), value);
    };
    const CallMembers& names = row_.members;
    const std::string comma = fmt::format("{0} \",\" {0}", space_);
    const std::string number =
        names.number.empty() ? "" : member(names.number, R"("\"" ("0" | [1-9] [0-9]{0,2}) "\"")") + " " + comma;
    return fmt::format(R"("{{" {0} {1} {2} {3} {4} {5} {0} "}}")", space_, number,
                       member(names.name, ebnf_literal('"' + tool.name + '"')), comma,
                       member(names.arguments, arguments), id);
  }

  // Of any tool: what stands between name_open and the call's last mark, or, in an object, the object.
  Result<std::string> call_body() {
    std::vector<std::string> bodies;
    for (const ToolForm& tool : rules_.tools) {
      MORACLE_ASSIGN(const std::string arguments, arguments_of(tool));
      bodies.push_back(row_.style == ArgumentStyle::calls ? object_call(tool, arguments) : named_call(tool, arguments));
    }
    return grammar_.rule(ebnf_either(bodies));
  }

  [[nodiscard]] std::string several(const std::string& one, const std::string& between) const {
    return rules_.single ? one : fmt::format("{0} ({1} {0})*", one, between);
  }

  [[nodiscard]] std::string between_marks(const std::string& body) const {
    const bool series = row_.objects != CallObjects::one;
    if (row_.style != ArgumentStyle::calls && !series) {
      if (row_.name_open.empty()) return body;
      const std::string lead = row_.lead.empty() ? gap_ : ebnf_literal(row_.lead);
      return fmt::format("{} {} {}", lead, mark(row_.name_open), body);
    }
    if (row_.objects == CallObjects::one) return gap_ + " " + body;
    if (row_.objects == CallObjects::lines) return gap_ + " " + several(body, ebnf_literal("\n"));
    return fmt::format("{0} \"[\" {1} {2} {1} \"]\"", gap_, space_, several(body, space_ + " \",\" " + space_));
  }

  // One call with its marks; a syntax without a last mark tells the end by the JSON.
  std::string call(const std::string& body) {
    const bool closes = !row_.close.empty();
    return grammar_.rule(
        fmt::format("{} {} {} {}", mark(row_.open), between_marks(body), closes ? gap_ : "", mark(row_.close)));
  }

  std::string section(const std::string& body) {
    return grammar_.rule(fmt::format("{0} {1} {2} {1} {3}", mark(row_.section_open), gap_, several(call(body), gap_),
                                     mark(row_.section_close)));
  }

  // All calls of a reply.
  std::string series(const std::string& body) {
    if (!row_.section_open.empty()) return section(body);
    return row_.objects != CallObjects::one ? call(body) : several(call(body), gap_);
  }

  // From any mark that opens calls.
  std::string opened(const std::string& body) {
    std::vector<std::string> bodies = {call(body)};
    if (!row_.section_open.empty()) bodies.push_back(section(body));
    if (row_.opens_by_name) bodies.push_back(mark(row_.name_open) + " " + body);
    return ebnf_either(bodies);
  }

  // --- harmony ---

  // " to=functions.NAME" stands behind the role or behind the channel.
  Result<std::string> channel_message() {
    const std::string message = mark(harmony::kMessage);
    const std::string form = fmt::format("(\" \"? {} \"json\" | \" json\")?", mark(harmony::kConstrain));
    std::vector<std::string> heads;
    for (const ToolForm& tool : rules_.tools) {
      MORACLE_ASSIGN(const std::string arguments, arguments_of(tool));
      const std::string to = "\" to=functions.\" " + ebnf_literal(tool.name);
      const std::string body =
          grammar_.rule(fmt::format("{} {} {} {}", form, message, arguments, mark(harmony::kCall)));
      heads.push_back(fmt::format("({0} {1} (\"commentary\" | \"analysis\") | {1} \"commentary\" {0}) {2}", to,
                                  mark(harmony::kChannel), body));
    }
    const std::string others = rules_.must     ? R"("analysis")"
                               : rules_.answer ? R"(("analysis" | "final"))"
                                               : R"(("analysis" | "final" | "commentary"))";
    heads.push_back(fmt::format("{} {} {}", mark(harmony::kChannel), others, message));
    return fmt::format("\"assistant\" {}", ebnf_either(heads));
  }

  const CallRules& rules_;
  const ReplyFormat& format_;
  const CallSyntax& row_;
  ToolSchemas types_;
  GrammarText grammar_;
  std::string gap_, space_;
};

}  // namespace

Result<std::string> grammar_of_calls(const CallRules& rules, const ReplyFormat& format) {
  return CallGrammarWriter(rules, format).write();
}

}  // namespace moracle
