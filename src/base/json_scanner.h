// A strict, allocation-light JSON reader: under the documents of json.h, and alone where files hold hundreds of
// thousands of names.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "base/generic/function_ref.h"
#include "base/result.h"

namespace moracle {

// Reads RFC 8259 JSON from front to back; the caller's sequence of calls is the grammar, so nesting cannot be deeper
// than the caller goes. Strings must be UTF-8 with paired surrogates. Errors name the byte, counted from `base`.
class JsonScanner {
 public:
  // `syntax_code` is the code of errors of syntax, `base` the position of `text` in `file`.
  JsonScanner(std::string_view text, std::uint64_t base, std::string file, std::string syntax_code)
      : text_(text), base_(base), file_(std::move(file)), syntax_code_(std::move(syntax_code)) {}

  // Skips white space, then takes `c` if it is next.
  bool accept(char c);
  Result<> expect(char c);
  Result<> expect_end();

  Result<std::string> string();
  // An integer in [0, 2^63). Errors: "number.range" for every other number.
  Result<std::int64_t> count();
  // The text of a number.
  Result<std::string_view> number();
  // Skips white space, then takes `word` if it is next.
  bool literal(std::string_view word);
  // Skips white space; the character that comes next, or 0 at the end.
  char peek();
  // Any value; its content is checked and dropped. Errors: "json.depth".
  Result<> skip_value(int max_depth);

  // One object: `member(key, byte)` must read the value of each key. Duplicate keys are the caller's to refuse.
  Result<> object(FunctionRef<Result<>(std::string key, std::uint64_t byte)> member);
  // One array: `element(index)` must read each element.
  Result<> array(FunctionRef<Result<>(std::size_t index)> element);

  // The position of the next token, from the start of the file.
  std::uint64_t position();
  const std::string& file() const { return file_; }
  // A syntax error at the current position.
  [[nodiscard]] Error error(std::string wanted) const;

 private:
  void skip_space();
  Result<> escape(std::string& out);
  Result<std::uint32_t> hex4();
  bool digits();

  std::string_view text_;
  std::size_t at_ = 0;
  std::uint64_t base_;
  std::string file_;
  std::string syntax_code_;
};

}  // namespace moracle
