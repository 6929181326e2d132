// The steps around grouped products: inputs in bf16, rows sorted by expert and listed in tiles, the weighted sum.
#include "kernels/cuda/prefill/list.cuh"

#include "kernels/cuda/decode/ptx.cuh"
#include "kernels/cuda/launch.h"
#include "kernels/cuda/prefill/launch.cuh"

namespace moracle::cuda {

namespace {

constexpr int kThreads = 256;
// Rows an expert, on average, up to which decoding takes longer than products.
constexpr int kFewRows = 48;
constexpr int kListThreads = kDecodeExperts;
constexpr int kWidths = kMostTileRows / kWidthStep;

__device__ __forceinline__ int expert_of(const ExpertsArgs& args, int pair) {
  const int id = __ldg(args.ids + pair);
  return id >= 0 && id < args.experts ? id : -1;
}

// The first blocks: a token's inputs each, permuted, times `factor`. The others: how many pairs of their share each
// expert has.
__global__ void __launch_bounds__(kThreads) prepare(const __grid_constant__ ExpertsArgs args, float factor) {
  const int block = static_cast<int>(blockIdx.x);
  const int thread = static_cast<int>(threadIdx.x);
  const int columns = args.gate.cols;
  if (block < args.tokens) {
    const float* const from = args.x + static_cast<std::int64_t>(block) * columns;
    auto* const to = reinterpret_cast<uint4*>(args.x_codes + static_cast<std::int64_t>(block) * columns);
    for (int i = thread; i < columns / 8; i += kThreads) {
      // Eight neighbours in permuted order: two columns of each of the four lanes.
      const float* const first = from + i / 4 * 32 + i % 4 / 2 * 4 + i % 2 * 2;
      std::uint32_t words[4];
#pragma unroll
      for (int lane = 0; lane < 4; ++lane) {
        const float2 two = __ldg(reinterpret_cast<const float2*>(first + lane * 8));
        words[lane] = bf16_pair(two.x * factor, two.y * factor);
      }
      to[i] = make_uint4(words[0], words[1], words[2], words[3]);
    }
    return;
  }
  __shared__ int counts[kDecodeExperts];
  for (int e = thread; e < args.experts; e += kThreads) counts[e] = 0;
  __syncthreads();
  const int share = block - args.tokens;
  const int end = min(args.tokens * args.top_k, (share + 1) * kPairsAShare);
  for (int pair = share * kPairsAShare + thread; pair < end; pair += kThreads) {
    if (const int e = expert_of(args, pair); e >= 0) atomicAdd(&counts[e], 1);
  }
  __syncthreads();
  for (int e = thread; e < args.experts; e += kThreads) args.counts[share * args.experts + e] = counts[e];
}

// One block: where each expert's rows begin, where each share's part of them does, and the tiles, the widest first.
__global__ void __launch_bounds__(kListThreads)
    list_tiles(const __grid_constant__ ExpertsArgs args, int shares, int most_rows) {
  __shared__ int warps[kListThreads / 32];
  __shared__ int of_width[kWidths];
  const int e = static_cast<int>(threadIdx.x);
  const int lane = e % 32;
  if (e < kWidths) of_width[e] = 0;
  int rows = 0;
  if (e < args.experts) {
#pragma unroll 8
    for (int share = 0; share < shares; ++share) {
      int& count = args.counts[share * args.experts + e];
      const int own = count;
      count = rows;
      rows += own;
    }
  }
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
  // An expert's rows in as few tiles as can be, alike but for the last.
  const int tiles = (rows + most_rows - 1) / most_rows;
  const int width = tiles == 0 ? 0 : ((rows + tiles - 1) / tiles + kWidthStep - 1) / kWidthStep * kWidthStep;
  const int last = rows - (tiles - 1) * width;
  const int last_width = tiles == 0 ? 0 : (last + kWidthStep - 1) / kWidthStep * kWidthStep;
  // Where tiles of one width stand among them is left to chance, which no bit depends on.
  const int at_width = kWidths - width / kWidthStep;
  const int at_last = kWidths - last_width / kWidthStep;
  int place = tiles > 1 ? atomicAdd(&of_width[at_width], tiles - 1) : 0;
  int last_place = tiles > 0 ? atomicAdd(&of_width[at_last], 1) : 0;
  __syncthreads();
  for (int w = 0; w < kWidths; ++w) {
    if (w < at_width) place += of_width[w];
    if (w < at_last) last_place += of_width[w];
  }
  auto* const list = reinterpret_cast<RowTile*>(args.tiles + 4);
  for (int i = 0; i + 1 < tiles; ++i) list[place + i] = {e, first + i * width, width, width};
  if (tiles > 0) list[last_place] = {e, first + (tiles - 1) * width, last, last_width};
  if (e < args.experts) args.offsets[e] = first;
  if (e == 0) {
    int all = 0;
    for (int w = 0; w < kWidths; ++w) all += of_width[w];
    args.tiles[0] = all;
  }
}

// A row for each pair. Rows of an expert are in no order, which no bit depends on.
__global__ void __launch_bounds__(kThreads) place_pairs(const __grid_constant__ ExpertsArgs args) {
  __shared__ int next[kDecodeExperts];
  const int share = static_cast<int>(blockIdx.x);
  const int thread = static_cast<int>(threadIdx.x);
  for (int e = thread; e < args.experts; e += kThreads)
    next[e] = args.offsets[e] + args.counts[share * args.experts + e];
  __syncthreads();
  const int end = min(args.tokens * args.top_k, (share + 1) * kPairsAShare);
  for (int pair = share * kPairsAShare + thread; pair < end; pair += kThreads) {
    const int e = expert_of(args, pair);
    const int row = e >= 0 ? atomicAdd(&next[e], 1) : -1;
    args.inverse[pair] = row;
    if (row >= 0) args.pairs[row] = pair;
  }
}

// A block a token, a thread eight columns: its choices in their order.
__global__ void __launch_bounds__(kThreads) add_choices(const __grid_constant__ ExpertsArgs args) {
  const std::int64_t token = blockIdx.x;
  const int columns = args.down.rows;
  const auto* const rows = reinterpret_cast<const uint4*>(args.y);
  for (int i = static_cast<int>(threadIdx.x); i < columns / 8; i += kThreads) {
    float sums[8] = {};
#pragma unroll 4
    for (int choice = 0; choice < args.top_k; ++choice) {
      const std::int64_t pair = token * args.top_k + choice;
      const std::int64_t row = __ldg(args.inverse + pair);
      if (row < 0) continue;
      const float weight = __ldg(args.weights + pair);
      const uint4 eight = __ldcs(rows + row * (columns / 8) + i);
      const std::uint32_t words[4] = {eight.x, eight.y, eight.z, eight.w};
#pragma unroll
      for (int j = 0; j < 4; ++j) {
        sums[2 * j] += weight * __uint_as_float(words[j] << 16);
        sums[2 * j + 1] += weight * __uint_as_float(words[j] & 0xFFFF0000U);
      }
    }
    auto* const out = reinterpret_cast<float4*>(args.out + token * columns) + 2 * i;
    out[0] = make_float4(sums[0], sums[1], sums[2], sums[3]);
    out[1] = make_float4(sums[4], sums[5], sums[6], sums[7]);
  }
}

GroupedArgs grouped(const ExpertsArgs& args, const MatrixArgs& matrix, int most_rows) {
  return {.weights = args.pack.weights + matrix.codes,
          .expert_bytes = args.pack.expert_bytes,
          .tile_bytes = matrix.records.tile_bytes,
          .record_bytes = matrix.records.bytes,
          .record_columns = matrix.records.columns,
          .columns = matrix.cols,
          .row_tiles = matrix.rows / matrix.records.tile_rows,
          .inputs = nullptr,
          .pairs = nullptr,
          .top_k = args.top_k,
          .list = reinterpret_cast<const RowTile*>(args.tiles + 4),
          .listed = args.tiles,
          .out = nullptr,
          .out_columns = matrix.rows,
          .most_rows = most_rows,
          .gated = false,
          .gate = by_sigmoid(args.activation)};
}

int launch_products(const ExpertsArgs& args, const GroupedArgs& products, int blocks, cudaStream_t stream) {
  if (args.pack.code == DeviceCode::e2m1) return launch_grouped_e2m1(products, blocks, stream);
  return launch_grouped_int4(products, args.pack.scale, blocks, stream);
}

}  // namespace

int launch_grouped(const ExpertsArgs& args, cudaStream_t stream) {
  int blocks = 0;
  if (const cudaError_t error = count_multiprocessors(blocks); error != cudaSuccess) return error;
  const int shares = static_cast<int>(pair_shares(std::int64_t{args.tokens} * args.top_k));
  const int most_rows = args.tokens * args.top_k <= kFewRows * args.experts ? kFewTileRows : kMostTileRows;
  const float factor = args.pack.code == DeviceCode::e2m1 ? StreamedE2m1::kInputFactor : 1.0F;
  prepare<<<static_cast<unsigned>(args.tokens + shares), kThreads, 0, stream>>>(args, factor);
  list_tiles<<<1, kListThreads, 0, stream>>>(args, shares, most_rows);
  place_pairs<<<static_cast<unsigned>(shares), kThreads, 0, stream>>>(args);
  GroupedArgs products = grouped(args, args.gate, most_rows);
  products.gated = true;
  products.inputs = args.x_codes;
  products.pairs = args.pairs;
  products.out = args.h_codes;
  if (const int error = launch_products(args, products, blocks, stream); error != cudaSuccess) return error;
  products = grouped(args, args.down, most_rows);
  products.inputs = args.h_codes;
  products.out = reinterpret_cast<std::uint16_t*>(args.y);
  if (const int error = launch_products(args, products, blocks, stream); error != cudaSuccess) return error;
  add_choices<<<static_cast<unsigned>(args.tokens), kThreads, 0, stream>>>(args);
  return cudaGetLastError();
}

}  // namespace moracle::cuda
