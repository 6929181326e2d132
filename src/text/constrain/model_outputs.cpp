#include "text/constrain/model_outputs.h"

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "text/constrain/calls/channel_calls.h"
#include "text/reply/harmony.h"

namespace moracle {

namespace {

constexpr std::string_view kNoText = "\xFF";
constexpr std::size_t kMostKnown = 32;

// Tells rules from others.
std::string text_of(const CallRules& rules) {
  OrderedJson all = OrderedJson::array({rules.must, rules.single});
  for (const ToolForm& tool : rules.tools) all.push_back({tool.name, tool.parameters, tool.strict});
  if (const auto& answer = rules.answer)
    all.push_back({static_cast<int>(answer->kind), answer->schema, answer->regex, answer->choices});
  return all.dump(-1, ' ', false, OrderedJson::error_handler_t::replace);
}

}  // namespace

Result<> ModelOutputs::open(Masks& masks) {
  const std::scoped_lock lock(mutex_);
  if (masks.compiler) return Ok{};
  std::vector<std::string> texts = reply_texts(tokenizer_, masks.format);
  // Marks of calls have bytes that no text has, so that a grammar names them as tokens alone.
  if (const CallSyntax* const calls = masks.format.calls()) {
    std::vector<std::string_view> marks = calls->marks();
    if (calls->style == ArgumentStyle::channels) marks.assign(harmony::kMarks.begin(), harmony::kMarks.end());
    for (const std::string_view mark : marks) {
      if (const auto id = masks.format.token_of(mark)) texts[static_cast<std::size_t>(*id)] = kNoText;
    }
  }
  const auto known = static_cast<std::int32_t>(texts.size());
  const std::int32_t vocabulary = vocabulary_.value_or(known);
  texts.resize(static_cast<std::size_t>(std::min(known, vocabulary)));
  MORACLE_ASSIGN(std::shared_ptr<GrammarCompiler> compiler, GrammarCompiler::open(texts, vocabulary));
  MORACLE_ASSIGN(masks.replies, reply_vocabulary(tokenizer_, masks.format, *compiler));
  if (masks.format.calls() != nullptr && !masks.replies->channels)
    masks.openings = std::make_shared<const CallOpenings>(call_openings(*masks.replies));
  masks.compiler = std::move(compiler);
  return Ok{};
}

Result<std::shared_ptr<const ConstraintSource>> ModelOutputs::hold(const OutputFormat& format,
                                                                   std::optional<std::string_view> prompt) {
  MORACLE_ASSIGN(const std::string ebnf, grammar_of(format));
  return hold(ebnf, prompt);
}

Result<std::shared_ptr<const ConstraintSource>> ModelOutputs::hold(const std::string& ebnf,
                                                                   std::optional<std::string_view> prompt) {
  MORACLE_TRY(open(answers_));
  MORACLE_ASSIGN(std::shared_ptr<const Grammar> grammar, answers_.compiler->compile(ebnf));
  if (!prompt) return std::shared_ptr<const ConstraintSource>(std::move(grammar));
  return hold_answer(answers_.replies, std::move(grammar), *prompt);
}

Result<std::shared_ptr<const Grammar>> ModelOutputs::compile_calls(const CallRules& rules) {
  MORACLE_ASSIGN(const std::string ebnf, grammar_of_calls(rules, calls_.format));
  return calls_.compiler->compile(ebnf);
}

// Any arguments where those of all tools are too complex.
Result<std::shared_ptr<const Grammar>> ModelOutputs::grammar_for(const CallRules& rules) {
  const std::string key = text_of(rules);
  {
    const std::scoped_lock lock(mutex_);
    for (auto known = known_.begin(); known != known_.end(); ++known) {
      if (known->first != key) continue;
      known_.splice(known_.begin(), known_, known);
      if (auto grammar = known->second.lock()) return grammar;
    }
  }
  auto compiled = compile_calls(rules);
  const bool strict =
      std::any_of(rules.tools.begin(), rules.tools.end(), [](const ToolForm& tool) { return tool.strict; });
  if (!compiled.ok() && compiled.error().code == "constrain.complex" && !strict) {
    CallRules loose = rules;
    for (ToolForm& tool : loose.tools) tool.parameters = {{"type", "object"}};
    compiled = compile_calls(loose);
  }
  MORACLE_ASSIGN(std::shared_ptr<const Grammar> grammar, std::move(compiled));
  if (key.size() > kOutputFormatBytes) return grammar;
  const std::scoped_lock lock(mutex_);
  std::erase_if(known_, [&](const auto& known) { return known.first == key; });
  known_.emplace_front(key, grammar);
  if (known_.size() > kMostKnown) known_.pop_back();
  return grammar;
}

Result<std::shared_ptr<const ConstraintSource>> ModelOutputs::hold_calls(const CallRules& rules,
                                                                         std::string_view prompt) {
  MORACLE_TRY(open(calls_));
  MORACLE_ASSIGN(std::shared_ptr<const Grammar> calls, grammar_for(rules));
  if (calls_.replies->channels) {
    ChannelForm form{.message = std::move(calls), .answer = {}, .may_end = !rules.holds_all()};
    if (rules.answer) {
      MORACLE_ASSIGN(const std::string answer, grammar_of(*rules.answer));
      MORACLE_ASSIGN(form.answer, calls_.compiler->compile(answer));
    }
    return hold_channels(calls_.replies, std::move(form), prompt);
  }
  if (rules.holds_all()) return hold_answer(calls_.replies, std::move(calls), prompt);
  return watch_calls(calls_.replies, calls_.openings, std::move(calls), prompt, rules.single);
}

}  // namespace moracle
