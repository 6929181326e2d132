// Vocabularies in tiktoken form: one line a token, its bytes in base64 and its rank, which is its id.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

#include "base/json.h"
#include "base/result.h"
#include "text/tokenizer/bpe.h"

namespace moracle {

// The model of a tiktoken file. Two tokens merge where their bytes together are a token, the least rank first. `file`
// labels errors: "tokenizer.tiktoken" (with the line), "tokenizer.id".
Result<Bpe> read_tiktoken(std::string_view text, const std::string& file);

// The pre-tokenizer that goes with it: Moonshot's pattern (Kimi), or the one that transformers takes for any other.
[[nodiscard]] Json tiktoken_pre_tokenizer(bool kimi);

// Kimi's tokenizer encodes parts of at most 400,000 characters apart, and no more than 25,000 in a row that are all
// white space or all not. Appends the ends of the parts, the last one being text.size().
void kimi_parts(std::string_view text, std::vector<std::size_t>& ends);

}  // namespace moracle
