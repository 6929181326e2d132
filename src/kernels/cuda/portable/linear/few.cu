// y = x W^T of few tokens, or of few rows, for up to kMostFused matrices in one launch: a warp sums products of two
// rows, or of a share of their columns, in f32, and reads codes as they lie, 16 bytes a lane. A block has rows of one
// matrix, and up to 8 tokens. Inputs that are rounded alone are formed by each block; its first codes are on their way
// meanwhile.
#include <cuda_fp16.h>

#include "kernels/cuda/common/arithmetic.h"
#include "kernels/cuda/common/grid.cuh"
#include "kernels/cuda/common/launch.h"
#include "kernels/cuda/common/linear/matrices.cuh"
#include "kernels/cuda/common/linear/scales.cuh"
#include "kernels/cuda/common/mma.cuh"

namespace moracle::cuda {

namespace {

constexpr int kMostThreads = 256;
constexpr int kMostWarps = kMostThreads / 32;
constexpr int kRows = 2;  // of a warp
constexpr int kMostShares = 4;
constexpr int kWantedWarps = 2112;  // 16 for each of 132 multiprocessors
// Of one token that all multiprocessors have registers for at once.
template <bool kScaled>
constexpr int kResidentWarps = (kScaled ? 20 : 28) * 132;
constexpr int kStagedBytes = 40 * 1024;
constexpr int kMostTokens = 8;  // of a block
constexpr int kFewRows = 8;     // of all matrices, whose blocks have a token each

struct FewArgs {
  LinearMatrix matrices[kMostFused];
  std::int32_t count;
  std::int32_t tokens;
  std::int32_t padded;             // columns, of each
  std::int32_t shares;             // warps that share the columns of a row
  std::int32_t staged;             // columns of inputs in shared memory at a time
  std::int32_t input_group;        // columns that share an input's scale
  std::int32_t input_groups;       // of a token
  std::uint32_t input_reciprocal;  // of those columns
  InputKind input;
  // Inputs as they are, [tokens, cols], which blocks form; else null, and codes with scales are formed already.
  const float* x;
  bool whole_vectors;  // x may be read 16 bytes at a time
  const std::uint16_t* codes;
  const float* scales;
  std::int64_t part_codes;
};

// How a lane takes 16 bytes of a row.
template <class Code>
struct Piece {
  static constexpr int kBits = bits_of(Code::kCode);
  static constexpr int kColumns = 128 / kBits;
  static constexpr bool kWide = Code::kParts > 1;  // inputs stay f32 in shared memory, else bf16
  static constexpr int kStep = kWide ? 4 : 8;      // columns of 16 bytes of inputs
  static constexpr int kSteps = kColumns / kStep;
  static constexpr int kGroups = kColumns > 16 ? 2 : 1;  // that can have scales of their own
  static constexpr bool kScaled = kBits <= 8;
  static constexpr int kAhead = kScaled ? 2 : 4;  // pieces of a row on their way
};

// Numbers of the columns in step `step` of a piece, exact. An integer's bits become the last ones of a float whose
// exponent makes them count ones.
template <class Code>
__device__ __forceinline__ void decode_step(float (&to)[Piece<Code>::kStep], const std::uint32_t (&words)[4], int step,
                                            float zero) {
  constexpr int kStep = Piece<Code>::kStep;
  const std::uint32_t* const from = words + step * kStep * Piece<Code>::kBits / 32;
#pragma unroll
  for (int i = 0; i < kStep; ++i) {
    if constexpr (Code::kCode == DeviceCode::int4) {
      const int at = i < 5 ? i : i - 3;
      const std::uint32_t word = i < 5 ? from[0] : from[0] >> 12U;
      const std::uint32_t one = (150U - 4U * static_cast<std::uint32_t>(at)) << 23U;
      to[i] = __uint_as_float((word & 15U << (4 * at)) | one) - (__uint_as_float(one) + zero);
    } else if constexpr (Code::kCode == DeviceCode::int8) {
      const std::uint32_t bits = __byte_perm(from[i / 4], 0x4B000000U, 0x7440U + static_cast<unsigned>(i % 4));
      to[i] = __uint_as_float(bits) - (0x1p23F + zero);
    } else if constexpr (Code::kCode == DeviceCode::f16) {
      const auto code = static_cast<unsigned short>(from[i / 2] >> (16 * (i % 2)));
      to[i] = __half2float(__ushort_as_half(code));
    } else if constexpr (Code::kCode == DeviceCode::f32) {
      to[i] = __uint_as_float(from[i]);
    } else {
      to[i] = decode_bf16(Code::decode(from, i, 0, 0));
    }
  }
}

// What a lane holds of a row: a piece of its codes and what scales them.
template <class Code>
struct HeldPiece {
  std::uint32_t words[4];
  std::uint32_t scales[Piece<Code>::kGroups];
  std::uint32_t zeros[Piece<Code>::kGroups];
};

template <class Code>
__device__ __forceinline__ void fetch(HeldPiece<Code>& held, const LinearMatrix& of, int padded, int row, int column) {
  using P = Piece<Code>;
  const MatrixArgs& matrix = of.matrix;
  const std::int64_t bits = (static_cast<std::int64_t>(row) * padded + column) * P::kBits;
  const uint4 four = __ldcs(reinterpret_cast<const uint4*>(of.weights + matrix.codes + bits / 8));
  held.words[0] = four.x;
  held.words[1] = four.y;
  held.words[2] = four.z;
  held.words[3] = four.w;
  if constexpr (P::kScaled) {
#pragma unroll
    for (int g = 0; g < P::kGroups; ++g) {
      const auto group = __umulhi(static_cast<unsigned>(column + 16 * g), of.reciprocal);
      const std::int64_t at = static_cast<std::int64_t>(row) * matrix.groups + group;
      if (matrix.scales != kAbsent) held.scales[g] = fetch_scale(of.scale, of.weights + matrix.scales, at);
      if (neutral_zero(Code::kCode) != 0 && matrix.zeros != kAbsent)
        held.zeros[g] = __ldg(of.weights + matrix.zeros + at);
    }
  }
}

// Four inputs from column `first` on, in the order of the matrix's columns; zeros behind the last.
__device__ __forceinline__ void load_inputs(float (&to)[4], const FewArgs& args, const std::int32_t* order, int cols,
                                            int token, int first) {
  const float* const row = args.x + static_cast<std::int64_t>(token) * cols;
  if (order == nullptr && args.whole_vectors && first + 4 <= cols) {
    const float4 four = *reinterpret_cast<const float4*>(row + first);
    to[0] = four.x;
    to[1] = four.y;
    to[2] = four.z;
    to[3] = four.w;
    return;
  }
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    const int k = first + i;
    to[i] = k < cols ? row[order != nullptr ? order[k] : k] : 0.0F;
  }
}

// What products of wide codes take of an input: the sum of its parts.
__device__ __forceinline__ float joined_parts(float value) {
  float sum = 0.0F;
#pragma unroll
  for (int part = 0; part < kSplitParts; ++part) sum += decode_bf16(split_part(value, part));
  return sum;
}

// kStep inputs of a token from column `first` on, as products take them: 16 bytes.
template <class Code>
__device__ __forceinline__ uint4 form_unit(const FewArgs& args, const std::int32_t* order, int cols, int token,
                                           int first) {
  if constexpr (Piece<Code>::kWide) {
    float values[4];
    load_inputs(values, args, order, cols, token, first);
    return make_uint4(__float_as_uint(joined_parts(values[0])), __float_as_uint(joined_parts(values[1])),
                      __float_as_uint(joined_parts(values[2])), __float_as_uint(joined_parts(values[3])));
  } else {
    std::uint32_t words[4];
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      float values[4];
      load_inputs(values, args, order, cols, token, first + 4 * half);
      words[2 * half] = split_part(values[0], 0) | static_cast<std::uint32_t>(split_part(values[1], 0)) << 16U;
      words[2 * half + 1] = split_part(values[2], 0) | static_cast<std::uint32_t>(split_part(values[3], 0)) << 16U;
    }
    return make_uint4(words[0], words[1], words[2], words[3]);
  }
}

