// Masks of tokens: bit id % 32 of word id / 32.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <iterator>
#include <span>
#include <vector>

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

// Of the ids, those that the mask has, and none beside them.
inline void keep_only(std::span<std::uint32_t> mask, std::span<const std::int32_t> ids) {
  std::vector<std::int32_t> kept;
  std::copy_if(ids.begin(), ids.end(), std::back_inserter(kept), [&](std::int32_t id) { return in_mask(mask, id); });
  std::fill(mask.begin(), mask.end(), 0U);
  for (const std::int32_t id : kept) set_in_mask(mask, id, true);
}

}  // namespace moracle
