// A client's text never becomes a control token: what a conversation spells of them stays text.
#pragma once

#include <string>
#include <string_view>
#include <unordered_set>
#include <vector>

#include "base/result.h"
#include "text/template/chat_templates.h"
#include "text/tokenizer/tokenizer.h"

namespace moracle {

// A conversation whose spellings of control tokens have a mark inside.
struct GuardedChat {
  ChatRequest chat;
  char32_t mark = 0;  // for EncodeOptions; 0: no text needed one

  // A rendered text as people read it: without marks.
  [[nodiscard]] std::string shown(std::string_view rendered) const;
};

// Control tokens are those of Tokenizer::control_tokens(). A mark is a noncharacter (U+FDD0 to U+FDEF) that no text of
// the conversation has. It stands behind the first character of what it breaks, where templates see no spelling, too:
// a whole spelling; the beginning of one at the end of a message's text, which the template may continue; and a text
// that is a spelling but for punctuation around it, which templates add to names. Assistants' texts may spell tokens
// that are not special, as templates look for </think>. Roles, and names that templates know, stay as they are.
class ContentGuard {
 public:
  explicit ContentGuard(const Tokenizer& tokenizer);

  // Errors: those of Tokenizer::encode, "text.noncharacter" (the texts have all that could be marks).
  [[nodiscard]] Result<GuardedChat> apply(const ChatRequest& chat) const;

 private:
  class Walk;

  Tokenizer tokenizer_;
  std::vector<std::string> spellings_;     // sorted
  std::unordered_set<std::string> cores_;  // spellings without the punctuation around them
  std::size_t longest_ = 0;                // bytes of a spelling
};

}  // namespace moracle
