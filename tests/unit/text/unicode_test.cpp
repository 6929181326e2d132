#include "text/unicode.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <string>
#include <string_view>

namespace moracle {
namespace {

// Texts longer than a window, needles of one byte to more than a window, at every kind of place.
TEST(Unicode, FindBytesFindsWhatFindDoes) {
  std::string text;
  std::uint32_t state = 1;
  while (text.size() < 30'000) {
    state = state * 1664525U + 1013904223U;
    text += (state >> 28U) == 0 ? 'b' : 'a';
  }
  for (const std::size_t size : {1U, 2U, 17U, 4095U, 4096U, 9000U}) {
    for (const std::size_t place : {0U, 1U, 4000U, 4096U, 8191U, 12'000U, 20'999U}) {
      const std::string needle = text.substr(place, size);
      for (const std::size_t from : {0U, 1U, 4096U, 20'000U}) {
        EXPECT_EQ(unicode::find_bytes(text, needle, from), std::string_view(text).find(needle, from))
            << size << " bytes of " << place << " from " << from;
      }
      EXPECT_EQ(unicode::find_bytes(text, needle + "c"), std::string_view::npos);
    }
  }
  EXPECT_EQ(unicode::find_bytes("ab", "", 2), 2U);
  EXPECT_EQ(unicode::find_bytes("ab", "", 3), std::string_view::npos);
  EXPECT_EQ(unicode::find_bytes("ab", "abc"), std::string_view::npos);
}

}  // namespace
}  // namespace moracle
