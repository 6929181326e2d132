// Code points of valid UTF-8, with Python's notions of white space, case and line ends.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include "text/unicode.h"

namespace moracle::jinja {

using unicode::find_bytes;

bool valid_utf8(std::string_view text);
std::size_t count_points(std::string_view text);
// Reads the code point at `at` and moves `at` behind it.
char32_t next_point(std::string_view text, std::size_t* at);
// Start of the code point that ends at `at` (> 0).
std::size_t previous_point(std::string_view text, std::size_t at);
void append_point(std::string* out, char32_t point);
// The place `count` code points behind `at`, or the end.
std::size_t skip_points(std::string_view text, std::size_t at, std::int64_t count);
std::u32string to_points(std::string_view text);
std::string from_points(std::u32string_view points);

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

// The text, or its first `most` bytes at most, cut between characters and marked with "...".
std::string shortened(std::string_view text, std::size_t most);

enum class Side { left, right, both };
// White space where `characters` is null, else every code point of it.
std::string_view strip(std::string_view text, Side side, const std::string_view* characters = nullptr);
// The line at `at` (< size) as str.splitlines gives it; moves `at` behind it.
std::string_view next_line(std::string_view text, std::size_t* at, bool keep_ends);

}  // namespace moracle::jinja
