// Text operations that both methods and filters have.
#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

#include "text/template/interpreter.h"

namespace moracle::jinja {

// A list of parts of a text under construction, markup where the text is; add() is false where there is no room for one
// more.
class TextList {
 public:
  TextList(Interpreter& in, const Text& whole) : in_(in), markup_(whole.markup) {}
  bool add(std::string_view text);
  Maybe finish(bool reversed = false);

 private:
  Interpreter& in_;
  bool markup_;
  std::vector<Value> items_;
};

// str.split and str.rsplit; `most` < 0: no limit. `separator` is not empty.
Maybe split_at(Interpreter& in, const Text& whole, std::string_view separator, std::int64_t most, bool from_right);
Maybe split_space(Interpreter& in, const Text& whole, std::int64_t most, bool from_right);
// str.replace; `most` < 0: all.
Maybe replace_text(Interpreter& in, std::string_view text, std::string_view from, std::string_view to,
                   std::int64_t most);
// str.count of a text that is not empty.
Maybe count_text(Interpreter& in, std::string_view text, std::string_view wanted);
// str.find and str.rfind; npos where it is not there.
std::optional<std::size_t> find_text(Interpreter& in, std::string_view text, std::string_view wanted, bool from_right);

}  // namespace moracle::jinja
