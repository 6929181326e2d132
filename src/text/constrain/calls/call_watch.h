// Leaves a reply free until a call begins, and holds that call.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "text/constrain/answer_constraint.h"
#include "text/constrain/constraint.h"
#include "text/constrain/grammar/grammar_compiler.h"

namespace moracle {

// The marks that open calls, and how a vocabulary may spell those that are text.
struct CallOpenings {
  struct TextMark {
    std::string text;
    // By how much of the mark has come: tokens that complete it and go on.
    std::vector<std::vector<std::int32_t>> beyond;
  };

  std::vector<std::int32_t> tokens;
  std::vector<TextMark> texts;
  std::vector<std::int32_t> around;  // tokens with a whole mark and text behind it
};
// Of a format that reads calls, which is none of channels.
[[nodiscard]] CallOpenings call_openings(const ReplyVocabulary& vocabulary);

// Of replies to `prompt`: any text, until a mark opens a call, which `call` holds from that mark on. With `single`, the
// reply ends behind it.
[[nodiscard]] std::shared_ptr<const ConstraintSource> watch_calls(std::shared_ptr<const ReplyVocabulary> vocabulary,
                                                                  std::shared_ptr<const CallOpenings> openings,
                                                                  std::shared_ptr<const Grammar> call,
                                                                  std::string_view prompt, bool single);

}  // namespace moracle
