// Inputs of grouped products: rows of f32 to bf16 or bytes in the order of columns that records have (permuted).
#pragma once

#include <cuda_runtime.h>

#include "kernels/cuda/common/arithmetic.h"
#include "kernels/cuda/common/ops/block.cuh"
#include "kernels/cuda/common/tile_layout.h"
#include "kernels/cuda/sm90/ptx.cuh"

namespace moracle::cuda {

// Rows from which a warp each keeps the device busy; fewer are a block each.
inline constexpr int kManyRows = 4096;

// Rows that the scheme quantizes. As bytes codes are kept, and their scales, of rows or of groups. bf16 holds the
// codes' numbers: scales of groups are multiplied in, which rounds to bf16 what is no power of two, those of rows are
// kept.
struct QuantizeArgs {
  const std::uint8_t* weights;  // of expert 0, which has its stored input scale at `stored`, for tokens that of all
  std::uint64_t expert_bytes;
  std::uint64_t stored;
  InputKind kind;
  Operand operand;
  float factor;  // of what is written as bf16
  std::int32_t columns;
  const float* from;
  std::int32_t experts;
  const std::int32_t* offsets;  // first row of each expert, where rows are pairs
  const std::int32_t* pairs;    // null: rows are tokens
  std::int32_t top_k;           // 0: a pair's row is its own, else its token's
  std::uint16_t* codes;
  float* scales;  // [rows], or of bytes in groups [rows, columns / 128]
};
void quantize_rows(const QuantizeArgs& args, int rows, cudaStream_t stream);

// First column of the pairs of columns that make the `i`-th eight neighbours in permuted order; the others are 8, 16
// and 24 further.
__device__ __forceinline__ int first_column(int i) {
  return i / 4 * 32 + i % 4 / 2 * 4 + i % 2 * 2;
}

// Of bytes, the first of the four columns that make the first half of the `i`-th eight; the others are 8 further.
__device__ __forceinline__ int first_byte_column(int i) {
  return i / 4 * 32 + i % 2 * 16 + i % 4 / 2 * 4;
}

// By a whole block: a row times `factor`.
__device__ __forceinline__ void permute_row(const float* from, std::uint16_t* codes, int columns, float factor) {
  auto* const to = reinterpret_cast<uint4*>(codes);
  for (int i = static_cast<int>(threadIdx.x); i < columns / 8; i += static_cast<int>(blockDim.x)) {
    std::uint32_t words[4];
#pragma unroll
    for (int lane = 0; lane < 4; ++lane) {
      const float2 two = __ldg(reinterpret_cast<const float2*>(from + first_column(i) + lane * 8));
      words[lane] = pack_bf16(two.x * factor, two.y * factor);
    }
    to[i] = make_uint4(words[0], words[1], words[2], words[3]);
  }
}

// The expert whose row this is, by the first rows of all.
__device__ __forceinline__ int expert_of_row(const QuantizeArgs& args, int row) {
  int low = 0;
  int high = args.experts - 1;
  while (low < high) {
    const int middle = (low + high + 1) / 2;
    if (__ldg(args.offsets + middle) <= row) {
      low = middle;
    } else {
      high = middle - 1;
    }
  }
  return low;
}

// What the maximum of a group's magnitudes is, for the eight columns of each thread: of its first and its last four
// where groups have 16 columns, else of all.
__device__ __forceinline__ float2 group_max(int group, const float2 (&x)[4]) {
  const auto of = [](float2 v) { return fmaxf(fabsf(v.x), fabsf(v.y)); };
  float first = fmaxf(of(x[0]), of(x[1]));
  float last = fmaxf(of(x[2]), of(x[3]));
  if (group > 16) first = last = fmaxf(first, last);
  for (int step = 1; step < (group == 128 ? 16 : 4); step *= 2) {
    first = fmaxf(first, __shfl_xor_sync(~0U, first, step));
    last = fmaxf(last, __shfl_xor_sync(~0U, last, step));
  }
  return make_float2(first, last);
}

// Codes of four neighbours in the order of a fragment: the first, the third, the second, the fourth. Of E4M3 or int8,
// as input_code makes them.
__device__ __forceinline__ std::uint32_t four_bytes(Operand operand, float2 left, float2 right, float divisor) {
  const float steps[4] = {left.x / divisor, right.x / divisor, left.y / divisor, right.y / divisor};
  if (operand == Operand::e4m3) return pack_e4m3x2(steps[0], steps[1]) | pack_e4m3x2(steps[2], steps[3]) << 16;
  std::uint32_t codes = 0;
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    const float code = fminf(fmaxf(rintf(steps[i]), -127.0F), 127.0F);
    codes |= (static_cast<std::uint32_t>(static_cast<int>(code)) & 255U) << (8 * i);
  }
  return codes;
}

