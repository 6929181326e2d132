// Sequences of several tokens by warpgroup products, for heads of 64, 128 and 256 numbers.
//
//   tile      128 rows, queries of the heads that share a key head, times 128 positions: two blocks of the state; of
//             heads of 256 one block
//   producer  one warpgroup, which copies keys and values ahead, 16 bytes a thread
//   consumers two warpgroups of 64 rows: scores become the weights of the second product in registers. While one takes
//             exponentials, the other multiplies
//
// Queries and keys lie in shared memory as panels of 64 numbers of all rows, values as they are stored, a row of 32
// positions for each number. (Queries that stay in registers were overwritten by weights: ptxas of CUDA 13.0 gives both
// the same ones.) Softmax is that of page.cuh.
#include <algorithm>

#include "kernels/cuda/common/attention/attend.h"
#include "kernels/cuda/common/attention/page.cuh"
#include "kernels/cuda/common/attention/rows.cuh"
#include "kernels/cuda/sm90/ptx.cuh"
#include "kernels/cuda/sm90/wgmma.cuh"

namespace moracle::cuda {

namespace {

constexpr int kRows = 128;
constexpr int kConsumers = 256;  // threads
constexpr int kThreads = kConsumers + 128;
constexpr int kQueryPanel = kRows * 128;  // bytes

template <int kDims>
struct Plan {
  static constexpr int kPages = kDims <= 128 ? 2 : 1;    // of a tile
  static constexpr int kPositions = kPages * kPage;      // of a tile
  static constexpr int kKeyPanel = kPositions * 128;     // bytes
  static constexpr int kOutDims = std::min(kDims, 128);  // of a product
  static constexpr int kChunks = kDims / 8;              // of a key
  static constexpr int kKeyBytes = kPositions * kDims * 2;
  static constexpr int kHalfBytes = kDims * kHalf * 2;  // of values
  static constexpr int kStageBytes = 2 * kKeyBytes;
  static constexpr int kQueryBytes = kRows * kDims * 2;
  static constexpr int kStages = std::min(4, (kSharedLimit - 1024 - 128 - kQueryBytes) / kStageBytes);
  static constexpr int kShared = 1024 + kStages * kStageBytes + kQueryBytes + 3 * kStages * 8;
};

template <int kDims>
struct Ring {
  using P = Plan<kDims>;
  std::uint32_t base;
  int stage = 0;
  std::uint32_t phase = 0;

  __device__ explicit Ring(const void* memory) : base((shared_address(memory) + 1023) & ~1023U) {}
  [[nodiscard]] __device__ std::uint32_t keys() const {
    return base + static_cast<std::uint32_t>(stage) * P::kStageBytes;
  }
  [[nodiscard]] __device__ std::uint32_t values() const { return keys() + P::kKeyBytes; }
  [[nodiscard]] __device__ std::uint32_t barrier(int kind, int of) const {
    return queries() + P::kQueryBytes + static_cast<std::uint32_t>(kind * P::kStages + of) * 8;
  }
  [[nodiscard]] __device__ std::uint32_t queries() const { return base + P::kStages * P::kStageBytes; }
  [[nodiscard]] __device__ std::uint32_t keys_full() const { return barrier(0, stage); }
  [[nodiscard]] __device__ std::uint32_t values_full() const { return barrier(1, stage); }
  [[nodiscard]] __device__ std::uint32_t empty() const { return barrier(2, stage); }
  __device__ void init() const {
    for (int i = 0; i < P::kStages; ++i) {
      init_barrier(barrier(0, i), 128);  // threads that copy
      init_barrier(barrier(1, i), 128);
      init_barrier(barrier(2, i), kConsumers / 32);
    }
    publish_barriers();
  }
  __device__ __forceinline__ void step() {
    if (++stage < P::kStages) return;
    stage = 0;
    phase ^= 1U;
  }
};

// Rows of a block of threads, and the positions that they see.
struct Task {
  const AttentionArgs& args;
  const KvSpan& span;
  std::int64_t kv_head;
  std::int64_t begin;  // tiles of positions: [begin, end)
  std::int64_t end;
  std::int64_t oldest;  // position that a row sees; blocks before may be gone
  std::int64_t stored;  // positions of the sequence
};

// Keys and values of a tile. Positions that hold nothing have zeros for values; their scores are not looked at.
template <int kDims>
class Producer {
  using P = Plan<kDims>;

