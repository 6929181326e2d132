#include "text/constrain/model_outputs.h"

#include <algorithm>

namespace moracle {

Result<> ModelOutputs::open() {
  const std::scoped_lock lock(mutex_);
  if (compiler_) return Ok{};
  std::vector<std::string> texts = reply_texts(tokenizer_, format_);
  const auto known = static_cast<std::int32_t>(texts.size());
  const std::int32_t vocabulary = vocabulary_.value_or(known);
  texts.resize(static_cast<std::size_t>(std::min(known, vocabulary)));
  MORACLE_ASSIGN(std::shared_ptr<GrammarCompiler> compiler, GrammarCompiler::open(texts, vocabulary));
  MORACLE_ASSIGN(replies_, reply_vocabulary(tokenizer_, format_, *compiler));
  compiler_ = std::move(compiler);
  return Ok{};
}

Result<std::shared_ptr<const ConstraintSource>> ModelOutputs::hold(const OutputFormat& format,
                                                                   std::optional<std::string_view> prompt) {
  MORACLE_ASSIGN(const std::string ebnf, grammar_of(format));
  return hold(ebnf, prompt);
}

Result<std::shared_ptr<const ConstraintSource>> ModelOutputs::hold(const std::string& ebnf,
                                                                   std::optional<std::string_view> prompt) {
  MORACLE_TRY(open());
  MORACLE_ASSIGN(std::shared_ptr<const Grammar> grammar, compiler_->compile(ebnf));
  if (!prompt) return std::shared_ptr<const ConstraintSource>(std::move(grammar));
  return hold_answer(replies_, std::move(grammar), *prompt);
}

}  // namespace moracle
