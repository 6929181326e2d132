// Holds the replies of one model to forms.
#pragma once

#include <cstdint>
#include <list>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

#include "base/result.h"
#include "text/constrain/answer_constraint.h"
#include "text/constrain/calls/call_grammar.h"
#include "text/constrain/calls/call_watch.h"
#include "text/constrain/output_format.h"

namespace moracle {

// What masks need of the vocabulary is made for the first reply that is held to anything. Safe to use from many
// threads.
class ModelOutputs {
 public:
  // `calls`: the format of replies that may call tools. `vocabulary`: the model's, where it is known.
  ModelOutputs(Tokenizer tokenizer, ReplyFormat format, ReplyFormat calls, std::optional<std::int32_t> vocabulary)
      : tokenizer_(std::move(tokenizer)), vocabulary_(vocabulary) {
    answers_.format = std::move(format);
    calls_.format = std::move(calls);
  }

  // `prompt`: of a chat, whose reply may have reasoning before its answer; empty: the answer begins at once. Errors:
  // those of grammar_of(), GrammarCompiler and reply_vocabulary().
  Result<std::shared_ptr<const ConstraintSource>> hold(const OutputFormat& format,
                                                       std::optional<std::string_view> prompt);
  // The same for a grammar in EBNF.
  Result<std::shared_ptr<const ConstraintSource>> hold(const std::string& ebnf, std::optional<std::string_view> prompt);
  // Calls in replies to `prompt` are held to the rules; their arguments, where those of all tools are too complex, to
  // any object. The format of calls reads them. Errors: those of grammar_of_calls(), GrammarCompiler and
  // reply_vocabulary().
  Result<std::shared_ptr<const ConstraintSource>> hold_calls(const CallRules& rules, std::string_view prompt);

 private:
  // Of one format of replies.
  struct Masks {
    ReplyFormat format{};
    std::shared_ptr<GrammarCompiler> compiler{};  // null: none was needed yet
    std::shared_ptr<const ReplyVocabulary> replies{};
    std::shared_ptr<const CallOpenings> openings{};  // of a format that reads calls
  };

  Result<> open(Masks& masks);
  Result<std::shared_ptr<const Grammar>> compile_calls(const CallRules& rules);
  Result<std::shared_ptr<const Grammar>> grammar_for(const CallRules& rules);

  Tokenizer tokenizer_;
  std::optional<std::int32_t> vocabulary_;
  std::mutex mutex_;
  Masks answers_, calls_;
  // Of calls: the last rules that were asked for, as text, and their grammars while the compiler keeps them.
  std::list<std::pair<std::string, std::weak_ptr<const Grammar>>> known_;
};

}  // namespace moracle