// The same of inputs that are formed already.
template <class Code>
__device__ __forceinline__ uint4 read_unit(const FewArgs& args, int token, int first) {
  const std::uint16_t* const from = args.codes + static_cast<std::int64_t>(token) * args.padded + first;
  if constexpr (Piece<Code>::kWide) {
    float values[4] = {};
    for (int part = 0; part < input_parts(args.input); ++part) {
#pragma unroll
      for (int i = 0; i < 4; ++i) values[i] += decode_bf16(from[part * args.part_codes + i]);
    }
    return make_uint4(__float_as_uint(values[0]), __float_as_uint(values[1]), __float_as_uint(values[2]),
                      __float_as_uint(values[3]));
  } else {
    return *reinterpret_cast<const uint4*>(from);
  }
}

// Inputs of columns [first, first + columns), for each token and step of a piece those of all pieces in a row.
template <class Code, int kTokens>
__device__ __forceinline__ void stage(uint4* staged, const FewArgs& args, const LinearMatrix& of, int first,
                                      int columns, int first_token) {
  using P = Piece<Code>;
  const int units = columns / P::kStep;
  const int pieces = columns / P::kColumns;
  const std::uint64_t at = of.matrix.order;
  const auto* const order = at != kAbsent ? reinterpret_cast<const std::int32_t*>(of.weights + at) : nullptr;
  for (int t = 0; t < kTokens && first_token + t < args.tokens; ++t) {
    const int token = first_token + t;
    for (int unit = static_cast<int>(threadIdx.x); unit < units; unit += static_cast<int>(blockDim.x)) {
      const int column = first + P::kStep * unit;
      staged[(t * P::kSteps + unit % P::kSteps) * pieces + unit / P::kSteps] =
          args.x != nullptr ? form_unit<Code>(args, order, of.matrix.cols, token, column)
                            : read_unit<Code>(args, token, column);
    }
  }
}

