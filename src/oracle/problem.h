// What the oracle is asked.
#pragma once

#include <cstdint>

#include "scheme/glu.h"
#include "scheme/quant_key.h"

namespace moracle {

enum class ProblemKind : std::uint8_t { experts, linear };

struct Problem {
  ProblemKind kind = ProblemKind::experts;
  Scheme scheme{};
  std::int64_t experts = 1;  // 1 for a linear
  std::int64_t top_k = 1;
  std::int64_t hidden = 0;        // in of a linear; as this rank holds it
  std::int64_t intermediate = 0;  // out of a linear; as this rank holds it
  ActivationSpec activation{};
  bool bias = false;
  bool zero_points = false;
  bool act_order = false;
  bool own_up_order = false;  // up has a group index other than gate's in some expert
  bool interleaved = false;   // gate and up rows alternate on disk
  bool operator==(const Problem&) const = default;
};

}  // namespace moracle
