// Python's notions of white space, case and line ends, over well-formed UTF-8.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include "base/unicode/utf8.h"

namespace moracle::jinja {

using unicode::append_utf8;
using unicode::count_points;
using unicode::find_bytes;
using unicode::from_points;
using unicode::next_point;
using unicode::previous_point;
using unicode::shortened;
using unicode::skip_points;
using unicode::to_points;

bool is_space(char32_t point);
bool is_word(char32_t point);  // \w of Python's re
bool is_printable(char32_t point);

std::string to_upper(std::string_view text);
std::string to_lower(std::string_view text);
std::string to_title(std::string_view text);        // str.title
std::string to_capitalized(std::string_view text);  // str.capitalize
std::string swap_case(std::string_view text);

// What str.isalpha and its kin ask; both stop at the first code point that answers.
enum class TextClass : std::uint8_t { alnum, alpha, ascii, decimal, digit, numeric, printable, space };
bool has_class(std::string_view text, TextClass wanted);
enum class TextCase : std::uint8_t { lower, title, upper };
bool has_case(std::string_view text, TextCase wanted);

enum class Side { left, right, both };
// White space where `characters` is null, else every code point of it.
std::string_view strip(std::string_view text, Side side, const std::string_view* characters = nullptr);
// The line at `at` (< size) as str.splitlines gives it; moves `at` behind it.
std::string_view next_line(std::string_view text, std::size_t* at, bool keep_ends);

}  // namespace moracle::jinja