template <class Code>
__device__ __forceinline__ void load_step(float (&to)[Piece<Code>::kStep], const uint4& from) {
  const std::uint32_t words[4] = {from.x, from.y, from.z, from.w};
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    if constexpr (Piece<Code>::kWide) {
      to[i] = __uint_as_float(words[i]);
    } else {
      to[2 * i] = __uint_as_float(words[i] << 16U);
      to[2 * i + 1] = __uint_as_float(words[i] & 0xFFFF0000U);
    }
  }
}

// Adds the products of one piece of each row. `staged`: the piece's first inputs, `stride`: to those of the next step.
template <class Code, int kTokens>
__device__ __forceinline__ void multiply(float (&sums)[kRows][kTokens], const HeldPiece<Code> (&held)[kRows],
                                         const FewArgs& args, const LinearMatrix& of, float global, const uint4* staged,
                                         int stride, int column, int first_token) {
  using P = Piece<Code>;
  const MatrixArgs& matrix = of.matrix;
#pragma unroll
  for (int g = 0; g < P::kGroups; ++g) {
    float part[kRows][kTokens] = {};
    float zero[kRows];
    float weight[kRows];
#pragma unroll
    for (int r = 0; r < kRows; ++r) {
      zero[r] = static_cast<float>(neutral_zero(Code::kCode));
      weight[r] = global;
      if constexpr (P::kScaled) {
        if (neutral_zero(Code::kCode) != 0 && matrix.zeros != kAbsent) zero[r] = static_cast<float>(held[r].zeros[g]);
        if (matrix.scales != kAbsent) weight[r] *= fetched_scale(of.scale, held[r].scales[g]);
      }
    }
#pragma unroll
    for (int s = 0; s < P::kSteps / P::kGroups; ++s) {
      const int step = g * (P::kSteps / P::kGroups) + s;
      float numbers[kRows][P::kStep];
#pragma unroll
      for (int r = 0; r < kRows; ++r) decode_step<Code>(numbers[r], held[r].words, step, zero[r]);
#pragma unroll
      for (int t = 0; t < kTokens; ++t) {
        float inputs[P::kStep];
        load_step<Code>(inputs, staged[(t * P::kSteps + step) * stride]);
#pragma unroll
        for (int r = 0; r < kRows; ++r) {
#pragma unroll
          for (int i = 0; i < P::kStep; ++i) part[r][t] = fmaf(numbers[r][i], inputs[i], part[r][t]);
        }
      }
    }
    const int group =
        args.input_group <= 0 ? 0 : __umulhi(static_cast<unsigned>(column + 16 * g), args.input_reciprocal);
#pragma unroll
    for (int t = 0; t < kTokens; ++t) {
      float input = 1.0F;
      if (args.input_group >= 0 && first_token + t < args.tokens)
        input = args.scales[static_cast<std::int64_t>(first_token + t) * args.input_groups + group];
#pragma unroll
      for (int r = 0; r < kRows; ++r) sums[r][t] += part[r][t] * (weight[r] * input);
    }
  }
}

