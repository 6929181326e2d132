// Tokens sorted by the expert that serves them, made once per call without allocation.
#pragma once

#include <cstdint>
#include <span>

#include "base/memory.h"
#include "kernels/kernel.h"

namespace moracle {

// A pair is one (token, choice), numbered token * top_k + choice. `pairs` lists them by expert, tokens ascending;
// expert e owns pairs[offsets[e] .. offsets[e + 1]). Choices with id -1 appear nowhere.
struct ExpertSchedule {
  std::span<std::int32_t> pairs;
  std::span<std::int32_t> offsets;  // [experts + 1]
  std::span<std::int32_t> active;   // experts with at least one pair
  std::span<std::int32_t> inverse;  // [tokens * top_k]: index into `pairs`, or -1

  // Lays out its memory, with a counting arena too.
  static ExpertSchedule take(std::int64_t tokens, std::int64_t top_k, std::int64_t experts, BumpArena& arena);
  // Takes its memory from `arena`, which holds at least bytes(...).
  static ExpertSchedule make(const ExpertsInput& input, std::int64_t experts, BumpArena& arena);
  [[nodiscard]] static std::size_t bytes(std::int64_t tokens, std::int64_t top_k, std::int64_t experts);
};

}  // namespace moracle
