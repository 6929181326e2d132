// The gated activation between w13 and w2 of an expert.
#pragma once

#include <cstdint>
#include <string_view>

namespace moracle {

// g and u are the gate and up halves. The field's names; formulas are evaluated in f32.
//   silu                  silu(g) * u, with g clamped from above and u on both sides where `limit` > 0
//   gelu, gelu_tanh       erf / tanh form of gelu(g) * u
//   swigluoai             min(g,L) * sigmoid(alpha * min(g,L)) * (clamp(u,-L,L) + beta)
//   swiglustep            min(silu(g), L) * clamp(u, -L, L)
//   situ                  beta * tanh(g/beta) * sigmoid(g) * u
//   swigluoai_split       swigluoai whose halves a publisher keeps apart instead of interleaving their rows
//   relu2                 relu(g)^2 * u
//   relu2_no_mul ...      ungated, on the whole of w1
enum class ActivationFn : std::uint8_t {
  silu,
  gelu,
  gelu_tanh,
  swigluoai,
  swiglustep,
  situ,
  relu2_no_mul,
  silu_no_mul,
  gelu_no_mul,
  gelu_tanh_no_mul,
  swigluoai_split,
  relu2
};

struct ActivationSpec {
  ActivationFn fn = ActivationFn::silu;
  float alpha = 1.702F;  // swigluoai
  float beta = 1.0F;     // swigluoai, situ
  float limit = 0.0F;    // 0: no clamp
  bool operator==(const ActivationSpec&) const = default;
};

[[nodiscard]] std::string_view to_string(ActivationFn fn);

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

// out[i] = activation(gate[i], up[i]); the scalar definition every kernel is held against.
[[nodiscard]] float apply_activation(const ActivationSpec& spec, float gate, float up);

}  // namespace moracle