// Grid: rows of one matrix after the other, kRows for each of a block's warps, less where warps share them; kTokens
// tokens.
template <class Code, int kTokens>
__global__ void __launch_bounds__(kMostThreads, kTokens > 4 ? 1 : 2)
    multiply_few(const __grid_constant__ FewArgs args) {
  using P = Piece<Code>;
  extern __shared__ uint4 staged[];
  __shared__ float shared_sums[kMostWarps][kRows][kTokens];
  allow_next_grid();
  const LinearMatrix& of = matrix_of_block(args.matrices, args.count, blockIdx.x);
  const MatrixArgs& matrix = of.matrix;
  const int warp = static_cast<int>(threadIdx.x) / 32;
  const int lane = static_cast<int>(threadIdx.x) % 32;
  const int share = warp % args.shares;
  const int teams = static_cast<int>(blockDim.x) / 32 / args.shares;
  const int first_row = ((static_cast<int>(blockIdx.x) - of.first_block) * teams + warp / args.shares) * kRows;
  const float global = __ldg(reinterpret_cast<const float*>(of.weights + matrix.global_scale));
  const int stride = 32 * args.shares;
  const int first_token = static_cast<int>(blockIdx.y) * kTokens;

  float sums[kRows][kTokens] = {};
  for (int first = 0; first < args.padded; first += args.staged) {
    const int columns = min(args.staged, args.padded - first);
    const int pieces = columns / P::kColumns;
    HeldPiece<Code> held[P::kAhead][kRows];
    const auto fetch_rows = [&](HeldPiece<Code>(&to)[kRows], int piece) {
      if (piece >= pieces) return;
#pragma unroll
      for (int r = 0; r < kRows; ++r)  // behind the last row that one again, for nothing
        fetch(to[r], of, args.padded, min(first_row + r, matrix.rows - 1), first + piece * P::kColumns);
    };
    const int mine = share * 32 + lane;
#pragma unroll
    for (int ahead = 0; ahead < P::kAhead; ++ahead) fetch_rows(held[ahead], mine + ahead * stride);
    if (first == 0) {
      wait_for_last_grid();
    } else {
      __syncthreads();
    }
    stage<Code, kTokens>(staged, args, of, first, columns, first_token);
    __syncthreads();
    for (int base = mine; base < pieces; base += P::kAhead * stride) {
#pragma unroll
      for (int ahead = 0; ahead < P::kAhead; ++ahead) {
        const int piece = base + ahead * stride;
        if (piece >= pieces) break;
        multiply<Code, kTokens>(sums, held[ahead], args, of, global, staged + piece, pieces,
                                first + piece * P::kColumns, first_token);
        fetch_rows(held[ahead], piece + P::kAhead * stride);
      }
    }
  }
#pragma unroll
  for (int r = 0; r < kRows; ++r) {
#pragma unroll
    for (int t = 0; t < kTokens; ++t) {
      for (int step = 16; step > 0; step /= 2) sums[r][t] += __shfl_xor_sync(~0U, sums[r][t], step);
      if (lane == 0) shared_sums[warp][r][t] = sums[r][t];
    }
  }
  __syncthreads();
  const int row = first_row + lane / kTokens;
  const int token = first_token + lane % kTokens;
  if (share != 0 || lane >= kRows * kTokens || row >= matrix.rows || token >= args.tokens) return;
  float sum = 0.0F;
  for (int other = 0; other < args.shares; ++other) sum += shared_sums[warp + other][lane / kTokens][lane % kTokens];
  if (matrix.bias != kAbsent) sum += reinterpret_cast<const float*>(of.weights + matrix.bias)[row];
  of.out[static_cast<std::int64_t>(token) * matrix.rows + row] = sum;
}

