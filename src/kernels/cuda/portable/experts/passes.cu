// The steps around the GEMMs: pairs sorted by expert, inputs in the form that the weights multiply, the weighted sum.
#include "kernels/cuda/common/launch.h"
#include "kernels/cuda/common/linear/order.h"
#include "kernels/cuda/common/ops/block.cuh"
#include "kernels/cuda/portable/experts/gemm.cuh"
#include "kernels/cuda/portable/experts/tiles.h"

namespace moracle::cuda {

namespace {

constexpr int kThreads = 256;
constexpr int kTileThreads = 1024;
constexpr int kWarps = kThreads / 32;
// Tokens from which on a linear's inputs are worth a launch of their own.
constexpr int kLeastTiled = 2;

// Sum over the block; every thread gets it.
__device__ int block_sum(int value) {
  __shared__ int sums[kWarps];
  for (int step = 16; step > 0; step /= 2) value += __shfl_xor_sync(~0U, value, step);
  __syncthreads();
  if (threadIdx.x % 32 == 0) sums[threadIdx.x / 32] = value;
  __syncthreads();
  int total = 0;
  for (int warp = 0; warp < kWarps; ++warp) total += sums[warp];
  return total;
}

// One block an expert: its pairs, tokens ascending, behind those of the experts before it.
__global__ void __launch_bounds__(kThreads) sort_pairs(const __grid_constant__ ExpertsArgs args) {
  const int expert = static_cast<int>(blockIdx.x);
  const int total = args.routed.tokens * args.routed.top_k;
  int before = 0;
  int own = 0;
  for (int slot = static_cast<int>(threadIdx.x); slot < total; slot += kThreads) {
    const int id = args.routed.ids[slot];
    before += id >= 0 && id < expert ? 1 : 0;
    own += id == expert ? 1 : 0;
    if (expert == 0 && (id < 0 || id >= args.routed.experts)) args.routed.inverse[slot] = -1;
  }
  before = block_sum(before);
  own = block_sum(own);
  if (threadIdx.x == 0) {
    args.routed.offsets[expert] = before;
    if (expert + 1 == args.routed.experts) args.routed.offsets[args.routed.experts] = before + own;
  }
  if (own == 0) return;
  __shared__ int in_warps[kWarps];
  const int warp = static_cast<int>(threadIdx.x) / 32;
  const unsigned below = (1U << threadIdx.x % 32) - 1U;
  int next = before;
  for (int first = 0; first < total; first += kThreads) {
    const int slot = first + static_cast<int>(threadIdx.x);
    const bool mine = slot < total && args.routed.ids[slot] == expert;
    const unsigned votes = __ballot_sync(~0U, mine);
    __syncthreads();
    if (threadIdx.x % 32 == 0) in_warps[warp] = __popc(votes);
    __syncthreads();
    int at = next + __popc(votes & below);
    for (int i = 0; i < kWarps; ++i) {
      at += i < warp ? in_warps[i] : 0;
      next += in_warps[i];
    }
    if (!mine) continue;
    args.routed.pairs[at] = slot;
    args.routed.inverse[slot] = at;
  }
}

// One block: every expert's pairs in tiles of `rows`. A thread has experts in a row.
__global__ void __launch_bounds__(kTileThreads) list_tiles(const __grid_constant__ ExpertsArgs args, int rows) {
  constexpr int kOwn = kMostExperts / kTileThreads;
  __shared__ int sums[kTileThreads / 32];
  const auto thread = static_cast<int>(threadIdx.x);
  const int own = (args.routed.experts + kTileThreads - 1) / kTileThreads;
  int offsets[kOwn + 1];
  int tiles[kOwn];
  int all = 0;
#pragma unroll
  for (int i = 0; i <= kOwn; ++i)
    offsets[i] = i <= own ? args.routed.offsets[min(thread * own + i, args.routed.experts)] : 0;
#pragma unroll
  for (int i = 0; i < kOwn; ++i) {
    tiles[i] = i < own ? (offsets[i + 1] - offsets[i] + rows - 1) / rows : 0;
    all += tiles[i];
  }
  int end = all;  // of this thread's, over its warp and those before
  for (int step = 1; step < 32; step *= 2) {
    const int before = __shfl_up_sync(~0U, end, step);
    if (thread % 32 >= step) end += before;
  }
  if (thread % 32 == 31) sums[thread / 32] = end;
  __syncthreads();
  for (int warp = 0; warp < kTileThreads / 32; ++warp) end += warp < thread / 32 ? sums[warp] : 0;
  if (thread + 1 == kTileThreads) args.tiles[0] = end;
  int at = end - all;
#pragma unroll
  for (int i = 0; i < kOwn; ++i) {
    for (int tile = 0; tile < tiles[i]; ++tile, ++at) {
      args.tiles[1 + 2 * at] = thread * own + i;
      args.tiles[2 + 2 * at] = offsets[i] + tile * rows;
    }
  }
}

// Rows of f32 inputs in the form that a matrix multiplies.
struct InputArgs {
  PackArgs pack;
  MatrixArgs matrix;
  const float* from;            // [rows, cols]
  const std::int32_t* pairs;    // null: rows are inputs of expert 0
  const std::int32_t* offsets;  // the last one counts the pairs
  const std::int32_t* ids;
  std::int32_t experts;
  std::int32_t top_k;  // 0: a pair's row is its own, else its token's
  std::uint16_t* codes;
  float* scales;
  std::int64_t part_codes;
  InputOrder order;
};

__global__ void __launch_bounds__(kThreads) form_inputs(const __grid_constant__ InputArgs args) {
  allow_next_grid();
  const std::int64_t row = blockIdx.x;
  std::int64_t source = row;
  std::int64_t expert = 0;
  if (args.pairs != nullptr) {
    if (row >= args.offsets[args.experts]) return;
    const int pair = args.pairs[row];
    expert = args.ids[pair];
    if (args.top_k > 0) source = pair / args.top_k;
  }
  const MatrixArgs& matrix = args.matrix;
  const std::uint8_t* const weights = args.pack.weights + expert * args.pack.expert_bytes;
  const float stored = *reinterpret_cast<const float*>(weights + matrix.input_scale);
  const auto* const order =
      matrix.order != kAbsent ? reinterpret_cast<const std::int32_t*>(weights + matrix.order) : nullptr;
  const float* const from = args.from + source * matrix.cols;
  std::uint16_t* const to = args.codes + row * matrix.padded;
  const InputKind kind = args.pack.input;
  const auto value = [&](int k) { return k >= matrix.cols ? 0.0F : from[order != nullptr ? order[k] : k]; };
  const auto place = [&](int k) { return placed_column(args.order, k); };
  const int group = input_group(kind);
  if (group < 0) {
    for (int part = 0; part < input_parts(kind); ++part) {
      for (int k = static_cast<int>(threadIdx.x); k < matrix.padded; k += kThreads)
        to[part * args.part_codes + place(k)] = split_part(value(k), part);
    }
    return;
  }
  if (group == 0) {
    float most = 0.0F;
    for (int k = static_cast<int>(threadIdx.x); k < matrix.cols; k += kThreads) most = fmaxf(most, fabsf(value(k)));
    const InputScale scale = input_scale(kind, row_max<kThreads>(most), stored);
    for (int k = static_cast<int>(threadIdx.x); k < matrix.padded; k += kThreads)
      to[place(k)] = input_code(kind, value(k), scale);
    if (threadIdx.x == 0) args.scales[row] = scale.scale;
    return;
  }
  const int groups = input_groups(kind, matrix.padded);
  const int lane = static_cast<int>(threadIdx.x) % 32;
  for (int g = static_cast<int>(threadIdx.x) / 32; g < groups; g += kWarps) {
    const int end = min((g + 1) * group, matrix.padded);
    float most = 0.0F;
    for (int k = g * group + lane; k < end; k += 32) most = fmaxf(most, fabsf(value(k)));
    for (int step = 16; step > 0; step /= 2) most = fmaxf(most, __shfl_xor_sync(~0U, most, step));
    const InputScale scale = input_scale(kind, most, stored);
    for (int k = g * group + lane; k < end; k += 32) to[place(k)] = input_code(kind, value(k), scale);
    if (lane == 0) args.scales[row * groups + g] = scale.scale;
  }
}

// Blocks (columns, token): a token's choices in their order. A thread takes kWide neighbours.
template <int kWide>
__global__ void __launch_bounds__(kThreads) combine(const __grid_constant__ ExpertsArgs args) {
  constexpr int kMostChoices = 64;
  __shared__ std::int32_t places[kMostChoices];
  __shared__ float weights[kMostChoices];
  const std::int64_t token = blockIdx.y;
  const int hidden = args.routed.down.rows;
  const int top_k = args.routed.top_k;
  const int column = kWide * static_cast<int>(blockIdx.x * kThreads + threadIdx.x);
  float sums[kWide] = {};
  for (int first = 0; first < top_k; first += kMostChoices) {
    const int choices = min(kMostChoices, top_k - first);
    __syncthreads();
    if (static_cast<int>(threadIdx.x) < choices) {
      const std::int64_t slot = token * top_k + first + threadIdx.x;
      places[threadIdx.x] = args.routed.inverse[slot];
      weights[threadIdx.x] = args.routed.weights[slot];
    }
    __syncthreads();
    if (column >= hidden) continue;
#pragma unroll 8
    for (int choice = 0; choice < choices; ++choice) {
      if (places[choice] < 0) continue;
      const float* const from = args.y + static_cast<std::int64_t>(places[choice]) * hidden + column;
      if constexpr (kWide == 4) {
        const float4 four = *reinterpret_cast<const float4*>(from);
        sums[0] += weights[choice] * four.x;
        sums[1] += weights[choice] * four.y;
        sums[2] += weights[choice] * four.z;
        sums[3] += weights[choice] * four.w;
      } else {
        sums[0] += weights[choice] * *from;
      }
    }
  }
  if (column >= hidden) return;
#pragma unroll
  for (int i = 0; i < kWide; ++i) args.routed.out[token * hidden + column + i] = sums[i];
}

int launch_combine(const ExpertsArgs& args, cudaStream_t stream) {
  const int hidden = args.routed.down.rows;
  const int wide = hidden % 4 == 0 ? 4 : 1;
  const dim3 grid(grid_of(hidden, wide * kThreads), static_cast<unsigned>(args.routed.tokens));
  wide == 4 ? combine<4><<<grid, kThreads, 0, stream>>>(args) : combine<1><<<grid, kThreads, 0, stream>>>(args);
  return cudaGetLastError();
}

void launch_gemm(const GemmArgs& args, bool gated, int row_tiles, cudaStream_t stream) {
  switch (args.pack.code) {
    case DeviceCode::int4:
      return launch_gemm_int4(args, gated, row_tiles, stream);
    case DeviceCode::int8:
      return launch_gemm_int8(args, gated, row_tiles, stream);
    case DeviceCode::e2m1:
      return launch_gemm_e2m1(args, gated, row_tiles, stream);
    case DeviceCode::e4m3:
      return launch_gemm_e4m3(args, gated, row_tiles, stream);
    case DeviceCode::bf16:
      return launch_gemm_bf16(args, gated, row_tiles, stream);
    case DeviceCode::f16:
      return launch_gemm_f16(args, gated, row_tiles, stream);
    case DeviceCode::f32:
      return launch_gemm_f32(args, gated, row_tiles, stream);
  }
}

// Whether inputs have the same form for both.
bool share_form(const LinearPart& a, const LinearPart& b) {
  return !has_stored_scale(a.pack.input) && a.matrix.order == kAbsent && b.matrix.order == kAbsent;
}

// Inputs of the first matrix.
int form_inputs_of(const LinearArgs& args, const InputOrder& order, cudaStream_t stream) {
  const LinearPart& part = args.parts[0];
  if (can_round(args)) {
    return launch_rounding({.x = args.x,
                            .codes = args.x_codes,
                            .rows = args.tokens,
                            .cols = part.matrix.cols,
                            .padded = part.matrix.padded,
                            .order = order},
                           stream);
  }
  const InputArgs inputs{.pack = part.pack,
                         .matrix = part.matrix,
                         .from = args.x,
                         .pairs = nullptr,
                         .offsets = nullptr,
                         .ids = nullptr,
                         .experts = 1,
                         .top_k = 0,
                         .codes = args.x_codes,
                         .scales = args.x_scales,
                         .part_codes = static_cast<std::int64_t>(args.tokens) * part.matrix.padded,
                         .order = order};
  form_inputs<<<static_cast<unsigned>(args.tokens), kThreads, 0, stream>>>(inputs);
  return cudaGetLastError();
}

// Whether a row's numbers are rounded to bf16 and no more, in the order in which they are made.
bool rounds_alone(const PackArgs& pack, const MatrixArgs& matrix) {
  return pack.input == InputKind::bf16 && matrix.order == kAbsent && matrix.padded == matrix.cols;
}

void launch_one_gemm(const LinearArgs& args, cudaStream_t stream) {
  const LinearPart& part = args.parts[0];
  const InputKind kind = part.pack.input;
  const GemmArgs gemm{.pack = part.pack,
                      .slots = {part.matrix, part.matrix},
                      .gate = {},
                      .tiles = nullptr,
                      .offsets = nullptr,
                      .pairs = nullptr,
                      .top_k = 0,
                      .rows = args.tokens,
                      .codes = args.x_codes,
                      .scales = args.x_scales,
                      .plane_codes = 0,
                      .plane_scales = 0,
                      .part_codes = static_cast<std::int64_t>(args.tokens) * part.matrix.padded,
                      .input_group = input_group(kind),
                      .input_groups = input_groups(kind, part.matrix.padded),
                      .out = part.y};
  launch_gemm(gemm, false, (args.tokens + kPairTileRows - 1) / kPairTileRows, stream);
}

}  // namespace

int launch(const ExpertsArgs& args, cudaStream_t stream) {
  if (args.routed.tokens == 0) return cudaSuccess;
  const RoutedExperts& routed = args.routed;
  const int pairs = routed.tokens * routed.top_k;
  const bool tiled = takes_expert_tiles(routed);
  // Of experts with few pairs on average tiles are small: more blocks read weights at once.
  const bool few = tiled && routed.batch_invariant == 0 && pairs <= kFewTileRows * routed.experts;
  const int tile_rows = few ? kFewTileRows : kPairTileRows;
  const int row_tiles = static_cast<int>(most_tiles(pairs, routed.experts, tile_rows));
  const auto blocks = [](int count) { return static_cast<unsigned>(count); };
  const InputKind kind = routed.pack.input;
  const InputOrder order{.nibbles = tiled && bits_of(routed.pack.code) == 4};
  sort_pairs<<<blocks(routed.experts), kThreads, 0, stream>>>(args);
  list_tiles<<<1, kTileThreads, 0, stream>>>(args, tile_rows);
  // The layer's input, once for each form.
  const int x_rows = routed.input_variants == 0 ? routed.tokens : pairs;
  const int x_groups = input_groups(kind, routed.gate.padded);
  const std::int64_t x_part = static_cast<std::int64_t>(x_rows) * routed.gate.padded;
  const std::int64_t x_plane = x_part * input_parts(kind);
  const std::int64_t x_plane_scales = static_cast<std::int64_t>(x_rows) * x_groups;
  InputArgs inputs{.pack = routed.pack,
                   .matrix = routed.gate,
                   .from = routed.x,
                   .pairs = routed.input_variants == 0 ? nullptr : routed.pairs,
                   .offsets = routed.offsets,
                   .ids = routed.ids,
                   .experts = routed.experts,
                   .top_k = routed.top_k,
                   .codes = args.x_codes,
                   .scales = args.x_scales,
                   .part_codes = x_part,
                   .order = order};
  const RoundedInputs plain{.x = routed.x,
                            .codes = args.x_codes,
                            .rows = x_rows,
                            .cols = routed.gate.cols,
                            .padded = routed.gate.padded,
                            .order = order};
  if (kind == InputKind::bf16 && routed.input_variants == 0 && can_round(plain)) {
    if (const int error = launch_rounding(plain, stream); error != cudaSuccess) return error;
  } else {
    form_inputs<<<blocks(x_rows), kThreads, 0, stream>>>(inputs);
  }
  if (routed.input_variants == 2) {
    inputs.matrix = routed.up;
    inputs.codes += x_plane;
    inputs.scales += x_plane_scales;
    form_inputs<<<blocks(x_rows), kThreads, 0, stream>>>(inputs);
  }
  GemmArgs gemm{.pack = routed.pack,
                .slots = {routed.gate, routed.up},
                .gate = routed.activation,
                .tiles = args.tiles,
                .offsets = routed.offsets,
                .pairs = routed.input_variants == 0 ? routed.pairs : nullptr,
                .top_k = routed.top_k,
                .rows = 0,
                .codes = args.x_codes,
                .scales = args.x_scales,
                .plane_codes = routed.input_variants == 2 ? x_plane : 0,
                .plane_scales = routed.input_variants == 2 ? x_plane_scales : 0,
                .part_codes = x_part,
                .input_group = input_group(kind),
                .input_groups = x_groups,
                .out = args.h};
  // Rows that are rounded alone are rounded where they are made.
  const bool rounded = tiled && rounds_alone(routed.pack, routed.down);
  const auto multiply = [&](bool is_gated) {
    if (tiled)
      return launch_expert_tiles(gemm, is_gated, tile_rows, row_tiles, is_gated && rounded ? args.h_codes : nullptr,
                                 routed.down.padded, stream);
    launch_gemm(gemm, is_gated, row_tiles, stream);
    return static_cast<int>(cudaGetLastError());
  };
  if (const int error = multiply(true); error != cudaSuccess) return error;
  const std::int64_t h_part = static_cast<std::int64_t>(pairs) * routed.down.padded;
  if (!rounded) {
    inputs.matrix = routed.down;
    inputs.from = args.h;
    inputs.pairs = routed.pairs;
    inputs.top_k = 0;
    inputs.codes = args.h_codes;
    inputs.scales = args.h_scales;
    inputs.part_codes = h_part;
    form_inputs<<<blocks(pairs), kThreads, 0, stream>>>(inputs);
  }
  gemm.slots[0] = routed.down;
  gemm.slots[1] = routed.down;
  gemm.pairs = nullptr;
  gemm.codes = args.h_codes;
  gemm.scales = args.h_scales;
  gemm.plane_codes = 0;
  gemm.plane_scales = 0;
  gemm.part_codes = h_part;
  gemm.input_groups = input_groups(kind, routed.down.padded);
  gemm.out = args.y;
  if (const int error = multiply(false); error != cudaSuccess) return error;
  return launch_combine(args, stream);
}

int launch(const LinearArgs& args, cudaStream_t stream) {
  if (args.tokens == 0) return cudaSuccess;
  const LinearPart& first = args.parts[0];
  const InputKind kind = first.pack.input;
  const FormedInputs formed{.formed = true,
                            .part_codes = static_cast<std::int64_t>(args.tokens) * first.matrix.padded,
                            .group = input_group(kind),
                            .groups = input_groups(kind, first.matrix.padded)};
  const bool narrow = are_few_rows(args);
  const bool tiled = !narrow && (args.batch_invariant != 0 || args.tokens >= kLeastTiled) && are_tiled(args, formed);
  const bool few = narrow || (!tiled && args.batch_invariant == 0 && are_few(args));
  if (few && formed.group < 0) {
    launch_few(args, {.formed = false, .group = -1}, stream);
    return cudaGetLastError();
  }
  if (tiled && args.batch_invariant == 0 && args.tokens <= kMostRounded && can_round(args)) {
    const int error = launch_tiles(args, {.formed = false, .group = -1}, stream);
    return error != cudaSuccess ? error : cudaGetLastError();
  }
  const bool products = tiled && are_products(args);
  bool shared = true;
  for (int part = 1; part < args.count; ++part) shared = shared && share_form(first, args.parts[part]);
  const int bits = bits_of(first.pack.code);
  const InputOrder order{.nibbles = tiled && bits == 4, .fragments = products && bits < 16};
  const auto launch_formed = [&](const LinearArgs& linear) {
    if (products) return launch_products(linear, formed, stream);
    if (tiled) return launch_tiles(linear, formed, stream);
    few ? launch_few(linear, formed, stream) : launch_one_gemm(linear, stream);
    return static_cast<int>(cudaSuccess);
  };
  const bool together = shared && (tiled || few);
  int error = cudaSuccess;
  for (int part = 0; part < args.count && error == cudaSuccess; part += together ? args.count : 1) {
    LinearArgs one = args;
    if (!together) {
      one.parts[0] = args.parts[part];
      one.count = 1;
    }
    if (part == 0 || !shared) error = form_inputs_of(one, order, stream);
    if (error == cudaSuccess) error = launch_formed(one);
  }
  return error != cudaSuccess ? error : cudaGetLastError();
}

}  // namespace moracle::cuda