 public:
  __device__ Producer(const Task& task, Ring<kDims> ring)
      : task_(task), ring_(ring), thread_(static_cast<int>(threadIdx.x) - kConsumers) {}

  __device__ void run() {
#pragma unroll 1
    for (std::int64_t tile = task_.begin; tile < task_.end; ++tile) {
      wait_barrier(ring_.empty(), ring_.phase ^ 1U);
      const std::int64_t first = tile * P::kPositions;
      Share pages[P::kPages];
#pragma unroll
      for (int page = 0; page < P::kPages; ++page) {
        // In place of a block that is not there stands the tile's other one.
        const bool gone = P::kPages > 1 && page == 0 && first + kPage <= task_.oldest;
        const bool missing = P::kPages > 1 && page == 1 && first + kPage >= task_.stored;
        pages[page] = share(P::kPages * tile + page + (gone ? 1 : 0) - (missing ? 1 : 0));
        copy_keys(pages[page].keys, page);
      }
      arrive_with_copies(ring_.keys_full());
      if (first + P::kPositions <= task_.stored) {
#pragma unroll
        for (int page = 0; page < P::kPages; ++page) copy_values(pages[page].values, page);
        arrive_with_copies(ring_.values_full());
      } else {
        const auto stored = static_cast<int>(task_.stored - first);
        // Where the first block is gone, the second stands in its place, of which less is stored.
        const bool gone = P::kPages > 1 && first + kPage <= task_.oldest;
#pragma unroll
        for (int page = 0; page < P::kPages; ++page)
          put_values(pages[page].values, page, stored - (page > 0 || gone ? kPage : 0));
        fence_proxy_async();
        asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(ring_.values_full()) : "memory");
      }
      ring_.step();
    }
  }

 private:
  static constexpr int kCopies = kPage * P::kChunks / 128;  // of a block, by a thread

  [[nodiscard]] __device__ Share share(std::int64_t block) const {
    return share_of(task_.args, task_.span.table[block], task_.kv_head);
  }
  static __device__ __forceinline__ void copy(std::uint32_t to, const uint4* from) {
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" ::"r"(to), "l"(from) : "memory");
  }
  // Arrives once what this thread copies is there.
  static __device__ __forceinline__ void arrive_with_copies(std::uint32_t barrier) {
    asm volatile("cp.async.mbarrier.arrive.noinc.shared::cta.b64 [%0];" ::"r"(barrier) : "memory");
  }
  // A thread's copies lie this far apart: a multiple of eight rows, over which swizzling repeats, or four of keys.
  static constexpr std::uint32_t kKeyStep = 128 / P::kChunks * 128;
  static constexpr std::uint32_t kValueStep = 128 / kHalfChunks * 64;
  static_assert(kKeyStep % 512 == 0 && kValueStep % 512 == 0);