template <class Code, int kTokens>
void launch_tokens(const LinearArgs& linear, const FormedInputs& inputs, cudaStream_t stream) {
  using P = Piece<Code>;
  const MatrixArgs& first = linear.parts[0].matrix;
  int teams = 0;
  for (int part = 0; part < linear.count; ++part) teams += (linear.parts[part].matrix.rows + kRows - 1) / kRows;
  const int pieces = first.padded / P::kColumns;
  int shares = 1;
  while (shares < kMostShares && 2 * shares * teams <= kResidentWarps<P::kScaled> && pieces >= 64 * shares) shares *= 2;
  const int warps = teams * shares < 2 * kWantedWarps ? kMostWarps / 2 : kMostWarps;
  constexpr int kColumnBytes = kTokens * 16 / P::kStep;
  const int staged = std::min(first.padded, kStagedBytes / kColumnBytes / 512 * 512);
  FewArgs args{.matrices = {},
               .count = linear.count,
               .tokens = linear.tokens,
               .padded = first.padded,
               .shares = shares,
               .staged = staged,
               .input_group = inputs.group,
               .input_groups = inputs.groups,
               .input_reciprocal = inputs.group > 0 ? reciprocal(inputs.group) : 0,
               .input = linear.parts[0].pack.input,
               .x = inputs.formed ? nullptr : linear.x,
               .whole_vectors = first.cols % 4 == 0 && reinterpret_cast<std::uintptr_t>(linear.x) % 16 == 0,
               .codes = linear.x_codes,
               .scales = linear.x_scales,
               .part_codes = inputs.part_codes};
  const unsigned blocks = list_matrices(linear, kRows * warps / shares, args.matrices);
  launch_grid(multiply_few<Code, kTokens>,
              {.grid = dim3(blocks, grid_of(linear.tokens, kTokens)),
               .threads = static_cast<unsigned>(32 * warps),
               .shared = static_cast<std::size_t>(staged * kColumnBytes)},
              stream, args);
}

template <class Code>
void launch_code(const LinearArgs& linear, const FormedInputs& inputs, cudaStream_t stream) {
  if (linear.tokens == 1 || are_few_rows(linear)) return launch_tokens<Code, 1>(linear, inputs, stream);
  if (linear.tokens == 2) return launch_tokens<Code, 2>(linear, inputs, stream);
  return linear.tokens <= 4 ? launch_tokens<Code, 4>(linear, inputs, stream)
                            : launch_tokens<Code, kMostTokens>(linear, inputs, stream);
}

}  // namespace

bool are_few(const LinearArgs& linear) {
  return linear.tokens <= kMostTokens && linear.parts[0].matrix.padded <= kMostColumns;
}

bool are_few_rows(const LinearArgs& linear) {
  int rows = 0;
  for (int part = 0; part < linear.count; ++part) rows += linear.parts[part].matrix.rows;
  return rows <= kFewRows && linear.parts[0].matrix.padded <= kMostColumns;
}

void launch_few(const LinearArgs& linear, const FormedInputs& inputs, cudaStream_t stream) {
  switch (linear.parts[0].pack.code) {
    case DeviceCode::int4:
      return launch_code<Int4>(linear, inputs, stream);
    case DeviceCode::int8:
      return launch_code<Int8>(linear, inputs, stream);
    case DeviceCode::e2m1:
      return launch_code<E2m1>(linear, inputs, stream);
    case DeviceCode::e4m3:
      return launch_code<E4m3>(linear, inputs, stream);
    case DeviceCode::bf16:
      return launch_code<Bf16>(linear, inputs, stream);
    case DeviceCode::f16:
      return launch_code<F16>(linear, inputs, stream);
    case DeviceCode::f32:
      break;
  }
  return launch_code<F32>(linear, inputs, stream);
}

}  // namespace moracle::cuda
