// Instructions that CUDA C++ has no words for.
#pragma once

#include <cuda_runtime.h>

#include <cstdint>

#include "kernels/cuda/common/mma.cuh"

namespace moracle::cuda {

inline constexpr int kSharedLimit = 232448;  // bytes of a block on compute capability 9.0

// Barriers that count arrivals and bytes, by their addresses in shared memory.
__device__ __forceinline__ void init_barrier(std::uint32_t barrier, int arrivals) {
  asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(barrier), "r"(arrivals));
}
__device__ __forceinline__ void publish_barriers() {
  asm volatile("fence.mbarrier_init.release.cluster;");
}
__device__ __forceinline__ void wait_barrier(std::uint32_t barrier, std::uint32_t phase) {
  std::uint32_t done = 0;
  while (done == 0) {
    asm volatile("{\n .reg .pred p;\n mbarrier.try_wait.parity.shared::cta.b64 p, [%1], %2;\n selp.u32 %0, 1, 0, p;\n}"
                 : "=r"(done)
                 : "r"(barrier), "r"(phase)
                 : "memory");
  }
}
// Of a whole warp, which is together again behind it: lanes may see the phase end one after the other.
__device__ __forceinline__ void wait_together(std::uint32_t barrier, std::uint32_t phase) {
  wait_barrier(barrier, phase);
  __syncwarp();
}
// One lane arrives for its warp, which stays together: what follows may be an MMA.
__device__ __forceinline__ void arrive_warp(std::uint32_t barrier, int lane) {
  __syncwarp();
  asm volatile(
      "{\n .reg .pred p;\n setp.eq.s32 p, %1, 0;\n @p mbarrier.arrive.shared::cta.b64 _, [%0];\n}" ::"r"(barrier),
      "r"(lane)
      : "memory");
}
// Between loads, stores and cp.async on the one hand, bulk copies and warpgroup products on the other: these go through
// the async proxy, which a barrier alone does not order with the former.
__device__ __forceinline__ void fence_proxy_async() {
  asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
}
// A warp gives back a slot that it has read, and that a bulk copy will write: without the fence a slot was written
// before it was read.
__device__ __forceinline__ void give_back(std::uint32_t barrier, int lane) {
  fence_proxy_async();
  arrive_warp(barrier, lane);
}
// A bulk copy to shared memory, which arrives at the barrier with its bytes. What is read once leaves the L2 first, so
// that inputs, intermediate rows and code stay.
__device__ __forceinline__ void copy_bulk(std::uint32_t to, const void* from, std::uint32_t bytes,
                                          std::uint32_t barrier) {
  asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(barrier), "r"(bytes) : "memory");
  std::uint64_t policy = 0;
  asm volatile("createpolicy.fractional.L2::evict_first.b64 %0, 1.0;" : "=l"(policy));
  asm volatile(
      "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes.L2::cache_hint [%0], [%1], %2, [%3], %4;" ::
          "r"(to),
      "l"(from), "r"(bytes), "r"(barrier), "l"(policy)
      : "memory");
}
// Whole warps meet: a warp in parts would be counted for each of them.
template <int kId>
__device__ __forceinline__ void sync_threads(int threads) {
  __syncwarp();
  asm volatile("bar.sync %0, %1;" ::"n"(kId), "r"(threads) : "memory");
}
__device__ __forceinline__ void sync_group(int id, int threads) {
  __syncwarp();
  asm volatile("bar.sync %0, %1;" ::"r"(id), "r"(threads) : "memory");
}

__device__ __forceinline__ uint4 load_shared_16(std::uint32_t address) {
  uint4 v;
  asm volatile("ld.shared.v4.u32 {%0, %1, %2, %3}, [%4];"
               : "=r"(v.x), "=r"(v.y), "=r"(v.z), "=r"(v.w)
               : "r"(address)
               : "memory");
  return v;
}
__device__ __forceinline__ uint2 load_shared_8(std::uint32_t address) {
  uint2 v;
  asm volatile("ld.shared.v2.u32 {%0, %1}, [%2];" : "=r"(v.x), "=r"(v.y) : "r"(address) : "memory");
  return v;
}
__device__ __forceinline__ std::uint32_t load_shared_4(std::uint32_t address) {
  std::uint32_t v;
  asm volatile("ld.shared.u32 %0, [%1];" : "=r"(v) : "r"(address) : "memory");
  return v;
}

