// Replies of /v1/completions.
#pragma once

#include <memory>

#include "serve/api/reply_translator.h"

namespace moracle::serve {

[[nodiscard]] std::unique_ptr<ReplyTranslator> make_completion_translator(TranslatorOptions options);

}  // namespace moracle::serve
