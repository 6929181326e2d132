// The loops around matrix products, on 4 lanes.
//
// Compiled on aarch64 with -march=armv8.2-a+dotprod
#include "kernels/cpu/simd/neon.h"

#include "kernels/cpu/ops/activation_kernels.h"
#include "kernels/cpu/ops/activations-inl.h"
#include "kernels/cpu/ops/vector_ops-inl.h"

namespace moracle::cpu {
namespace {
struct V : Neon<V> {};

// Whole steps, which a nibble lane's order needs: two registers.
struct Step {
  static constexpr int kLanes = 2 * V::kLanes;
  static V::Int no_int() { return V::no_int(); }
  static V::Int add(V::Int a, V::Int b) { return V::add(a, b); }
};
}  // namespace

// Codes of up to 8 columns as 16-bit words; `x / scale` is a true division, as publishers' tools do it.
template <>
struct Encoder<Step> {
  struct Codes {
    int32x4_t lanes;  // of both registers, added up
    int16x8_t words;
  };
  static V::Int four(const EncodeArgs& args, const float* x, std::int64_t left) {
    const float32x4_t steps =
        V::round(V::div(V::load_part(x, left < V::kLanes ? left : V::kLanes), V::set1(args.scale)));
    // max(steps, -most) is -most for a NaN, which no integer can hold.
    return vcvtq_s32_f32(V::min(V::max(steps, V::set1(-args.most)), V::set1(args.most)));
  }
  static Codes codes_of(const EncodeArgs& args, const float* x, std::int64_t left) {
    const int32x4_t low = four(args, x, left);
    const int32x4_t high = left > V::kLanes ? four(args, x + V::kLanes, left - V::kLanes) : V::no_int();
    return {V::add(low, high), vcombine_s16(vmovn_s32(low), vmovn_s32(high))};
  }

  // The sum of all lanes, times the factor, modulo 2^32.
  static std::int32_t total_of(int32x4_t sum, std::int32_t factor) {
    return static_cast<std::int32_t>(static_cast<std::uint32_t>(vaddvq_s32(sum)) * static_cast<std::uint32_t>(factor));
  }
};

namespace {

// In the order of a nibble lane's bytes.
void store_step(std::byte* out, int8x8_t bytes, bool nibbles) {
  const int8x8_t order = vcreate_s8(0x0703060205010400U);
  vst1_s8(reinterpret_cast<std::int8_t*>(out), nibbles ? vtbl1_s8(bytes, order) : bytes);
}

void encode8(const EncodeArgs& args) {
  encode<Step>(args, 1, [&](std::byte* out, const Encoder<Step>::Codes& codes, std::int64_t) {
    store_step(out, vmovn_s16(codes.words), args.nibbles);
  });
}

// High and low bytes apart. The high ones are rounded, so that the low ones, what is missing, are -128 .. 127.
void encode_split(const EncodeArgs& args) {
  encode<Step>(args, 1, [&](std::byte* out, const Encoder<Step>::Codes& codes, std::int64_t) {
    store_step(out, vrshrn_n_s16(codes.words, 8), args.nibbles);
    store_step(out + args.plane, vmovn_s16(codes.words), args.nibbles);
  });
}

}  // namespace

const VectorOps& neon_vector_ops() {
  static constexpr VectorOps kOps = vector_ops_of<V>("neon");
  return kOps;
}

constinit const ActivationKernels kNeonActivations{.absolute_max = absolute_max<V>,
                                                   .round_numbers = round_numbers<V>,
                                                   .encode8 = encode8,
                                                   .encode16 = nullptr,
                                                   .encode_split = encode_split,
                                                   .to_bf16 = nullptr,
                                                   .activate = activate<V>,
                                                   .weighted_sum = weighted_sum<V>};

}  // namespace moracle::cpu