  __device__ __forceinline__ void copy_keys(const uint4* from, int page) const {
    const int row = thread_ / P::kChunks;
    const int chunk = thread_ % P::kChunks;
    const std::uint32_t to = ring_.keys() + static_cast<std::uint32_t>(chunk / 8 * P::kKeyPanel + page * kPage * 128 +
                                                                       row * 128 + ((chunk % 8 ^ row % 8) << 4));
#pragma unroll
    for (int i = 0; i < kCopies; ++i) {
      const std::uint32_t other_rows = kKeyStep % 1024 != 0 && i % 2 != 0 ? 4U << 4U : 0U;
      copy((to + i * kKeyStep) ^ other_rows, from + thread_ + 128 * i);
    }
  }
  [[nodiscard]] __device__ __forceinline__ std::uint32_t value_place(int page) const {
    const int row = thread_ / kHalfChunks;
    return ring_.values() + static_cast<std::uint32_t>(2 * page * P::kHalfBytes + row * 64 +
                                                       ((thread_ % kHalfChunks ^ row / 2 % 4) << 4));
  }
  __device__ __forceinline__ void copy_values(const uint4* from, int page) const {
    const std::uint32_t to = value_place(page);
#pragma unroll
    for (int i = 0; i < kCopies; ++i) copy(to + i * kValueStep, from + thread_ + 128 * i);
  }
  __device__ void put_values(const uint4* from, int page, int stored) const {
    const std::uint32_t to = value_place(page);
#pragma unroll 1
    for (int i = 0; i < kCopies; ++i) {
      const int at = thread_ + 128 * i;
      const int position = at / (kDims * kHalfChunks) * kHalf + at % kHalfChunks * 8;
      const uint4 value = stored > position ? only_stored(from[at], stored - position) : uint4{};
      asm volatile("st.shared.v4.u32 [%0], {%1, %2, %3, %4};" ::"r"(to + i * kValueStep), "r"(value.x), "r"(value.y),
                   "r"(value.z), "r"(value.w)
                   : "memory");
    }
  }

  const Task& task_;
  Ring<kDims> ring_;
  int thread_;
};

template <int kDims>
class Consumer {
  using P = Plan<kDims>;
  static constexpr int kPositions = P::kPositions;
  static constexpr int kScores = kPositions / 2;
  static constexpr int kOuts = kDims / P::kOutDims;
  static constexpr int kOut = P::kOutDims / 2;
  using Out = float[kOuts][kOut];

 public:
  __device__ Consumer(const Task& task, Ring<kDims> ring) : task_(task), ring_(ring) {}

  // Of `queries` queries; `position` and `token` are those of the first.
  __device__ void run(const Rows& rows, std::int64_t position, std::int64_t token, int queries) {
    put_queries(rows, token);
    Out out;
#pragma unroll
    for (auto& part : out) {
#pragma unroll
      for (float& sum : part) sum = 0.0F;
    }
    const std::int64_t window = task_.args.shape.window;
    const std::int64_t least = window == 0 ? 0 : max(position + queries - window, std::int64_t{0});
    const float scale = kLog2E / sqrtf(static_cast<float>(task_.args.shape.head_dim));
#pragma unroll 1
    for (std::int64_t tile = task_.begin; tile < task_.end; ++tile) {
      const std::int64_t first = tile * kPositions;
      float scores[kScores];
      score(scores);
      if (first < least || first + kPositions > position + 1) hide(scores, rows, position, first);
      std::uint32_t weights[kPositions / 16][4];
      exponentiate(scores, scale, out, weights);
      add(weights, out);
      give_back(ring_.empty(), static_cast<int>(threadIdx.x) % 32);
      ring_.step();
    }
    RowSums<kDims> sums;
#pragma unroll
    for (int i = 0; i < kOuts * kOut; ++i) sums.out[i / 4][i % 4] = out[i / kOut][i % kOut];
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      sums.maximum[half] = maximum_[half];
      sums.sum[half] = sum_[half];
    }
    write_rows(task_.args, rows, token, sums);
  }

