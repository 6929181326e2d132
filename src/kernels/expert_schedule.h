// Tokens sorted by the expert that serves them, made once per call without allocation.
#pragma once

#include <cstdint>
#include <span>

#include "base/memory.h"
#include "kernels/kernel.h"

namespace moracle {

// A slot is one (token, choice) pair, numbered token * top_k + choice. `slots` lists them by expert, tokens ascending;
// expert e owns slots[offsets[e] .. offsets[e + 1]). Choices with id -1 appear nowhere.
struct ExpertSchedule {
  std::span<std::int32_t> slots;
  std::span<std::int32_t> offsets;   // [experts + 1]
  std::span<std::int32_t> hit;       // experts with at least one slot
  std::span<std::int32_t> position;  // [tokens * top_k]: index into `slots`, or -1

  // Takes its memory from `arena`, which holds at least bytes(...).
  static ExpertSchedule make(const ExpertsInput& input, std::int64_t experts, BumpArena& arena);
  [[nodiscard]] static std::size_t bytes(std::int64_t tokens, std::int64_t top_k, std::int64_t experts);
};

}  // namespace moracle
