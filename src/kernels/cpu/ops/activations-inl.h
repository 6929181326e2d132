// The exponential, the same for every loop of a target; maxima, rounding, gated activations, integer codes, and the sum
// over a token's choices.
#pragma once

#include <cstring>

#include "kernels/cpu/ops/activation_kernels.h"

namespace moracle::cpu {

// exp(x) = 2^n exp(r) with |r| <= ln2/2. The Taylor series to r^7 leaves 0.35^8/8! = 5e-9, a tenth of half an ulp. ln2
// is split so that n * kLn2High is exact. 2^n is applied as two factors, because n reaches -150 and 128.
template <class V>
inline typename V::Reg exp_of(typename V::Reg x) {
  constexpr float kLog2E = 1.44269504F;
  constexpr float kLn2High = 0.693359375F;
  constexpr float kLn2Low = -2.12194440e-4F;
  // Argument order matters: min and max return the second operand where one is NaN.
  x = V::max(V::set1(-104.0F), V::min(V::set1(89.0F), x));
  const auto n = V::round(V::mul(x, V::set1(kLog2E)));
  auto r = V::fma(n, V::set1(-kLn2High), x);
  r = V::fma(n, V::set1(-kLn2Low), r);
  auto p = V::set1(1.0F / 5040.0F);
  p = V::fma(p, r, V::set1(1.0F / 720.0F));
  p = V::fma(p, r, V::set1(1.0F / 120.0F));
  p = V::fma(p, r, V::set1(1.0F / 24.0F));
  p = V::fma(p, r, V::set1(1.0F / 6.0F));
  p = V::fma(p, r, V::set1(0.5F));
  p = V::fma(p, r, V::set1(1.0F));
  p = V::fma(p, r, V::set1(1.0F));
  const auto half = V::round(V::mul(n, V::set1(0.5F)));
  return V::mul(V::mul(p, V::power_of_two(half)), V::power_of_two(V::sub(n, half)));
}

// x sigmoid(z).
template <class V>
inline typename V::Reg times_sigmoid(typename V::Reg x, typename V::Reg z) {
  return V::div(x, V::add(V::set1(1.0F), exp_of<V>(V::sub(V::zero(), z))));
}

template <class V>
inline typename V::Reg silu(typename V::Reg x) {
  return times_sigmoid<V>(x, x);
}

template <class V>
float absolute_max(const float* x, std::int64_t count) {
  auto most = V::zero();
  auto poison = V::zero();  // x - x is zero where x is finite, else NaN
  std::int64_t i = 0;
  for (; i + V::kLanes <= count; i += V::kLanes) {
    const auto value = V::load(x + i);
    most = V::max(V::max(value, V::sub(V::zero(), value)), most);
    poison = V::add(poison, V::sub(value, value));
  }
  float lanes[V::kLanes];
  float poisons[V::kLanes];
  V::store(lanes, most);
  V::store(poisons, poison);
#pragma GCC unroll 4
  for (int half = V::kLanes / 2; half > 0; half /= 2) {
#pragma GCC unroll 8
    for (int lane = 0; lane < half; ++lane) {
      lanes[lane] = lanes[lane] > lanes[lane + half] ? lanes[lane] : lanes[lane + half];
      poisons[lane] += poisons[lane + half];
    }
  }
  float result = lanes[0];
  float sum = poisons[0];
  for (; i < count; ++i) {
    const float value = __builtin_fabsf(x[i]);
    result = value > result ? value : result;
    sum += value - value;
  }
  return result + sum;
}

// Written for the compiler to vectorize.
template <class V>
void round_numbers(const RoundArgs& args) {
  const int drop = 23 - args.mantissa;
  const std::uint32_t half = (1U << (drop - 1)) - 1U;
  const std::uint32_t kept = ~((1U << drop) - 1U);
  const auto power = [](int exponent) {
    const std::uint32_t bits = static_cast<std::uint32_t>(exponent + 127) << 23U;
    float value;
    __builtin_memcpy(&value, &bits, sizeof value);
    return value;
  };
  const float least = power(args.min_exponent);
  const float magic = 1.5F * power(23 + args.min_exponent - args.mantissa);  // its last bit is the subnormals' step
  float* const values = args.values;
  const float factor = args.factor;
  const float most = args.most;
  const bool divide = args.divide;
  for (std::int64_t i = 0; i < args.count; ++i) {
    const float value = divide ? values[i] / factor : values[i] * factor;
    const float magnitude = __builtin_fabsf(value);
    std::uint32_t bits;
    __builtin_memcpy(&bits, &magnitude, sizeof bits);
    bits = (bits + half + ((bits >> drop) & 1U)) & kept;
    float normal;
    __builtin_memcpy(&normal, &bits, sizeof normal);
    const float small = (magnitude + magic) - magic;
    const float rounded = magnitude < least ? small : normal;
    values[i] = __builtin_copysignf(rounded > most ? most : rounded, value);
  }
}

template <class V>
inline typename V::Reg clamp(typename V::Reg x, typename V::Reg limit) {
  return V::min(V::max(x, V::sub(V::zero(), limit)), limit);
}

template <class V>
inline typename V::Reg activated(const ActivationSpec& spec, typename V::Reg gate, typename V::Reg up) {
  using Reg = typename V::Reg;
  const Reg limit = V::set1(spec.limit);
  switch (spec.fn) {
    case ActivationFn::silu:
      if (spec.limit > 0.0F) {
        gate = V::min(gate, limit);
        up = clamp<V>(up, limit);
      }
      return V::mul(silu<V>(gate), up);
    case ActivationFn::gelu_tanh: {
      // 0.5 g (1 + tanh(z)) = g * sigmoid(2 z), z = sqrt(2/pi) (g + 0.044715 g^3)
      const Reg cubic = V::mul(V::mul(gate, gate), V::mul(gate, V::set1(0.044715F)));
      const Reg z2 = V::mul(V::add(gate, cubic), V::set1(1.5957691216057308F));
      return V::mul(times_sigmoid<V>(gate, z2), up);
    }
    case ActivationFn::swigluoai:
      if (spec.limit > 0.0F) {
        gate = V::min(gate, limit);
        up = clamp<V>(up, limit);
      }
      return V::mul(times_sigmoid<V>(gate, V::mul(V::set1(spec.alpha), gate)), V::add(up, V::set1(spec.beta)));
    case ActivationFn::swiglustep: {
      const Reg s = silu<V>(gate);
      return spec.limit > 0.0F ? V::mul(V::min(s, limit), clamp<V>(up, limit)) : V::mul(s, up);
    }
    case ActivationFn::relu2_no_mul: {
      const Reg kept = V::max(V::zero(), gate);
      return V::mul(kept, kept);
    }
    default:
      return V::zero();
  }
}

template <class V>
void activate(const ActivationArgs& args) {
  const auto biased = [](const float* values, const float* bias, int column) {
    const auto value = V::load(values + column);
    return bias == nullptr ? value : V::add(value, V::load(bias + column));
  };
  for (std::int64_t row = 0; row < args.rows; ++row) {
    const float* const gate = args.gate + row * kPanelRows;
    const float* const up = args.up + row * kPanelRows;
    float* const out = args.out + row * args.out_stride;
    for (int column = 0; column < kPanelRows; column += V::kLanes) {
      V::store(out + column,
               activated<V>(args.spec, biased(gate, args.gate_bias, column), biased(up, args.up_bias, column)));
    }
  }
}

template <class V>
void weighted_sum(const float* const* rows, const float* weights, std::int64_t count, float* out, std::int64_t n) {
  std::int64_t i = 0;
  for (; i + V::kLanes <= n; i += V::kLanes) {
    auto sum = V::zero();
    for (std::int64_t j = 0; j < count; ++j) sum = V::fma(V::set1(weights[j]), V::load(rows[j] + i), sum);
    V::store(out + i, sum);
  }
  for (; i < n; ++i) {
    float sum = 0.0F;
    for (std::int64_t j = 0; j < count; ++j) sum = __builtin_fmaf(weights[j], rows[j][i], sum);
    out[i] = sum;
  }
}

// The walk that encoders share (EncodeArgs). Encoder<V>: codes_of(args, x, left), of the first V::kLanes of `left`
// columns: `lanes`, 32-bit ones, zero behind the last column; total_of(sum, factor): the sum of all lanes times the
// factor, modulo 2^32.
template <class V>
struct Encoder;

// Calls store(out, codes, left) for every V::kLanes columns of a group, each with `width` bytes at `out`; `left`: the
// group's columns from these on.
template <class V, class Store>
void encode(const EncodeArgs& args, std::int64_t width, const Store& store) {
  const float* x = args.x;
  std::byte* out = args.out;
  for (std::int64_t g = 0; g < args.groups; ++g) {
    const std::int64_t columns = g + 1 < args.groups ? args.group_columns : args.last_columns;
    auto sum = V::no_int();
    for (std::int64_t i = 0; i < columns; i += V::kLanes) {
      const auto codes = Encoder<V>::codes_of(args, x + i, columns - i);
      sum = V::add(sum, codes.lanes);
      store(out + i * width, codes, columns - i);
    }
    if (args.sums != nullptr) args.sums[g] = Encoder<V>::total_of(sum, args.sum_factor);
    x += args.group_columns;
    out += args.group_columns * width;
  }
}

}  // namespace moracle::cpu
