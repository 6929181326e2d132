// Names as arguments of templates.
#pragma once

#include <cstddef>
#include <string_view>

namespace moracle {

// A name as an argument of templates.
struct NameArgument {
  char text[16] = {};
  std::size_t size = 0;
  explicit(false) consteval NameArgument(std::string_view name) {
    for (const char c : name) text[size++] = c;
  }
  explicit(false) consteval NameArgument(const char* name) : NameArgument(std::string_view(name)) {}
  [[nodiscard]] constexpr std::string_view view() const { return {text, size}; }
};

}  // namespace moracle
