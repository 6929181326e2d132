// Checkpoints and headers that a test builds for itself.
#pragma once

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdint>
#include <filesystem>
#include <initializer_list>
#include <span>
#include <string>
#include <string_view>

#include "base/result.h"
#include "support/temporary_folder.h"

namespace moracle::test {

inline std::span<const std::byte> bytes_of(std::string_view text) {
  return std::as_bytes(std::span(text));
}

// Prefix and header, then `data_bytes` bytes with the values 0, 1, 2, ...
inline std::string safetensors_text(const std::string& header, std::size_t data_bytes) {
  std::string text(8, '\0');
  for (std::size_t i = 0; i < 8; ++i) text[i] = static_cast<char>(header.size() >> (8 * i));
  text += header;
  for (std::size_t i = 0; i < data_bytes; ++i) text += static_cast<char>(i);
  return text;
}

inline std::string tensor_text(const std::string& name, const std::string& dtype, const std::string& shape,
                               const std::string& offsets) {
  return fmt::format("\"{}\":{{\"dtype\":\"{}\",\"shape\":{},\"data_offsets\":{}}}", name, dtype, shape, offsets);
}

inline std::string braces(const std::string& inner) {
  return fmt::format("{{{}}}", inner);
}

// A folder of its own for each test, removed afterwards.
class FolderTest : public testing::Test {
 protected:
  void put(const std::string& name, std::string_view text) const { temporary_.write(name, text); }
  std::size_t files_there() const {
    return static_cast<std::size_t>(std::distance(std::filesystem::directory_iterator(folder_), {}));
  }

  TemporaryFolder temporary_;
  const std::filesystem::path& folder_ = temporary_.path();
};

template <class T>
void expect_error(const Result<T>& result, std::string_view code, std::initializer_list<std::string_view> parts) {
  ASSERT_FALSE(result.ok()) << "accepted, but should be refused with " << code;
  EXPECT_EQ(result.error().code, code) << result.error().message();
  for (const std::string_view part : parts)
    EXPECT_THAT(result.error().message(), testing::HasSubstr(std::string(part)));
}

}  // namespace moracle::test
