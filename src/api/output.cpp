#include "api/output.h"

#include <optional>
#include <string>
#include <utility>

#include "text/constrain/reply_rules.h"

namespace moracle::api {

namespace {

Error of_options(Error error) {
  error.where = "options." + error.where;
  return error;
}

// Of a reader of requests, whose codes are "request.*".
Error of_argument(Error error) {
  error.code = "argument" + error.code.substr(error.code.find('.'));
  return of_options(std::move(error));
}

Result<OrderedJson> read_json_option(const std::string& name, const char* given) {
  MORACLE_ASSIGN(const std::string text, read_text(given, "options." + name));
  auto json = parse_ordered_json(text, "");
  if (!json.ok()) return wrong_argument("json", "options." + name, "JSON", json.error().message());
  return json;
}

// Of the option `name`; null: it is not given.
Result<std::optional<OutputField>> read_one(const std::string& name, const char* given) {
  if (given == nullptr) return std::optional<OutputField>();
  MORACLE_ASSIGN(const OrderedJson json, read_json_option(name, given));
  auto field = read_output_request(name, json);
  if (!field.ok()) return of_argument(std::move(field).error());
  return field;
}

// The one of both that holds the answer.
Result<std::optional<OutputField>> read_output(const moracle_generate_options& options) {
  MORACLE_ASSIGN(auto field, read_one("response_format", options.response_format));
  MORACLE_ASSIGN(auto other, read_one("structured_outputs", options.structured_outputs));
  if (field && other)
    return wrong_argument("value", "options.structured_outputs", "nothing beside response_format", "both");
  return other ? std::move(other) : std::move(field);
}

Result<ToolUse> read_tools(const Session& session, const moracle_generate_options& options) {
  if (options.max_calls < 0)
    return wrong_argument("range", "options.max_calls", "0 or more", std::to_string(options.max_calls));
  OrderedJson tools, choice;
  if (options.tools != nullptr) {
    MORACLE_ASSIGN(tools, read_json_option("tools", options.tools));
  }
  if (options.tool_choice != nullptr) {
    MORACLE_ASSIGN(choice, read_json_option("tool_choice", options.tool_choice));
  }
  auto use = read_tool_use(tools, choice);
  if (!use.ok()) return of_argument(std::move(use).error());
  use->max_calls = options.max_calls;
  if (use->may_call()) MORACLE_TRY(session.text().check_calls("options.tools", "the engine's tool_format"));
  return use;
}

}  // namespace

Result<ReplyRules> read_rules(const Session& session, const moracle_generate_options& options) {
  ReplyRules rules;
  MORACLE_ASSIGN(rules.output, read_output(options));
  MORACLE_ASSIGN(rules.tools, read_tools(session, options));
  if ((rules.output || rules.tools.must_call) && options.ignore_eos != 0)
    return wrong_argument("range", "options.ignore_eos", "0 where the reply is held to a form or a call", "1");
  return rules;
}

Result<std::shared_ptr<const ConstraintSource>> hold_options(const Session& session, const ReplyRules& rules,
                                                             std::string_view prompt,
                                                             const GenerationSettings& settings) {
  auto held = hold_reply(session, rules, prompt, settings);
  if (!held.ok()) return of_options(std::move(held).error());
  return held;
}

}  // namespace moracle::api
