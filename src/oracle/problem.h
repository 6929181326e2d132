// What the oracle is asked.
#pragma once

#include <cstdint>

#include "scheme/glu.h"
#include "scheme/quant_key.h"

namespace moracle {

enum class ProblemKind : std::uint8_t { experts, linear };

// Ungated experts have w1 alone; there is no up half to multiply with.
[[nodiscard]] constexpr bool is_gated(ActivationFn fn) {
  switch (fn) {
    case ActivationFn::relu2_no_mul:
    case ActivationFn::silu_no_mul:
    case ActivationFn::gelu_no_mul:
    case ActivationFn::gelu_tanh_no_mul:
      return false;
    default:
      return true;
  }
}

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
