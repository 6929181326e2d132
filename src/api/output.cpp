#include "api/output.h"

#include <optional>
#include <string>
#include <utility>

#include "text/constrain/output_request.h"
#include "text/reply/call_syntax.h"
#include "text/reply/tool_list.h"

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

}  // namespace

Result<std::shared_ptr<const ConstraintSource>> hold_output(const Session& session,
                                                            const moracle_generate_options& options,
                                                            std::string_view prompt,
                                                            const GenerationSettings& settings) {
  MORACLE_ASSIGN(auto field, read_one("response_format", options.response_format));
  MORACLE_ASSIGN(auto other, read_one("structured_outputs", options.structured_outputs));
  if (field && other)
    return wrong_argument("value", "options.structured_outputs", "nothing beside response_format", "both");
  if (other) field = std::move(other);
  if (!field) return std::shared_ptr<const ConstraintSource>();
  if (options.ignore_eos != 0)
    return wrong_argument("range", "options.ignore_eos", "0 where the answer is held to a form", "1");
  auto held = hold_reply(session, field->format, prompt, settings);
  if (held.ok()) return held;
  Error error = std::move(held).error();
  error.where = field->place + error.where;
  return of_options(std::move(error));
}

Result<std::optional<CallableTools>> read_tools(const Session& session, const moracle_generate_options& options) {
  if (options.max_calls < 0)
    return wrong_argument("range", "options.max_calls", "0 or more", std::to_string(options.max_calls));
  if (options.tools == nullptr) return std::optional<CallableTools>();
  MORACLE_ASSIGN(const OrderedJson json, read_json_option("tools", options.tools));
  auto tools = read_tool_list(json);
  if (!tools.ok()) return of_argument(std::move(tools).error());
  if (tools->is_null()) return std::optional<CallableTools>();
  if (options.response_format != nullptr || options.structured_outputs != nullptr)
    return wrong_argument("value", "options.tools", "none beside a form that the answer is held to", "both");
  if (session.text().learned().calls == nullptr) {
    return Error{.code = "tools.unsupported",
                 .where = "options.tools",
                 .wanted = "a model whose chat template writes calls of tools in a syntax that is known",
                 .found = "another",
                 .advice = "where you know the syntax, name it as the engine's tool_format: " + call_syntax_names()};
  }
  return std::optional(CallableTools{.schemas = ToolSchemas(Json(*tools)), .forms = tool_forms(json)});
}

}  // namespace moracle::api
