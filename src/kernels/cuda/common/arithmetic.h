// Arithmetic that the CUDA kernels and their host versions share: codes of weights, activation quantization, gates. The
// definitions are those of scheme/; what is constexpr there is used as it is.
#pragma once

#include <bit>
#include <cmath>
#include <cstdint>

#include "kernels/args/experts.h"
#include "scheme/codes.h"

#if defined(__CUDACC__)
#define MORACLE_BOTH __host__ __device__ __forceinline__
#else
#define MORACLE_BOTH inline
#endif

namespace moracle::cuda {

// Bits of an element.
constexpr int bits_of(DeviceCode code) {
  switch (code) {
    case DeviceCode::int4:
    case DeviceCode::e2m1:
      return 4;
    case DeviceCode::int8:
    case DeviceCode::e4m3:
      return 8;
    case DeviceCode::bf16:
    case DeviceCode::f16:
      return 16;
    case DeviceCode::f32:
      break;
  }
  return 32;
}

// bf16 bits of a number that bf16 holds exactly.
MORACLE_BOTH std::uint16_t exact_bf16(float value) {
  return static_cast<std::uint16_t>(std::bit_cast<std::uint32_t>(value) >> 16);
}

// Decoders: element `i` of packed 32-bit words to the bf16 bits of its number. `zero` is what integers subtract. A type
// of more than 8 significant bits gives its number in parts, each the rounding of what the parts before leave.
struct Int4 {
  static constexpr DeviceCode kCode = DeviceCode::int4;
  static constexpr int kParts = 1;
  static MORACLE_BOTH std::uint16_t decode(const std::uint32_t* words, int i, int zero, int /*part*/) {
    return exact_bf16(static_cast<float>(static_cast<int>(words[i / 8] >> (4 * (i % 8)) & 15U) - zero));
  }
};
struct Int8 {
  static constexpr DeviceCode kCode = DeviceCode::int8;
  static constexpr int kParts = 1;
  static MORACLE_BOTH std::uint16_t decode(const std::uint32_t* words, int i, int zero, int /*part*/) {
    return exact_bf16(static_cast<float>(static_cast<int>(words[i / 4] >> (8 * (i % 4)) & 255U) - zero));
  }
};
struct E2m1 {
  static constexpr DeviceCode kCode = DeviceCode::e2m1;
  static constexpr int kParts = 1;
  static MORACLE_BOTH std::uint16_t decode(const std::uint32_t* words, int i, int /*zero*/, int /*part*/) {
    const std::uint32_t code = words[i / 8] >> (4 * (i % 8));
    // The multiplication moves the exponent from bias 1 to bias 127 and normalizes 0.5.
    const float magnitude = std::bit_cast<float>((code & 7U) << 22U) * 0x1p126F;
    return static_cast<std::uint16_t>(exact_bf16(magnitude) | (code & 8U) << 12U);
  }
};
struct E4m3 {
  static constexpr DeviceCode kCode = DeviceCode::e4m3;
  static constexpr int kParts = 1;
  static MORACLE_BOTH std::uint16_t decode(const std::uint32_t* words, int i, int /*zero*/, int /*part*/) {
    const std::uint32_t code = words[i / 4] >> (8 * (i % 4));
    const float magnitude = std::bit_cast<float>((code & 0x7FU) << 20U) * 0x1p120F;
    return static_cast<std::uint16_t>(exact_bf16(magnitude) | (code & 0x80U) << 8U);
  }
};
struct Bf16 {
  static constexpr DeviceCode kCode = DeviceCode::bf16;
  static constexpr int kParts = 1;
  static MORACLE_BOTH std::uint16_t decode(const std::uint32_t* words, int i, int /*zero*/, int /*part*/) {
    return static_cast<std::uint16_t>(words[i / 2] >> (16 * (i % 2)));
  }
};

inline constexpr int kSplitParts = 3;
// bf16 bits of one of three parts whose sum is `value` to 24 bits.
MORACLE_BOTH std::uint16_t split_part(float value, int part) {
  std::uint16_t bits = encode_bf16(value);
  for (int p = 0; p < part; ++p) {
    value -= decode_bf16(bits);
    bits = encode_bf16(value);
  }
  return bits;
}
struct F16 {
  static constexpr DeviceCode kCode = DeviceCode::f16;
  static constexpr int kParts = kSplitParts;
  static MORACLE_BOTH std::uint16_t decode(const std::uint32_t* words, int i, int /*zero*/, int part) {
    return split_part(decode_f16(static_cast<std::uint16_t>(words[i / 2] >> (16 * (i % 2)))), part);
  }
};
struct F32 {
  static constexpr DeviceCode kCode = DeviceCode::f32;
  static constexpr int kParts = kSplitParts;
  static MORACLE_BOTH std::uint16_t decode(const std::uint32_t* words, int i, int /*zero*/, int part) {
    return split_part(std::bit_cast<float>(words[i]), part);
  }
};

// Products of parts, weight part in the high and input part in the low half of a byte; those left out are below 2^-24
// of the product. Smallest first.
inline constexpr int kSplitPasses = 6;
constexpr int split_pass(int pass) {
  constexpr std::uint64_t kPasses = 0x000110021120ULL;
  return static_cast<int>(kPasses >> (8 * pass) & 255U);
}

MORACLE_BOTH float decode_scale(DeviceScale type, const std::uint8_t* scales, std::int64_t at) {
  switch (type) {
    case DeviceScale::f32:
      return reinterpret_cast<const float*>(scales)[at];
    case DeviceScale::f16:
      return decode_f16(reinterpret_cast<const std::uint16_t*>(scales)[at]);
    case DeviceScale::bf16:
      return decode_bf16(reinterpret_cast<const std::uint16_t*>(scales)[at]);
    case DeviceScale::e4m3:
      return decode_e4m3(scales[at]);
    case DeviceScale::e8m0:
      return decode_e8m0(scales[at]);
    case DeviceScale::none:
      break;
  }
  return 1.0F;
}

// The zero point of symmetric codes.
constexpr int neutral_zero(DeviceCode code) {
  return code == DeviceCode::int4 ? 8 : code == DeviceCode::int8 ? 128 : 0;
}

// Columns that share a scale of the input; 0: a row does, -1: there is none.
constexpr int input_group(InputKind kind) {
  switch (kind) {
    case InputKind::bf16:
    case InputKind::split:
      return -1;
    case InputKind::e4m3_group:
      return 128;
    case InputKind::mx_e2m1:
    case InputKind::mx_e2m3:
    case InputKind::mx_e3m2:
    case InputKind::mx_e4m3:
      return 32;
    case InputKind::nvfp4:
      return 16;
    default:
      break;
  }
  return 0;
}
// Scales of a row of `padded` inputs.
constexpr std::int32_t input_groups(InputKind kind, std::int32_t padded) {
  const int group = input_group(kind);
  return group < 0 ? 0 : group == 0 ? 1 : (padded + group - 1) / group;
}
constexpr int input_parts(InputKind kind) {
  return kind == InputKind::split ? kSplitParts : 1;
}
// Whether each matrix has an input scale of its own.
constexpr bool has_stored_scale(InputKind kind) {
  return kind == InputKind::int8_tensor || kind == InputKind::e4m3_tensor || kind == InputKind::nvfp4;
}

// The nearest number with `mantissa` bits behind the leading one, ties to even, steps no finer than those of binade
// `least`, saturating at `most`.
MORACLE_BOTH float round_small(float value, int mantissa, int least, float most) {
  const std::uint32_t bits = std::bit_cast<std::uint32_t>(value);
  const float magnitude = std::bit_cast<float>(bits & 0x7FFFFFFFU);
  if (magnitude != magnitude) return value;
  if (!(magnitude < most)) return std::bit_cast<float>((bits & 0x80000000U) | std::bit_cast<std::uint32_t>(most));
  const int exponent = static_cast<int>(bits >> 23 & 255U) - 127;
  const int step = (exponent < least ? least : exponent) - mantissa;
  const float up = std::bit_cast<float>(static_cast<std::uint32_t>(127 - step) << 23);
  const float down = std::bit_cast<float>(static_cast<std::uint32_t>(127 + step) << 23);
  return rintf(value * up) * down;
}
MORACLE_BOTH float round_e4m3(float value) {
  return round_small(value, 3, -6, 448.0F);
}
MORACLE_BOTH float round_e2m1(float value) {
  return round_small(value, 1, 0, 6.0F);
}

// How one group of inputs becomes codes: code = number of round(x * inverse) or round(x / scale).
struct InputScale {
  float scale;    // of a code's number
  float divisor;  // what a value is divided by, where `inverse` is 0
  float inverse;  // what a value is multiplied by
};

// 2^(exponent of the shared scale of an MX block).
MORACLE_BOTH InputScale mx_scale(float amax, std::uint32_t carry, int top) {
  const std::uint32_t bits = std::bit_cast<std::uint32_t>(amax == 0.0F ? 0x1p-126F : amax) + carry;
  int exponent = static_cast<int>(bits >> 23 & 255U) - 127 - top;
  exponent = exponent < -127 ? -127 : exponent > 127 ? 127 : exponent;
  return {decode_e8m0(static_cast<std::uint8_t>(exponent + 127)), 0.0F,
          // 2^-127 is subnormal, and so is the reciprocal of 2^127.
          exponent == 127 ? 0x1p-127F : std::bit_cast<float>(static_cast<std::uint32_t>(127 - exponent) << 23)};
}

// `stored`: the input scale of a static key, or NVFP4's multiplier.
MORACLE_BOTH InputScale input_scale(InputKind kind, float amax, float stored) {
  switch (kind) {
    case InputKind::int8_token: {
      const float scale = (amax > 1e-10F ? amax : 1e-10F) / 127.0F;
      return {scale, scale, 0.0F};
    }
    case InputKind::e4m3_token:
    case InputKind::e4m3_group: {
      const float scale = amax / 448.0F;
      constexpr float kLeast = 1.0F / (448.0F * 512.0F);
      return {scale > kLeast ? scale : kLeast, scale > kLeast ? scale : kLeast, 0.0F};
    }
    case InputKind::int8_tensor:
    case InputKind::e4m3_tensor:
      return {stored, stored, 0.0F};
    case InputKind::mx_e2m1:
      return mx_scale(amax, 0x200000U, 2);
    case InputKind::mx_e2m3:
      return mx_scale(amax, 0x080000U, 2);
    case InputKind::mx_e3m2:
      return mx_scale(amax, 0x100000U, 4);
    case InputKind::mx_e4m3:
      return mx_scale(amax, 0x1FFFFFU, 8);
    case InputKind::nvfp4: {
      constexpr float kSixth = 1.0F / 6.0F;
      const float step = round_e4m3(stored * (amax * kSixth)) * (1.0F / stored);
      return {step, 0.0F, step == 0.0F ? 0.0F : 1.0F / step};
    }
    default:
      break;
  }
  return {1.0F, 1.0F, 0.0F};
}

// The number of a value's code, as bf16 bits.
MORACLE_BOTH std::uint16_t input_code(InputKind kind, float x, const InputScale& scale) {
  switch (kind) {
    case InputKind::int8_token:
    case InputKind::int8_tensor: {
      const float steps = rintf(x / scale.divisor);
      return exact_bf16(steps >= -127.0F ? (steps < 127.0F ? steps : 127.0F) : -127.0F);
    }
    case InputKind::e4m3_token:
    case InputKind::e4m3_group:
    case InputKind::e4m3_tensor:
      return encode_bf16(round_e4m3(x / scale.divisor));
    case InputKind::mx_e2m1:
    case InputKind::nvfp4:
      return encode_bf16(round_e2m1(x * scale.inverse));
    case InputKind::mx_e2m3:
      return encode_bf16(round_small(x * scale.inverse, 3, 0, 7.5F));
    case InputKind::mx_e3m2:
      return encode_bf16(round_small(x * scale.inverse, 2, -2, 28.0F));
    case InputKind::mx_e4m3:
      return encode_bf16(round_e4m3(x * scale.inverse));
    default:
      break;
  }
  return encode_bf16(x);
}

MORACLE_BOTH float sigmoid(float x) {
  return 1.0F / (1.0F + expf(-x));
}

// Arguments of gated_by_sigmoid: silu is alpha 1 and beta 0.
MORACLE_BOTH GateArgs by_sigmoid(GateArgs args) {
  if (args.fn == GateFn::silu) {
    args.alpha = 1.0F;
    args.beta = 0.0F;
  }
  return args;
}
// Silu and swigluoai.
MORACLE_BOTH float gated_by_sigmoid(const GateArgs& args, float gate, float up) {
  const float limit = args.limit;
  const float g = limit > 0.0F && gate > limit ? limit : gate;
  const float above = limit > 0.0F && up > limit ? limit : up;
  const float u = limit > 0.0F && up < -limit ? -limit : above;
  return g * sigmoid(args.alpha * g) * (u + args.beta);
}

// scheme/glu.h has the formulas.
MORACLE_BOTH float gated(const GateArgs& args, float gate, float up) {
  const float limit = args.limit;
  switch (args.fn) {
    case GateFn::silu:
      return gated_by_sigmoid(by_sigmoid(args), gate, up);
    case GateFn::gelu_tanh:
      return 0.5F * gate * (1.0F + tanhf(0.7978845608028654F * (gate + 0.044715F * gate * gate * gate))) * up;
    case GateFn::swigluoai:
      return gated_by_sigmoid(args, gate, up);
    case GateFn::swiglustep:
      break;
  }
  const float above = limit > 0.0F && up > limit ? limit : up;
  const float u = limit > 0.0F && up < -limit ? -limit : above;
  const float silu = gate * sigmoid(gate);
  return (limit > 0.0F && silu > limit ? limit : silu) * u;
}

}  // namespace moracle::cuda
