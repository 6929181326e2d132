// Replies of /v1/chat/completions.
#pragma once

#include <memory>

#include "serve/api/reply_translator.h"

namespace moracle::serve {

[[nodiscard]] std::unique_ptr<ReplyTranslator> make_chat_translator(TranslatorOptions options);

}  // namespace moracle::serve
