// What the fuzz targets share: claims about results, and inputs of several parts.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include "base/result.h"

namespace moracle::fuzz {

// Ends the process, which libFuzzer reports as a find.
void require(bool holds);

// Every error is typed and short; its message is UTF-8 without control characters but the line ends of its details.
void check_error(const Error& error);

// The parts of an input, split at bytes 0; `count` of them, absent ones empty. The last one may hold bytes 0.
[[nodiscard]] std::vector<std::string_view> parts_of(std::span<const std::uint8_t> input, std::size_t count);

}  // namespace moracle::fuzz