 private:
  __device__ __forceinline__ void put_queries(const Rows& rows, std::int64_t token) const {
    const AttentionShape& shape = task_.args.shape;
    const int part = static_cast<int>(threadIdx.x) % 4;
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const int row = static_cast<int>(threadIdx.x) / 32 * 16 + static_cast<int>(threadIdx.x) % 32 / 4 + 8 * half;
      const float* const from = task_.args.q + (token + rows.query[half]) * shape.q_width() +
                                rows.head[half] * query_stride(shape) + 2 * part;
#pragma unroll
      for (int i = 0; i < kDims / 8; ++i) {
        float2 two{};
        if (rows.any[half] && 8 * i < shape.head_dim) two = *reinterpret_cast<const float2*>(from + 8 * i);
        const auto to =
            static_cast<std::uint32_t>(i / 8 * kQueryPanel + row * 128 + ((i % 8 ^ row % 8) << 4) + part * 4);
        asm volatile("st.shared.u32 [%0], %1;" ::"r"(ring_.queries() + to), "r"(pack_bf16(two.x, two.y)) : "memory");
      }
    }
    fence_proxy_async();
    sync_group(1 + static_cast<int>(threadIdx.x) / 128, 128);
  }
  __device__ __forceinline__ void score(float (&scores)[kScores]) const {
    wait(ring_.keys_full());
    const std::uint32_t own = ring_.queries() + threadIdx.x / 128 * 64 * 128;  // of the warpgroup
    wgmma_fence();
#pragma unroll
    for (int i = 0; i < kDims / 16; ++i) {
      wgmma_shared_bf16<kPositions>(scores, swizzled_rows(own + i / 4 * kQueryPanel) + i % 4 * 2,
                                    swizzled_rows(ring_.keys() + i / 4 * P::kKeyPanel) + i % 4 * 2, i > 0 ? 1 : 0);
    }
    wgmma_commit();
    wgmma_wait<0>();
    settle(scores);
  }
  __device__ __forceinline__ void add(std::uint32_t (&weights)[kPositions / 16][4], Out& out) const {
    wait(ring_.values_full());
    // What products take is in its registers before they open.
#pragma unroll
    for (auto& part : out) settle(part);
#pragma unroll
    for (int i = 0; i < kPositions / 4; ++i) asm volatile("" : "+r"(weights[i / 4][i % 4])::"memory");
    wgmma_fence();
#pragma unroll
    for (int i = 0; i < kPositions / 16; ++i) {
#pragma unroll
      for (int part = 0; part < kOuts; ++part)
        wgmma_bf16<P::kOutDims>(
            out[part], weights[i],
            swizzled_byte_rows(ring_.values() + i / 2 * P::kHalfBytes + part * P::kOutDims * 64) + i % 2 * 2, 1);
    }
    wgmma_commit();
    wgmma_wait<0>();
#pragma unroll
    for (auto& part : out) settle(part);
  }
  __device__ __forceinline__ void wait(std::uint32_t barrier) const {
    wait_together(barrier, ring_.phase);
    fence_proxy_async();
  }
  // What products wrote is read behind the wait alone.
  template <int kCount>
  static __device__ __forceinline__ void settle(float (&sums)[kCount]) {
#pragma unroll
    for (float& sum : sums) asm volatile("" : "+f"(sum)::"memory");
  }
  __device__ __forceinline__ void hide(float (&scores)[kScores], const Rows& rows, std::int64_t position,
                                       std::int64_t first) const {
    const int part = static_cast<int>(threadIdx.x) % 4;
    const std::int64_t window = task_.args.shape.window;
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const std::int64_t last = position + rows.query[half] - first;
      const auto end = static_cast<int>(min(last + 1, std::int64_t{kPositions}));
      const auto begin = static_cast<int>(window == 0 ? 0 : max(last - window + 1, std::int64_t{0}));
#pragma unroll
      for (int i = 0; i < kScores; ++i) {
        if (i / 2 % 2 != half) continue;
        const int key = i / 4 * 8 + 2 * part + i % 2;
        if (key < begin || key >= end) scores[i] = -INFINITY;
      }
    }
  }
  // As page.cuh has it; the exponentials become the next product's left side.
  __device__ __forceinline__ void exponentiate(float (&scores)[kScores], float scale, Out& out,
                                               std::uint32_t (&weights)[kPositions / 16][4]) {
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      float most = -INFINITY;
#pragma unroll
      for (int i = 2 * half; i < kScores; i += 4) most = fmaxf(most, fmaxf(scores[i], scores[i + 1]));
      most = fmaxf(most, __shfl_xor_sync(~0U, most, 1));
      most = fmaxf(most, __shfl_xor_sync(~0U, most, 2));
      const float maximum = fmaxf(maximum_[half], most * scale);
      const float shift = maximum == -INFINITY ? 0.0F : maximum;
      const float factor = power_of_two(maximum_[half] - shift);
      float sum = 0.0F;
#pragma unroll
      for (int i = 2 * half; i < kScores; i += 4) {
        scores[i] = power_of_two(fmaf(scores[i], scale, -shift));
        scores[i + 1] = power_of_two(fmaf(scores[i + 1], scale, -shift));
        sum += scores[i] + scores[i + 1];
        weights[i / 8][i / 4 % 2 * 2 + half] = pack_bf16(scores[i], scores[i + 1]);
      }
      maximum_[half] = maximum;
      sum_[half] = fmaf(sum_[half], factor, sum);
#pragma unroll
      for (auto& part : out) {
#pragma unroll
        for (int i = 2 * half; i < kOut; i += 4) {
          part[i] *= factor;
          part[i + 1] *= factor;
        }
      }
    }
  }

  const Task& task_;
  Ring<kDims> ring_;
  float maximum_[2] = {-INFINITY, -INFINITY};  // of scores, in powers of two
  float sum_[2] = {0.0F, 0.0F};                // of this part's exponentials
};

