// Masks of tokens: bit id % 32 of word id / 32.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

namespace moracle {

inline constexpr std::size_t kMaskWordBits = 32;

// Ids that the mask does not have are in none.
[[nodiscard]] inline bool in_mask(std::span<const std::uint32_t> mask, std::int32_t id) {
  const auto bit = static_cast<std::size_t>(id);
  return id >= 0 && bit / kMaskWordBits < mask.size() && (mask[bit / kMaskWordBits] >> (bit % kMaskWordBits) & 1U) != 0;
}

inline void set_in_mask(std::span<std::uint32_t> mask, std::int32_t id, bool value) {
  const auto bit = static_cast<std::size_t>(id);
  if (id < 0 || bit / kMaskWordBits >= mask.size()) return;
  const std::uint32_t one = std::uint32_t{1} << (bit % kMaskWordBits);
  std::uint32_t& word = mask[bit / kMaskWordBits];
  word = value ? word | one : word & ~one;
}

}  // namespace moracle
