// The SIMD vocabulary on 4 lanes, with the dot product of bytes. Everything is a member of a template on the target
// (simd/avx512.h).
#pragma once

#include <arm_neon.h>

#include <cstddef>
#include <cstdint>

#include "kernels/cpu/simd/lane.h"

namespace moracle::cpu {

template <class Tag>
struct Neon : Lanes<Neon<Tag>, 16, std::int32_t> {
  using typename Lanes<Neon<Tag>, 16, std::int32_t>::Reg;
  using typename Lanes<Neon<Tag>, 16, std::int32_t>::Int;
  using Lanes<Neon<Tag>, 16, std::int32_t>::kLanes;
  static constexpr int kRegs = 8;
  static constexpr int kRegisters = 32;
  static constexpr int kChains = 1;
  static constexpr int kTileTokens = 6;
  static constexpr int kGemmRows = 4;     // of f32 products
  static constexpr int kGemmVectors = 4;  // 4 rows x 4 vectors = 16 accumulators
  static void prefetch_l1(const std::byte* line) { __asm__ volatile("prfm pldl1keep, [%0]" : : "r"(line)); }
  static void prefetch_l2(const std::byte* line) { __asm__ volatile("prfm pldl2keep, [%0]" : : "r"(line)); }
  static void prefetch_store(const float* line) { __asm__ volatile("prfm pstl1keep, [%0]" : : "r"(line)); }
  static Reg set1(float v) { return vdupq_n_f32(v); }
  // The second operand where one is NaN, which FMIN and FMAX would return.
  static Reg min(Reg a, Reg b) { return vbslq_f32(vcltq_f32(a, b), a, b); }
  static Reg max(Reg a, Reg b) { return vbslq_f32(vcgtq_f32(a, b), a, b); }
  static Reg fma(Reg a, Reg b, Reg c) { return vfmaq_f32(c, a, b); }
  static Reg add_product(Reg a, Reg b, Reg c) { return fma(a, b, c); }
  static Reg fma_of_memory(Reg a, Reg b, const Reg& c) { return fma(a, b, c); }
  static Reg round(Reg a) { return vrndnq_f32(a); }
  static uint16x4_t load_halves(const std::byte* p) { return vld1_u16(reinterpret_cast<const std::uint16_t*>(p)); }
  static Reg load_f16(const std::byte* p) { return vcvt_f32_f16(vreinterpret_f16_u16(load_halves(p))); }
  static Reg load_bf16(const std::byte* p) { return vreinterpretq_f32_u32(vshll_n_u16(load_halves(p), 16)); }
  static Reg load_i8(const std::byte* p) {
    return Tag::number(vmovl_s16(vget_low_s16(vmovl_s8(vreinterpret_s8_u8(four(p))))));
  }
  // Four bytes, and zeros behind them.
  static uint8x8_t four(const std::byte* p) {
    return vcreate_u8(static_cast<std::uint32_t>(*reinterpret_cast<const SimdLane*>(p)));
  }
  static int32x4_t bytes(const std::byte* p) {
    return vreinterpretq_s32_u32(vmovl_u16(vget_low_u16(vmovl_u8(four(p)))));
  }
  // By way of f16, where subnormal codes are subnormal numbers.
  static Reg load_e4m3(const std::byte* p) {
    const int16x4_t codes = vget_low_s16(vmovl_s8(vreinterpret_s8_u8(four(p))));
    const int16x4_t bits = vand_s16(vshl_n_s16(codes, 7), vdup_n_s16(static_cast<std::int16_t>(0xBF80)));
    return vmulq_n_f32(vcvt_f32_f16(vreinterpret_f16_s16(bits)), 256.0F);
  }

  static Int lanes(std::int32_t v) { return vdupq_n_s32(v); }
  // A table of 16 bytes, and what its bytes are at others.
  static Int table(const void* from) { return Tag::load_int(from); }
  static Int lookup(Int table, Int at) {
    return vreinterpretq_s32_s8(vqtbl1q_s8(vreinterpretq_s8_s32(table), vreinterpretq_u8_s32(at)));
  }
  // Bytes of both in turn: the first ones, or the last.
  static Int zip(Int a, Int b, bool last) {
    const int8x16_t x = vreinterpretq_s8_s32(a);
    const int8x16_t y = vreinterpretq_s8_s32(b);
    return vreinterpretq_s32_s8(last ? vzip2q_s8(x, y) : vzip1q_s8(x, y));
  }

  static Reg load_some(const float* p, std::int64_t n) {
    float some[kLanes] = {};
    __builtin_memcpy(some, p, static_cast<std::size_t>(n) * sizeof(float));
    return Tag::load(some);
  }
  static void store_some(float* p, Reg v, std::int64_t n) {
    float all[kLanes];
    Tag::store(all, v);
    __builtin_memcpy(p, all, static_cast<std::size_t>(n) * sizeof(float));
  }
  static float sum(Reg a) { return vaddvq_f32(a); }
  static float largest(Reg a) { return vmaxvq_f32(a); }

 private:
  Neon() = default;  // a target's tag derives from this, of itself
  friend Tag;
};

}  // namespace moracle::cpu
