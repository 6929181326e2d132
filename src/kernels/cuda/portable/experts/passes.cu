// The steps around the GEMMs: pairs sorted by expert, inputs in the form that the weights multiply, the weighted sum.
#include "kernels/cuda/common/launch.h"
#include "kernels/cuda/common/linear/order.h"
#include "kernels/cuda/common/ops/block.cuh"
#include "kernels/cuda/portable/experts/gemm.cuh"

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

// One block: every expert's pairs in tiles.
__global__ void __launch_bounds__(kTileThreads) list_tiles(const __grid_constant__ ExpertsArgs args) {
  __shared__ int offsets[kMostExperts + 1];
  for (int e = static_cast<int>(threadIdx.x); e <= args.routed.experts; e += kTileThreads)
    offsets[e] = args.routed.offsets[e];
  __syncthreads();
  const auto tiles_of = [&](int e) { return (offsets[e + 1] - offsets[e] + kPairTileRows - 1) / kPairTileRows; };
  for (int e = static_cast<int>(threadIdx.x); e < args.routed.experts; e += kTileThreads) {
    int at = 0;
    for (int other = 0; other < e; ++other) at += tiles_of(other);
    const int tiles = tiles_of(e);
    for (int i = 0; i < tiles; ++i) {
      args.tiles[1 + 2 * (at + i)] = e;
      args.tiles[2 + 2 * (at + i)] = offsets[e] + i * kPairTileRows;
    }
    if (e + 1 == args.routed.experts) args.tiles[0] = at + tiles;
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
  cudaTriggerProgrammaticLaunchCompletion();
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

// One block a token: its choices in their order.
__global__ void __launch_bounds__(kThreads) combine(const __grid_constant__ ExpertsArgs args) {
  const std::int64_t token = blockIdx.x;
  const int hidden = args.routed.down.rows;
  for (int k = static_cast<int>(threadIdx.x); k < hidden; k += kThreads) {
    float sum = 0.0F;
    for (int choice = 0; choice < args.routed.top_k; ++choice) {
      const std::int64_t slot = token * args.routed.top_k + choice;
      const std::int64_t at = args.routed.inverse[slot];
      if (at >= 0) sum += args.routed.weights[slot] * args.y[at * hidden + k];
    }
    args.routed.out[token * hidden + k] = sum;
  }
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
  if (can_round(args)) return launch_rounding(args, order, stream);
  form_inputs<<<static_cast<unsigned>(args.tokens), kThreads, 0, stream>>>(inputs);
  return cudaGetLastError();
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
  const int pairs = args.routed.tokens * args.routed.top_k;
  const int row_tiles = static_cast<int>(most_tiles(pairs, args.routed.experts));
  const auto blocks = [](int count) { return static_cast<unsigned>(count); };
  const InputKind kind = args.routed.pack.input;
  sort_pairs<<<blocks(args.routed.experts), kThreads, 0, stream>>>(args);
  list_tiles<<<1, kTileThreads, 0, stream>>>(args);
  // The layer's input, once for each form.
  const int x_rows = args.routed.input_variants == 0 ? args.routed.tokens : pairs;
  const int x_groups = input_groups(kind, args.routed.gate.padded);
  const std::int64_t x_part = static_cast<std::int64_t>(x_rows) * args.routed.gate.padded;
  const std::int64_t x_plane = x_part * input_parts(kind);
  const std::int64_t x_plane_scales = static_cast<std::int64_t>(x_rows) * x_groups;
  InputArgs inputs{.pack = args.routed.pack,
                   .matrix = args.routed.gate,
                   .from = args.routed.x,
                   .pairs = args.routed.input_variants == 0 ? nullptr : args.routed.pairs,
                   .offsets = args.routed.offsets,
                   .ids = args.routed.ids,
                   .experts = args.routed.experts,
                   .top_k = args.routed.top_k,
                   .codes = args.x_codes,
                   .scales = args.x_scales,
                   .part_codes = x_part,
                   .order = {}};
  form_inputs<<<blocks(x_rows), kThreads, 0, stream>>>(inputs);
  if (args.routed.input_variants == 2) {
    inputs.matrix = args.routed.up;
    inputs.codes += x_plane;
    inputs.scales += x_plane_scales;
    form_inputs<<<blocks(x_rows), kThreads, 0, stream>>>(inputs);
  }
  GemmArgs gemm{.pack = args.routed.pack,
                .slots = {args.routed.gate, args.routed.up},
                .gate = args.routed.activation,
                .tiles = args.tiles,
                .offsets = args.routed.offsets,
                .pairs = args.routed.input_variants == 0 ? args.routed.pairs : nullptr,
                .top_k = args.routed.top_k,
                .rows = 0,
                .codes = args.x_codes,
                .scales = args.x_scales,
                .plane_codes = args.routed.input_variants == 2 ? x_plane : 0,
                .plane_scales = args.routed.input_variants == 2 ? x_plane_scales : 0,
                .part_codes = x_part,
                .input_group = input_group(kind),
                .input_groups = x_groups,
                .out = args.h};
  launch_gemm(gemm, true, row_tiles, stream);
  const std::int64_t h_part = static_cast<std::int64_t>(pairs) * args.routed.down.padded;
  inputs.matrix = args.routed.down;
  inputs.from = args.h;
  inputs.pairs = args.routed.pairs;
  inputs.top_k = 0;
  inputs.codes = args.h_codes;
  inputs.scales = args.h_scales;
  inputs.part_codes = h_part;
  form_inputs<<<blocks(pairs), kThreads, 0, stream>>>(inputs);
  gemm.slots[0] = args.routed.down;
  gemm.slots[1] = args.routed.down;
  gemm.pairs = nullptr;
  gemm.codes = args.h_codes;
  gemm.scales = args.h_scales;
  gemm.plane_codes = 0;
  gemm.plane_scales = 0;
  gemm.part_codes = h_part;
  gemm.input_groups = input_groups(kind, args.routed.down.padded);
  gemm.out = args.y;
  launch_gemm(gemm, false, row_tiles, stream);
  combine<<<blocks(args.routed.tokens), kThreads, 0, stream>>>(args);
  return cudaGetLastError();
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
    const int error = launch_tiles(args, {.formed = false, .group = -1}, false, stream);
    return error != cudaSuccess ? error : cudaGetLastError();
  }
  const bool products = tiled && are_products(args);
  bool shared = true;
  for (int part = 1; part < args.count; ++part) shared = shared && share_form(first, args.parts[part]);
  const int bits = bits_of(first.pack.code);
  const InputOrder order{.nibbles = tiled && bits == 4, .fragments = products && bits < 16};
  const auto launch_formed = [&](const LinearArgs& linear) {
    if (tiled) return launch_tiles(linear, formed, products, stream);
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
