// Names and sizes of the numbers in which keys, values and latents are kept.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string_view>

#include "kernels/args/state.h"

namespace moracle {

inline constexpr std::array<std::string_view, 3> kKvTypes{"f32", "bf16", "int8"};

[[nodiscard]] constexpr std::string_view to_string(KvType type) {
  return kKvTypes[static_cast<std::size_t>(type)];
}
[[nodiscard]] constexpr std::int64_t bytes_of(KvType type) {
  return type == KvType::f32 ? 4 : type == KvType::bf16 ? 2 : 1;
}
[[nodiscard]] constexpr std::optional<KvType> kv_type_of(std::string_view name) {
  for (std::size_t i = 0; i < kKvTypes.size(); ++i) {
    if (kKvTypes[i] == name) return static_cast<KvType>(i);
  }
  return std::nullopt;
}

}  // namespace moracle
