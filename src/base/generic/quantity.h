// Numbers as people read them.
#pragma once

#include <cstdint>
#include <string>

namespace moracle {

[[nodiscard]] std::string human_bytes(std::uint64_t bytes);  // "7.3 MiB"
[[nodiscard]] std::string human_count(std::uint64_t count);  // "30.5 B"

}  // namespace moracle