// Blocks (tile, key head), late tiles first: they see more keys.
template <int kDims>
__global__ void __launch_bounds__(kThreads, 1) attend_products(const __grid_constant__ AttentionArgs args) {
  extern __shared__ __align__(128) std::uint8_t attention_memory[];
  const AttentionShape& shape = args.shape;
  const int group = static_cast<int>(shape.heads / shape.kv_heads);
  const Tile tile = find_tile(args, gridDim.x - 1 - blockIdx.x, kRows / group);
  if (tile.span < 0) return;
  const KvSpan span = args.spans[tile.span];
  const std::int64_t position = span.start + tile.first;
  const std::int64_t last = position + tile.queries - 1;
  const std::int64_t oldest = shape.window == 0 ? 0 : max(position - shape.window + 1, std::int64_t{0});
  const Task task{.args = args,
                  .span = span,
                  .kv_head = blockIdx.y,
                  .begin = oldest / Plan<kDims>::kPositions,
                  .end = last / Plan<kDims>::kPositions + 1,
                  .oldest = oldest,
                  .stored = span.start + span.count};
  const Ring<kDims> ring(attention_memory);
  if (threadIdx.x == 0) ring.init();
  __syncthreads();
  if (threadIdx.x >= kConsumers) {
    asm volatile("setmaxnreg.dec.sync.aligned.u32 56;");
    Producer<kDims>(task, ring).run();
  } else {
    asm volatile("setmaxnreg.inc.sync.aligned.u32 224;");
    const Rows rows(tile, blockIdx.y, group);
    Consumer<kDims>(task, ring).run(rows, position, span.begin + tile.first, tile.queries);
  }
}

template <int kDims>
int launch_products(const AttentionArgs& args, cudaStream_t stream) {
  auto* const kernel = attend_products<kDims>;
  constexpr int kShared = Plan<kDims>::kShared;
  if (const cudaError_t error = cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, kShared);
      error != cudaSuccess)
    return error;
  const std::int64_t queries = kRows / (args.shape.heads / args.shape.kv_heads);
  kernel<<<dim3(query_tiles(args, queries), grid_of(args.shape.kv_heads)), kThreads, kShared, stream>>>(args);
  return cudaGetLastError();
}

}  // namespace

bool takes_products(const AttentionShape& shape) {
  return key_row(shape) == 64 || key_row(shape) == 128 || key_row(shape) == 256;
}

int attend_products(const AttentionArgs& args, cudaStream_t stream) {
  switch (key_row(args.shape)) {
    case 64:
      return launch_products<64>(args, stream);
    case 128:
      return launch_products<128>(args, stream);
    default:
      return launch_products<256>(args, stream);
  }
}

}  // namespace moracle::cuda
