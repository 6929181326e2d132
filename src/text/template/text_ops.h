// Text operations that both methods and filters have.
#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

#include "text/template/interpreter.h"

namespace moracle::jinja {

// str.split and str.rsplit; `most` < 0: no limit. `separator` is not empty.
std::vector<std::string_view> split_at(std::string_view text, std::string_view separator, std::int64_t most,
                                       bool from_right);
std::vector<std::string_view> split_space(std::string_view text, std::int64_t most, bool from_right);
// str.replace; `most` < 0: all.
Maybe replace_text(Interpreter& in, std::string_view text, std::string_view from, std::string_view to,
                   std::int64_t most);
// A list of strings.
Maybe make_list(Interpreter& in, const std::vector<std::string_view>& parts);

}  // namespace moracle::jinja
