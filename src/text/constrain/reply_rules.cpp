#include "text/constrain/reply_rules.h"

#include <string>
#include <utility>

namespace moracle {

namespace {

using Held = std::shared_ptr<const ConstraintSource>;

Error no_end(std::string where) {
  return {.code = "constrain.end",
          .where = std::move(where),
          .wanted = "a model with an end token, which a held reply ends with",
          .found = "none that ends a reply"};
}

Result<Held> hold_output(const std::optional<OutputField>& output, ModelOutputs* outputs,
                         std::optional<std::string_view> prompt) {
  if (!output) return Held();
  if (outputs == nullptr) return no_end(output->place);
  auto held = outputs->hold(output->format, prompt);
  if (!held.ok()) return at_output(*output, std::move(held).error());
  return held;
}

// Calls of tools are held to their schemas; what a reply may be beside them is free, or of the output's form.
Result<Held> hold_calls(const ReplyRules& rules, ModelOutputs& outputs, std::string_view prompt) {
  const ToolUse& tools = rules.tools;
  CallRules calls{.tools = tools.forms, .must = tools.must_call, .single = tools.max_calls == 1};
  if (rules.output && !calls.must) calls.answer = rules.output->format;
  auto held = outputs.hold_calls(calls, prompt);
  if (held.ok()) return held;
  Error error = std::move(held).error();
  const bool of_tool = error.where.starts_with("tools[");
  if (calls.answer && !of_tool) return at_output(*rules.output, std::move(error));
  // Marks that are no tokens: such a model is asked in words alone.
  if (!calls.must && error.code == "constrain.reply") return Held();
  if (!of_tool) error.where = "tools";
  return error;
}

}  // namespace

Result<Held> hold_rules(const ReplyRules& rules, ModelOutputs* outputs, std::optional<std::string_view> prompt) {
  if (!rules.tools.may_call()) return hold_output(rules.output, outputs, prompt);
  if (outputs != nullptr && can_constrain()) return hold_calls(rules, *outputs, prompt.value_or(""));
  if (!rules.tools.must_call) return hold_output(rules.output, outputs, prompt);
  if (can_constrain()) return no_end("tool_choice");
  return Error{.code = "constrain.unavailable",
               .where = "tool_choice",
               .wanted = "a build that holds replies to calls",
               .found = "another"};
}

}  // namespace moracle
