// The calibration loops that are the same for every instruction set: templates on the target (simd/avx512.h).
#pragma once

#include "kernels/calibrate/calibrate.h"

namespace moracle::cpu {

using Line = std::uint64_t __attribute__((vector_size(64), aligned(64)));

// A single stream asks for its lines as far ahead as the kernels do: where a core's own prefetcher keeps few lines on
// the way, memory would seem slower than it is.
constexpr std::int64_t kReadAhead = 8192 / 64;

// Of products that do not wait for each other. Latencies are 4 to 6 cycles at one or two products a cycle: so many
// chains cover them, and fit sixteen registers.
constexpr int kChains = 12;

// Products and additions of f32.
template <class V>
inline void fma_chains(std::int64_t rounds, float* out) {
  const auto factor = V::set1(0.999F);
  const auto add = V::set1(0.001F);
  typename V::Reg sum[kChains];
  for (int c = 0; c < kChains; ++c) sum[c] = V::set1(static_cast<float>(c));
  for (std::int64_t round = 0; round < rounds; ++round) {
#pragma GCC unroll 12
    for (int c = 0; c < kChains; ++c) sum[c] = V::fma(sum[c], factor, add);
  }
  for (int c = 1; c < kChains; ++c) sum[0] = V::add(sum[0], sum[c]);
  V::store(out, sum[0]);
}

// Products of bytes 3 and -2, or of words made of them, added up in integers.
template <class V, typename V::Int (*Product)(typename V::Int sum, typename V::Int a, typename V::Int b)>
inline void dot_chains(std::int64_t rounds, float* out) {
  const auto factor = V::lanes(0x03030303);
  const auto other = V::lanes(static_cast<std::int32_t>(0xFEFEFEFEU));
  typename V::Int sum[kChains];
  for (int c = 0; c < kChains; ++c) sum[c] = V::lanes(c);
  for (std::int64_t round = 0; round < rounds; ++round) {
#pragma GCC unroll 12
    for (int c = 0; c < kChains; ++c) sum[c] = Product(sum[c], factor, other);
  }
  for (int c = 1; c < kChains; ++c) sum[0] = V::add(sum[0], sum[c]);
  V::store(out, V::number(sum[0]));
}

template <class V, int Streams>
std::uint64_t read_streams(const std::byte* data, std::int64_t bytes) {
  const std::int64_t lines = bytes / 64 / Streams;
  const Line* from = reinterpret_cast<const Line*>(data);
  Line sum[Streams] = {};
  for (std::int64_t i = 0; i < lines; ++i) {
    if constexpr (Streams == 1) __builtin_prefetch(from + i + kReadAhead);
#pragma GCC unroll 8
    for (int s = 0; s < Streams; ++s) sum[s] ^= from[s * lines + i];
  }
  std::uint64_t all = 0;
  for (int s = 0; s < Streams; ++s) {
    for (int lane = 0; lane < 8; ++lane) all ^= sum[s][lane];
  }
  return all;
}

template <class V>
inline std::uint64_t read_all(const std::byte* data, std::int64_t bytes, int streams) {
  return streams == 8 ? read_streams<V, 8>(data, bytes) : read_streams<V, 1>(data, bytes);
}

template <class V>
inline std::uint16_t round_bf16(float value) {
  std::uint32_t bits;
  __builtin_memcpy(&bits, &value, sizeof bits);
  return static_cast<std::uint16_t>((bits + 0x7FFFU + ((bits >> 16U) & 1U)) >> 16U);
}

template <class V>
inline void expand_group4(const std::uint8_t* codes, std::int64_t half, float zero, float scale, std::uint16_t* out) {
  for (std::int64_t i = 0; i < half; ++i) out[i] = round_bf16<V>((static_cast<float>(codes[i] & 15) - zero) * scale);
  for (std::int64_t i = 0; i < half; ++i)
    out[half + i] = round_bf16<V>((static_cast<float>(codes[i] >> 4) - zero) * scale);
}

template <class V>
inline void expand_group4(const std::uint8_t* codes, std::int64_t half, const float* table, float scale,
                          std::uint16_t* out) {
  for (std::int64_t i = 0; i < half; ++i) out[i] = round_bf16<V>(table[codes[i] & 15] * scale);
  for (std::int64_t i = 0; i < half; ++i) out[half + i] = round_bf16<V>(table[codes[i] >> 4] * scale);
}

template <class V>
inline void expand_all4(const ExpandArgs& args) {
  const std::int64_t groups = args.cols / args.group;
  for (std::int64_t g = 0; g < args.rows * groups; ++g) {
    const std::uint8_t* codes = args.codes + g * (args.group / 2);
    std::uint16_t* out = args.out + g * args.group;
    if (args.table == nullptr) {
      expand_group4<V>(codes, args.group / 2, args.zero, args.scales[g], out);
    } else {
      expand_group4<V>(codes, args.group / 2, args.table, args.scales[g], out);
    }
  }
}

template <class V>
inline void expand_all8(const ExpandArgs& args) {
  const std::int64_t groups = args.cols / args.group;
  for (std::int64_t g = 0; g < args.rows * groups; ++g) {
    const std::uint8_t* codes = args.codes + g * args.group;
    std::uint16_t* out = args.out + g * args.group;
    const float scale = args.scales[g];
    if (args.table == nullptr) {
      for (std::int64_t i = 0; i < args.group; ++i)
        out[i] = round_bf16<V>((static_cast<float>(codes[i]) - args.zero) * scale);
    } else {
      for (std::int64_t i = 0; i < args.group; ++i) out[i] = round_bf16<V>(args.table[codes[i]] * scale);
    }
  }
}

// Of integer dot products: each instruction multiplies so many pairs.
template <class V, typename V::Int (*Product)(typename V::Int sum, typename V::Int a, typename V::Int b)>
consteval CalibrationOps dot_calibration(const char* unit, int products) {
  return {unit, kChains * products * 2.0, dot_chains<V, Product>, read_all<V>, expand_all4<V>, expand_all8<V>};
}

}  // namespace moracle::cpu