// 16 bytes that other blocks see as a whole or not at all.
__device__ __forceinline__ uint4 load_whole(const void* from) {
  std::uint64_t low = 0;
  std::uint64_t high = 0;
  asm volatile("{\n .reg .b128 t;\n ld.relaxed.gpu.global.b128 t, [%2];\n mov.b128 {%0, %1}, t;\n}"
               : "=l"(low), "=l"(high)
               : "l"(from)
               : "memory");
  return make_uint4(static_cast<std::uint32_t>(low), static_cast<std::uint32_t>(low >> 32),
                    static_cast<std::uint32_t>(high), static_cast<std::uint32_t>(high >> 32));
}
__device__ __forceinline__ void store_whole(void* to, uint4 v) {
  const std::uint64_t low = static_cast<std::uint64_t>(v.y) << 32 | v.x;
  const std::uint64_t high = static_cast<std::uint64_t>(v.w) << 32 | v.z;
  asm volatile("{\n .reg .b128 t;\n mov.b128 t, {%0, %1};\n st.relaxed.gpu.global.b128 [%2], t;\n}" ::"l"(low),
               "l"(high), "l"(to)
               : "memory");
}
__device__ __forceinline__ std::uint32_t load_whole_4(const void* from) {
  std::uint32_t v = 0;
  asm volatile("ld.relaxed.gpu.global.u32 %0, [%1];" : "=r"(v) : "l"(from) : "memory");
  return v;
}
__device__ __forceinline__ void store_whole_4(void* to, std::uint32_t v) {
  asm volatile("st.relaxed.gpu.global.u32 [%0], %1;" ::"l"(to), "r"(v) : "memory");
}
__device__ __forceinline__ std::uint64_t load_whole_8(const std::uint64_t* from) {
  std::uint64_t v = 0;
  asm volatile("ld.relaxed.gpu.global.u64 %0, [%1];" : "=l"(v) : "l"(from) : "memory");
  return v;
}
__device__ __forceinline__ void store_whole_8(std::uint64_t* to, std::uint64_t v) {
  asm volatile("st.relaxed.gpu.global.u64 [%0], %1;" ::"l"(to), "l"(v) : "memory");
}

// sum = start + A B over 16 columns, A 16 rows of weights, B 8 tokens, of bf16 or f16. Volatile: it must not sink
// behind a wait in which lanes part.
#define MORACLE_MMA(types)                                                            \
  asm volatile("mma.sync.aligned.m16n8k16.row.col.f32." types                         \
               ".f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};" \
               : "+f"(sum[0]), "+f"(sum[1]), "+f"(sum[2]), "+f"(sum[3])               \
               : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1))
__device__ __forceinline__ void mma_bf16(float (&sum)[4], const std::uint32_t (&a)[4], std::uint32_t b0,
                                         std::uint32_t b1) {
  MORACLE_MMA("bf16.bf16");
}
__device__ __forceinline__ void mma_f16(float (&sum)[4], const std::uint32_t (&a)[4], std::uint32_t b0,
                                        std::uint32_t b1) {
  MORACLE_MMA("f16.f16");
}
#undef MORACLE_MMA
// Two f32 rounded to E4M3, at most 448, the first in the lowest byte.
__device__ __forceinline__ std::uint32_t pack_e4m3x2(float low, float high) {
  std::uint16_t v = 0;
  asm("cvt.rn.satfinite.e4m3x2.f32 %0, %1, %2;" : "=h"(v) : "f"(high), "f"(low));
  return v;
}

}  // namespace moracle::cuda
