// Code points of valid UTF-8, with Python's notions of white space, case and line ends.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace moracle::jinja {

bool valid_utf8(std::string_view text);
std::size_t count_points(std::string_view text);
// Reads the code point at `at` and moves `at` behind it.
char32_t next_point(std::string_view text, std::size_t* at);
// Start of the code point that ends at `at` (> 0).
std::size_t previous_point(std::string_view text, std::size_t at);
void append_point(std::string* out, char32_t point);
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

// str.isalpha, isdigit, ... by their Python names without "is"; false for an unknown name.
bool has_class(std::string_view text, std::string_view name);

enum class Side { left, right, both };
// White space where `characters` is null, else every code point of it.
std::string_view strip(std::string_view text, Side side, const std::string_view* characters = nullptr);
std::vector<std::string_view> split_lines(std::string_view text, bool keep_ends);

}  // namespace moracle::jinja
