// Source text to tokens, with Jinja's white space rules under trim_blocks and lstrip_blocks.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"

namespace moracle::jinja {

enum class TokenKind : std::uint8_t {
  data,
  block_begin,
  block_end,
  variable_begin,
  variable_end,
  name,
  string,
  integer,
  real,
  op,
  end
};

struct Token {
  TokenKind kind = TokenKind::end;
  std::string text{};  // data and strings: their contents; operators: their spelling
  int line = 0;
  std::int64_t integer = 0;
  double real = 0;
};

// Errors: "template.syntax".
Result<std::vector<Token>> tokenize(std::string_view source, const std::string& file);

Error syntax_error(const std::string& file, int line, std::string found);

}  // namespace moracle::jinja
