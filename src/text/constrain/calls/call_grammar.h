// The grammar of calls of tools, made of a row of the table of syntaxes and the tools' schemas.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "base/result.h"
#include "text/constrain/calls/tool_form.h"
#include "text/constrain/output_format.h"
#include "text/reply/reply_format.h"

namespace moracle {

// What a request says about calls.
struct CallRules {
  std::vector<ToolForm> tools{};         // those that may be called; not empty
  bool must = false;                     // the reply is a call, behind its reasoning
  bool single = false;                   // one call at most
  std::optional<OutputFormat> answer{};  // of a reply that calls nothing; empty: any text

  // Whether replies are held from their first token on.
  [[nodiscard]] bool holds_all() const { return must || answer.has_value(); }
};

// In EBNF, with the root "root": of replies that are held from their answer on, all of that, and else one call or
// section of calls from its first mark on. Of harmony: a message from its role on, up to its body, or to the end of a
// call. `format` reads calls. Errors: those of held_schema and grammar_of(); "constrain.complex".
Result<std::string> grammar_of_calls(const CallRules& rules, const ReplyFormat& format);

}  // namespace moracle