// By kOfRow threads: a warp, or a whole block. Each forms eight neighbours of the row at a time.
template <int kOfRow, bool kBytes>
__device__ __forceinline__ void quantize_row(const QuantizeArgs& args, int row) {
  std::int64_t source = row;
  float stored = 1.0F;
  if (args.pairs != nullptr) {
    if (row >= args.offsets[args.experts]) return;  // of ids that name no expert
    const int expert = expert_of_row(args, row);
    if (args.stored != kAbsent) {
      stored = *reinterpret_cast<const float*>(args.weights + static_cast<std::uint64_t>(expert) * args.expert_bytes +
                                               args.stored);
    }
    if (args.top_k > 0) source = __ldg(args.pairs + row) / args.top_k;
  } else if (args.stored != kAbsent) {
    stored = *reinterpret_cast<const float*>(args.weights + args.stored);  // that of all experts
  }
  const float* const from = args.from + source * args.columns;
  auto* const to =
      reinterpret_cast<std::uint8_t*>(args.codes) + static_cast<std::int64_t>(row) * args.columns * (kBytes ? 1 : 2);
  const int count = args.columns / 8;
  const int thread = static_cast<int>(threadIdx.x) % kOfRow;
  const int group = input_group(args.kind);
  InputScale scale{1.0F, 1.0F, 0.0F};
  if (group == 0) {
    float most = 0.0F;
#pragma unroll 4
    for (int i = thread; i < args.columns / 4; i += kOfRow) {
      const float4 four = __ldg(reinterpret_cast<const float4*>(from) + i);
      most = larger(most, larger(larger(fabsf(four.x), fabsf(four.y)), larger(fabsf(four.z), fabsf(four.w))));
    }
    most = row_max<kOfRow>(most);
    scale = input_scale(args.kind, most, stored);
    // Codes of integers have none for NaN: the row's scale tells.
    if (thread == 0) args.scales[row] = most == most ? scale.scale : most;
  }
  // Whole warps take part in each round: groups are spread over threads.
#pragma unroll 2
  for (int first = 0; first < count; first += kOfRow) {
    const int i = first + thread;
    float2 x[4] = {};
    if (i < count) {
#pragma unroll
      for (int lane = 0; lane < 4; ++lane) {
        const int column = kBytes ? first_byte_column(i) + lane / 2 * 8 + lane % 2 * 2 : first_column(i) + lane * 8;
        x[lane] = __ldg(reinterpret_cast<const float2*>(from + column));
      }
    }
    InputScale scales[2] = {scale, scale};
    if (group > 0) {
      const float2 most = group_max(group, x);
      scales[0] = input_scale(args.kind, most.x, stored);
      scales[1] = group > 16 ? scales[0] : input_scale(args.kind, most.y, stored);
    }
    if (i >= count) continue;
    if constexpr (kBytes) {
      if (group > 0 && i % 16 == 0)
        args.scales[static_cast<std::int64_t>(row) * (count / 16) + i / 16] = scales[0].scale;
      reinterpret_cast<uint2*>(to)[i] = make_uint2(four_bytes(args.operand, x[0], x[1], scales[0].divisor),
                                                   four_bytes(args.operand, x[2], x[3], scales[0].divisor));
    } else {
      std::uint32_t words[4];
#pragma unroll
      for (int lane = 0; lane < 4; ++lane) {
        const InputScale& own = scales[lane / 2];
        const float times = args.factor * (group > 0 ? own.scale : 1.0F);
        words[lane] = pack_bf16(decode_bf16(input_code(args.kind, x[lane].x, own)) * times,
                                decode_bf16(input_code(args.kind, x[lane].y, own)) * times);
      }
      reinterpret_cast<uint4*>(to)[i] = make_uint4(words[0], words[1], words[2], words[3]);
    }
  }
}
template <int kOfRow>
__device__ __forceinline__ void quantize_row(const QuantizeArgs& args, int row) {
  if (args.operand == Operand::bf16) {
    quantize_row<kOfRow, false>(args, row);
  } else {
    quantize_row<kOfRow, true>(args, row);
  }
}

}  // namespace moracle::cuda
