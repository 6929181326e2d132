#include "scheme/glu.h"

#include <cmath>
#include <numbers>

namespace moracle {
namespace {

float sigmoid(float x) {
  return 1.0F / (1.0F + std::exp(-x));
}

float gelu(float x) {
  constexpr float kInvSqrt2 = 1.0F / std::numbers::sqrt2_v<float>;
  return 0.5F * x * (1.0F + std::erf(x * kInvSqrt2));
}

float gelu_tanh(float x) {
  constexpr float kSqrt2OverPi = 0.7978845608028654F;
  return 0.5F * x * (1.0F + std::tanh(kSqrt2OverPi * (x + 0.044715F * x * x * x)));
}

// Written with comparisons rather than std::min so that a NaN stays a NaN and is found by whoever checks the output.
float clamp_above(float x, float limit) {
  return limit > 0.0F && x > limit ? limit : x;
}
float clamp_both(float x, float limit) {
  return limit > 0.0F && x < -limit ? -limit : clamp_above(x, limit);
}

}  // namespace

std::string_view to_string(ActivationFn fn) {
  switch (fn) {
    case ActivationFn::silu:
      return "silu";
    case ActivationFn::gelu:
      return "gelu";
    case ActivationFn::gelu_tanh:
      return "gelu_tanh";
    case ActivationFn::swigluoai:
      return "swigluoai";
    case ActivationFn::swiglustep:
      return "swiglustep";
    case ActivationFn::situ:
      return "situ";
    case ActivationFn::relu2_no_mul:
      return "relu2_no_mul";
    case ActivationFn::silu_no_mul:
      return "silu_no_mul";
    case ActivationFn::gelu_no_mul:
      return "gelu_no_mul";
    case ActivationFn::gelu_tanh_no_mul:
      return "gelu_tanh_no_mul";
    case ActivationFn::swigluoai_split:
      return "swigluoai_split";
    case ActivationFn::relu2:
      return "relu2";
  }
  return "unknown";
}

float apply_activation(const ActivationSpec& spec, float gate, float up) {
  switch (spec.fn) {
    case ActivationFn::silu: {
      const float g = clamp_above(gate, spec.limit);
      return g * sigmoid(g) * clamp_both(up, spec.limit);
    }
    case ActivationFn::gelu:
      return gelu(gate) * up;
    case ActivationFn::gelu_tanh:
      return gelu_tanh(gate) * up;
    case ActivationFn::swigluoai:
    case ActivationFn::swigluoai_split: {
      const float g = clamp_above(gate, spec.limit);
      return g * sigmoid(spec.alpha * g) * (clamp_both(up, spec.limit) + spec.beta);
    }
    case ActivationFn::swiglustep:
      // The clamp comes after silu: for gates beyond the limit this differs from silu with a clamped gate.
      return clamp_above(gate * sigmoid(gate), spec.limit) * clamp_both(up, spec.limit);
    case ActivationFn::situ:
      return spec.beta * std::tanh(gate / spec.beta) * sigmoid(gate) * up;
    case ActivationFn::relu2_no_mul:
    case ActivationFn::relu2: {
      const float g = gate < 0.0F ? 0.0F : gate;
      return spec.fn == ActivationFn::relu2 ? g * g * up : g * g;
    }
    case ActivationFn::silu_no_mul:
      return gate * sigmoid(gate);
    case ActivationFn::gelu_no_mul:
      return gelu(gate);
    case ActivationFn::gelu_tanh_no_mul:
      return gelu_tanh(gate);
  }
  return 0.0F;
}

}  // namespace moracle
