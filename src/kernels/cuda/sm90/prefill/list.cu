// The steps around grouped products: inputs in bf16 or bytes, rows sorted by expert and listed in tiles, the weighted
// sum.
#include "kernels/cuda/sm90/prefill/list.cuh"

#include <limits>

#include "kernels/cuda/common/grid.cuh"
#include "kernels/cuda/common/launch.h"
#include "kernels/cuda/common/mma.cuh"
#include "kernels/cuda/common/tile_layout.h"
#include "kernels/cuda/sm90/prefill/inputs.cuh"
#include "kernels/cuda/sm90/prefill/launch.cuh"
#include "kernels/cuda/sm90/ptx.cuh"
#include "kernels/cuda/sm90/tensor_map.h"

namespace moracle::cuda {

namespace {

constexpr int kThreads = 256;
// Rows an expert, on average, up to which decoding takes longer than products.
constexpr int kFewRows = 48;
constexpr int kListThreads = kDecodeExperts;
// Pairs up to which one block lists them.
constexpr int kFewPairs = 8192;
constexpr int kWidths = kMostTileRows / kWidthStep;

__device__ __forceinline__ int expert_of(const StreamedExpertsArgs& args, int pair) {
  const int id = __ldg(args.routed.ids + pair);
  return id >= 0 && id < args.routed.experts ? id : -1;
}

// By a block: the pairs [begin, end) with their experts, -1 for none. Those of eight rounds are loaded at once.
template <class Take>
__device__ __forceinline__ void for_each_pair(const StreamedExpertsArgs& args, int begin, int end, Take take) {
  constexpr int kRounds = 8;
  for (int first = begin + static_cast<int>(threadIdx.x); first < end; first += kRounds * kListThreads) {
    int experts[kRounds];
#pragma unroll
    for (int i = 0; i < kRounds; ++i) {
      const int pair = first + i * kListThreads;
      experts[i] = pair < end ? expert_of(args, pair) : -1;
    }
#pragma unroll
    for (int i = 0; i < kRounds; ++i) {
      const int pair = first + i * kListThreads;
      if (pair < end) take(pair, experts[i]);
    }
  }
}

// By a block: how many of the pairs [begin, end) each expert has.
__device__ __forceinline__ void count_pairs(const StreamedExpertsArgs& args, int begin, int end, int* counts) {
  for (int e = static_cast<int>(threadIdx.x); e < args.routed.experts; e += kListThreads) counts[e] = 0;
  __syncthreads();
  for_each_pair(args, begin, end, [&](int, int e) {
    if (e >= 0) atomicAdd(&counts[e], 1);
  });
  __syncthreads();
}

// By kListThreads, an expert each, which has `rows`: where its rows begin, and the tiles, the widest first.
__device__ __forceinline__ int list_rows(const StreamedExpertsArgs& args, int rows, int most_rows) {
  __shared__ int warps[kListThreads / 32];
  __shared__ int of_width[kWidths];
  const int e = static_cast<int>(threadIdx.x);
  const int lane = e % 32;
  if (e < kWidths) of_width[e] = 0;
  int through = rows;
#pragma unroll
  for (int step = 1; step < 32; step *= 2) {
    const int before = __shfl_up_sync(0xFFFFFFFFU, through, step);
    if (lane >= step) through += before;
  }
  if (lane == 31) warps[e / 32] = through;
  __syncthreads();
  int first = through - rows;
  for (int warp = 0; warp < e / 32; ++warp) first += warps[warp];
  // An expert's rows in as few tiles as can be, of one width or, the first ones, a step wider.
  const int tiles = (rows + most_rows - 1) / most_rows;
  const int steps = (rows + kWidthStep - 1) / kWidthStep;
  const int narrow = tiles == 0 ? 0 : steps / tiles;  // steps
  const int wider = tiles == 0 ? 0 : steps % tiles;   // tiles
  // Where tiles of one width stand among them is left to chance, which no bit depends on.
  const int at_narrow = kWidths - narrow;
  int place = tiles > 0 ? atomicAdd(&of_width[at_narrow], tiles - wider) : 0;
  int wide_place = wider > 0 ? atomicAdd(&of_width[at_narrow - 1], wider) : 0;
  __syncthreads();
  for (int w = 0; w < kWidths; ++w) {
    if (w < at_narrow) place += of_width[w];
    if (w < at_narrow - 1) wide_place += of_width[w];
  }
  auto* const list = reinterpret_cast<RowTile*>(args.tiles + 4);
  int before = 0;
  for (int i = 0; i < tiles; ++i) {
    const int width = (i < wider ? narrow + 1 : narrow) * kWidthStep;
    list[i < wider ? wide_place + i : place + i - wider] = {e, first + before, min(width, rows - before), width};
    before += width;
  }
  if (e < args.routed.experts) args.routed.offsets[e] = first;
  if (e + 1 == args.routed.experts) args.routed.offsets[e + 1] = first + rows;
  if (e == 0) {
    int all = 0;
    for (int w = 0; w < kWidths; ++w) all += of_width[w];
    args.tiles[0] = all;
  }
  return first;
}

// By a block: a row for each of the pairs [begin, end); `next` has each expert's next one. Rows of an expert are in no
// order, which no bit depends on.
__device__ __forceinline__ void place_rows(const StreamedExpertsArgs& args, int begin, int end, int* next) {
  for_each_pair(args, begin, end, [&](int pair, int e) {
    const int row = e >= 0 ? atomicAdd(&next[e], 1) : -1;
    args.routed.inverse[pair] = row;
    if (row >= 0) args.routed.pairs[row] = pair;
  });
}

// By a block: one row's inputs, or those of a row for each warp, whose maxima none waits for.
template <bool kByWarps>
__device__ __forceinline__ void form_rows(const StreamedExpertsArgs& args, const QuantizeArgs& inputs, int block) {
  if constexpr (kByWarps) {
    const int row = block * (kListThreads / 32) + static_cast<int>(threadIdx.x) / 32;
    if (row < args.routed.tokens) quantize_row<32>(inputs, row);
    return;
  }
  const int row = block;
  if (args.routed.pack.input != InputKind::bf16) return quantize_row<kListThreads>(inputs, row);
  permute_row(args.routed.x + static_cast<std::int64_t>(row) * args.routed.gate.cols,
              args.x_codes + static_cast<std::int64_t>(row) * args.routed.gate.cols, args.routed.gate.cols,
              inputs.factor);
}

// The first block: rows of all pairs and their tiles. The others: a token's inputs each.
__global__ void __launch_bounds__(kListThreads)
    prepare_few(const __grid_constant__ StreamedExpertsArgs args, const __grid_constant__ QuantizeArgs inputs,
                int most_rows) {
  allow_next_grid();
  wait_for_last_grid();
  if (blockIdx.x > 0) return form_rows<false>(args, inputs, static_cast<int>(blockIdx.x) - 1);
  __shared__ int counts[kDecodeExperts];
  const int e = static_cast<int>(threadIdx.x);
  const int pairs = args.routed.tokens * args.routed.top_k;
  count_pairs(args, 0, pairs, counts);
  const int first = list_rows(args, e < args.routed.experts ? counts[e] : 0, most_rows);
  counts[e] = first;
  __syncthreads();
  place_rows(args, 0, pairs, counts);
}

// The same in three steps. The first `forming` blocks: inputs. The others: counts of a share.
template <bool kByWarps>
__global__ void __launch_bounds__(kListThreads) prepare(const __grid_constant__ StreamedExpertsArgs args,
                                                        const __grid_constant__ QuantizeArgs inputs, int forming) {
  const int block = static_cast<int>(blockIdx.x);
  if (block < forming) return form_rows<kByWarps>(args, inputs, block);
  __shared__ int counts[kDecodeExperts];
  const int share = block - forming;
  const int begin = share * kPairsAShare;
  count_pairs(args, begin, min(args.routed.tokens * args.routed.top_k, begin + kPairsAShare), counts);
  for (int e = static_cast<int>(threadIdx.x); e < args.routed.experts; e += kListThreads)
    args.counts[share * args.routed.experts + e] = counts[e];
}
// One block: where each share's part of an expert's rows begins as well.
__global__ void __launch_bounds__(kListThreads)
    list_tiles(const __grid_constant__ StreamedExpertsArgs args, int shares, int most_rows) {
  const int e = static_cast<int>(threadIdx.x);
  int rows = 0;
  if (e < args.routed.experts) {
#pragma unroll 8
    for (int share = 0; share < shares; ++share) {
      int& count = args.counts[share * args.routed.experts + e];
      const int own = count;
      count = rows;
      rows += own;
    }
  }
  list_rows(args, rows, most_rows);
}
__global__ void __launch_bounds__(kListThreads) place_pairs(const __grid_constant__ StreamedExpertsArgs args) {
  __shared__ int next[kDecodeExperts];
  const int share = static_cast<int>(blockIdx.x);
  for (int e = static_cast<int>(threadIdx.x); e < args.routed.experts; e += kListThreads)
    next[e] = args.routed.offsets[e] + args.counts[share * args.routed.experts + e];
  __syncthreads();
  const int begin = share * kPairsAShare;
  place_rows(args, begin, min(args.routed.tokens * args.routed.top_k, begin + kPairsAShare), next);
}

// A block a token, a thread eight columns: its choices in their order.
__global__ void __launch_bounds__(kThreads) add_choices(const __grid_constant__ StreamedExpertsArgs args) {
  allow_next_grid();
  wait_for_last_grid();
  const std::int64_t token = blockIdx.x;
  const int columns = args.routed.down.rows;
  const auto* const rows = reinterpret_cast<const uint4*>(args.y);
  for (int i = static_cast<int>(threadIdx.x); i < columns / 8; i += kThreads) {
    float sums[8] = {};
#pragma unroll 4
    for (int choice = 0; choice < args.routed.top_k; ++choice) {
      const std::int64_t pair = token * args.routed.top_k + choice;
      const std::int64_t row = __ldg(args.routed.inverse + pair);
      if (row < 0) continue;
      const float weight = __ldg(args.routed.weights + pair);
      const uint4 eight = __ldcs(rows + row * (columns / 8) + i);
      const std::uint32_t words[4] = {eight.x, eight.y, eight.z, eight.w};
#pragma unroll
      for (int j = 0; j < 4; ++j) {
        sums[2 * j] += weight * __uint_as_float(words[j] << 16);
        sums[2 * j + 1] += weight * __uint_as_float(words[j] & 0xFFFF0000U);
      }
    }
    auto* const out = reinterpret_cast<float4*>(args.routed.out + token * columns) + 2 * i;
    out[0] = make_float4(sums[0], sums[1], sums[2], sums[3]);
    out[1] = make_float4(sums[4], sums[5], sums[6], sums[7]);
  }
}

// How a stage's codes are copied: of 64 columns, for 16 tiles at once.
int map_codes(const StreamedExpertsArgs& args, const MatrixArgs& matrix, CUtensorMap& map) {
  const auto encode = tensor_map_encoder();
  if (encode == nullptr) return cudaErrorSymbolNotFound;
  const RecordForm form = record_form(args.routed.pack.records);
  const cuuint64_t sizes[3] = {matrix.records.tile_bytes / 8,
                               static_cast<cuuint64_t>(matrix.rows / matrix.records.tile_rows),
                               static_cast<cuuint64_t>(args.routed.experts)};
  const cuuint64_t strides[2] = {matrix.records.tile_bytes, args.routed.pack.expert_bytes};
  const cuuint32_t box[3] = {static_cast<cuuint32_t>(code_bytes(form, kPairColumns)) / 8U, kTileTiles, 1};
  const cuuint32_t steps[3] = {1, 1, 1};
  auto* const first = const_cast<std::uint8_t*>(args.routed.pack.weights + matrix.codes);
  const CUresult result =
      encode(&map, CU_TENSOR_MAP_DATA_TYPE_INT64, 3, first, sizes, strides, box, steps, CU_TENSOR_MAP_INTERLEAVE_NONE,
             CU_TENSOR_MAP_SWIZZLE_NONE, CU_TENSOR_MAP_L2_PROMOTION_L2_256B, CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE);
  return result == CUDA_SUCCESS ? cudaSuccess : cudaErrorInvalidValue;
}

GroupedArgs grouped(const StreamedExpertsArgs& args, const MatrixArgs& matrix, int most_rows) {
  GateArgs gate = by_sigmoid(args.routed.activation);
  if (!(gate.limit > 0.0F)) gate.limit = std::numeric_limits<float>::infinity();
  return {.codes = {},
          .weights = args.routed.pack.weights + matrix.codes,
          .expert_bytes = args.routed.pack.expert_bytes,
          .tile_bytes = matrix.records.tile_bytes,
          .record_bytes = matrix.records.bytes,
          .record_columns = matrix.records.columns,
          .columns = matrix.cols,
          .row_tiles = matrix.rows / matrix.records.tile_rows,
          .inputs = nullptr,
          .pairs = nullptr,
          .top_k = args.routed.top_k,
          .scales = nullptr,
          .list = reinterpret_cast<const RowTile*>(args.tiles + 4),
          .listed = args.tiles,
          .input_scale = kAbsent,
          .code_scale = kAbsent,
          .out = nullptr,
          .out_columns = matrix.rows,
          .most_rows = most_rows,
          .epilogue = Epilogue::out,
          .gate = gate};
}

// Of the operands that a kind of weights has instances for.
template <RecordKind kKind, Operand... kOperands>
int launch_kind(Operand operand, const GroupedArgs& products, int blocks, cudaStream_t stream) {
  int error = cudaErrorInvalidValue;
  static_cast<void>(
      ((operand == kOperands && (error = launch_grouped_as<kKind, kOperands>(products, blocks, stream), true)) || ...));
  return error;
}

int launch_products(RecordKind kind, Operand operand, const GroupedArgs& products, int blocks, cudaStream_t stream) {
  switch (kind) {
    case RecordKind::int4_bf16:
      return launch_kind<RecordKind::int4_bf16, Operand::bf16, Operand::int8, Operand::e4m3>(operand, products, blocks,
                                                                                             stream);
    case RecordKind::int4_f16:
      return launch_kind<RecordKind::int4_f16, Operand::bf16, Operand::int8, Operand::e4m3>(operand, products, blocks,
                                                                                            stream);
    case RecordKind::int8_row:
      return launch_kind<RecordKind::int8_row, Operand::bf16, Operand::int8>(operand, products, blocks, stream);
    case RecordKind::int8_split:
      return launch_kind<RecordKind::int8_split, Operand::bf16>(operand, products, blocks, stream);
    case RecordKind::e4m3_row:
      return launch_kind<RecordKind::e4m3_row, Operand::bf16, Operand::e4m3>(operand, products, blocks, stream);
    case RecordKind::e4m3_split:
      return launch_kind<RecordKind::e4m3_split, Operand::bf16, Operand::e4m3>(operand, products, blocks, stream);
    case RecordKind::mxfp4:
      return launch_kind<RecordKind::mxfp4, Operand::bf16>(operand, products, blocks, stream);
    case RecordKind::mxfp4_row:
      return launch_kind<RecordKind::mxfp4_row, Operand::e4m3>(operand, products, blocks, stream);
    case RecordKind::nvfp4:
      return launch_kind<RecordKind::nvfp4, Operand::bf16>(operand, products, blocks, stream);
    case RecordKind::bf16:
      return launch_kind<RecordKind::bf16, Operand::bf16>(operand, products, blocks, stream);
    case RecordKind::none:
      break;
  }
  return cudaErrorInvalidValue;
}

}  // namespace

int launch_grouped(const StreamedExpertsArgs& args, cudaStream_t stream) {
  int blocks = 0;
  if (const cudaError_t error = count_multiprocessors(blocks); error != cudaSuccess) return error;
  const int pairs = args.routed.tokens * args.routed.top_k;
  const int shares = static_cast<int>(pair_shares(pairs));
  const bool plain = args.routed.pack.input == InputKind::bf16;
  const bool by_pair = args.routed.input_variants > 0;  // each pair has inputs of its own
  const Operand operand = operand_of(args.routed.pack.records, args.routed.pack.input);
  const int most_rows = pairs <= kFewRows * args.routed.experts ? kFewTileRows : kMostTileRows;
  const bool scaled = input_group(args.routed.pack.input) == 0 || operand != Operand::bf16;
  QuantizeArgs inputs{.weights = args.routed.pack.weights,
                      .expert_bytes = args.routed.pack.expert_bytes,
                      .stored = args.routed.gate.input_scale,
                      .kind = args.routed.pack.input,
                      .operand = operand,
                      .factor = record_form(args.routed.pack.records).input_factor,
                      .columns = args.routed.gate.cols,
                      .from = args.routed.x,
                      .experts = args.routed.experts,
                      .offsets = args.routed.offsets,
                      .pairs = by_pair ? args.routed.pairs : nullptr,
                      .top_k = args.routed.top_k,
                      .codes = args.x_codes,
                      .scales = scaled ? args.x_scales : nullptr};
  const int rows = by_pair ? 0 : args.routed.tokens;
  if (pairs <= kFewPairs) {
    launch_grid(prepare_few, {.grid = dim3(static_cast<unsigned>(1 + rows)), .threads = kListThreads}, stream, args,
                inputs, most_rows);
  } else {
    constexpr int kRowsOfBlock = kListThreads / 32;
    if (plain || rows < kManyRows) {
      prepare<false><<<static_cast<unsigned>(rows + shares), kListThreads, 0, stream>>>(args, inputs, rows);
    } else {
      const int forming = (rows + kRowsOfBlock - 1) / kRowsOfBlock;
      prepare<true><<<static_cast<unsigned>(forming + shares), kListThreads, 0, stream>>>(args, inputs, forming);
    }
    list_tiles<<<1, kListThreads, 0, stream>>>(args, shares, most_rows);
    place_pairs<<<static_cast<unsigned>(shares), kListThreads, 0, stream>>>(args);
  }
  if (by_pair) quantize_rows(inputs, pairs, stream);
  GroupedArgs products = grouped(args, args.routed.gate, most_rows);
  // E4M3 has a code for NaN.
  const bool coded = operand == Operand::e4m3 && args.routed.pack.input == InputKind::e4m3_tensor;
  products.epilogue = plain ? Epilogue::hidden : coded ? Epilogue::coded_hidden : Epilogue::whole_hidden;
  products.inputs = args.x_codes;
  products.pairs = by_pair ? nullptr : args.routed.pairs;
  products.scales = inputs.scales;
  products.code_scale = args.routed.down.input_scale - args.routed.gate.codes;
  products.out = plain || coded ? static_cast<void*>(args.h_codes) : args.h;
  if (const int error = map_codes(args, args.routed.gate, products.codes); error != cudaSuccess) return error;
  if (const int error = launch_products(args.routed.pack.records, operand, products, blocks, stream);
      error != cudaSuccess)
    return error;
  products = grouped(args, args.routed.down, most_rows);
  if (const int error = map_codes(args, args.routed.down, products.codes); error != cudaSuccess) return error;
  products.inputs = args.h_codes;
  products.out = args.y;
  if (coded) {
    products.input_scale = args.routed.down.input_scale - args.routed.down.codes;
  } else if (!plain) {
    inputs.stored = args.routed.down.input_scale;
    inputs.columns = args.routed.down.cols;
    inputs.from = args.h;
    inputs.pairs = args.routed.pairs;
    inputs.top_k = 0;
    inputs.codes = args.h_codes;
    inputs.scales = scaled ? args.h_scales : nullptr;
    quantize_rows(inputs, pairs, stream);
    products.scales = inputs.scales;
  }
  if (const int error = launch_products(args.routed.pack.records, operand, products, blocks, stream);
      error != cudaSuccess)
    return error;
  launch_grid(add_choices, {.grid = dim3(static_cast<unsigned>(args.routed.tokens)), .threads = kThreads}, stream,
              args);
  return cudaGetLastError();
}

}  // namespace moracle::cuda
