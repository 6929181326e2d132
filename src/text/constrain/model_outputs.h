// Holds the replies of one model to forms.
#pragma once

#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <string_view>
#include <utility>

#include "base/result.h"
#include "text/constrain/answer_constraint.h"
#include "text/constrain/output_format.h"

namespace moracle {

// What masks need of the vocabulary is made for the first reply that is held to anything. Safe to use from many
// threads.
class ModelOutputs {
 public:
  // `vocabulary`: the model's, where it is known.
  ModelOutputs(Tokenizer tokenizer, ReplyFormat format, std::optional<std::int32_t> vocabulary)
      : tokenizer_(std::move(tokenizer)), format_(std::move(format)), vocabulary_(vocabulary) {}

  // `prompt`: of a chat, whose reply may have reasoning before its answer; empty: the answer begins at once. Errors:
  // those of grammar_of(), GrammarCompiler and reply_vocabulary().
  Result<std::shared_ptr<const ConstraintSource>> hold(const OutputFormat& format,
                                                       std::optional<std::string_view> prompt);
  // The same for a grammar in EBNF.
  Result<std::shared_ptr<const ConstraintSource>> hold(const std::string& ebnf, std::optional<std::string_view> prompt);

 private:
  Result<> open();

  Tokenizer tokenizer_;
  ReplyFormat format_;
  std::optional<std::int32_t> vocabulary_;
  std::mutex mutex_;
  std::shared_ptr<GrammarCompiler> compiler_;  // null: none was needed yet
  std::shared_ptr<const ReplyVocabulary> replies_;
};

}  // namespace moracle
