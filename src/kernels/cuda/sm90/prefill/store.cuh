// Finished rows of a tile: each warpgroup gathers its columns of them in shared memory. From there they go out under
// the next tile's products, by a bulk copy a row; where tiles are short, for which the copy engine is too slow (about
// 100 cycles a copy), threads store them.
#pragma once

#include "kernels/cuda/sm90/prefill/launch.cuh"
#include "kernels/cuda/sm90/prefill/plan.cuh"

namespace moracle::cuda {

// Four blocks of 8 rows and 8 columns of 16 bits, whose columns lanes hold in twos of rows: lane l / 8 x 8 + r gives
// the address of row r of block l / 8.
__device__ __forceinline__ void store_blocks(std::uint32_t row, std::uint32_t first, std::uint32_t second,
                                             std::uint32_t third, std::uint32_t fourth) {
  asm volatile("stmatrix.sync.aligned.m8n8.x4.trans.shared.b16 [%0], {%1, %2, %3, %4};" ::"r"(row), "r"(first),
               "r"(second), "r"(third), "r"(fourth)
               : "memory");
}

__device__ __forceinline__ void store_shared_4(std::uint32_t address, std::uint32_t v) {
  asm volatile("st.shared.u32 [%0], %1;" ::"r"(address), "r"(v) : "memory");
}
__device__ __forceinline__ void store_shared_1(std::uint32_t address, std::uint32_t v) {
  asm volatile("st.shared.u8 [%0], %1;" ::"r"(address), "r"(v) : "memory");
}

// One warpgroup's part of the rows of a tile, kBytes of each at most.
template <class Plan, int kBytes>
class StoredRows {
  static constexpr int kOfRow = kBytes / 16;  // threads
  static constexpr int kRowsAtOnce = 128 / kOfRow;
  static_assert(kBytes <= Plan::kStoredRowBytes - 16);
  static constexpr bool kBulk = Plan::kHalves == 2;

 public:
  __device__ __forceinline__ explicit StoredRows(const GroupedRing<Plan>& ring)
      : base_(ring.stored_at(consumer_group())) {}

  [[nodiscard]] __device__ __forceinline__ std::uint32_t row(int row) const {
    return base_ + static_cast<std::uint32_t>(row) * Plan::kStoredRowBytes;
  }
  // Until the rows before have been read.
  __device__ __forceinline__ void open() const {
    if constexpr (kBulk) asm volatile("cp.async.bulk.wait_group.read 0;" ::: "memory");
    meet();
  }
  // `bytes` of each of `rows` rows, `stride` bytes apart; a multiple of 16.
  __device__ __forceinline__ void send(std::uint8_t* to, std::int64_t stride, int rows, int bytes) const {
    const int thread = static_cast<int>(threadIdx.x) % 128;
    if constexpr (kBulk) {
      fence_proxy_async();
      meet();
      if (thread < rows && bytes > 0) {
        asm volatile("cp.async.bulk.global.shared::cta.bulk_group [%0], [%1], %2;" ::"l"(to + thread * stride),
                     "r"(row(thread)), "r"(bytes)
                     : "memory");
      }
      asm volatile("cp.async.bulk.commit_group;" ::: "memory");
      return;
    }
    meet();
    const int byte = thread % kOfRow * 16;
    if (byte >= bytes) return;
    std::uint32_t from = row(thread / kOfRow) + byte;
    to += thread / kOfRow * stride + byte;
#pragma unroll 4
    for (int r = thread / kOfRow; r < rows; r += kRowsAtOnce) {
      *reinterpret_cast<uint4*>(to) = load_shared_16(from);
      from += kRowsAtOnce * Plan::kStoredRowBytes;
      to += kRowsAtOnce * stride;
    }
  }
  // Shared memory may go.
  static __device__ __forceinline__ void close() {
    if constexpr (kBulk) asm volatile("cp.async.bulk.wait_group 0;" ::: "memory");
  }

 private:
  static __device__ __forceinline__ void meet() {
    __syncwarp();
    asm volatile("bar.sync %0, 128;" ::"r"(1 + consumer_group()) : "memory");
  }

  std::uint32_t base_;
};

}  // namespace moracle::cuda
