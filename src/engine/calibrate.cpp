#include "engine/calibrate.h"

#include <algorithm>
#include <atomic>
#include <cstring>
#include <vector>

#include "base/memory.h"
#include "engine/clock.h"

namespace moracle {

namespace {

constexpr std::size_t kCalibrationBytes = std::size_t{1} << 30;
constexpr std::int64_t kSlice = 4096;  // the read loop's unit
constexpr int kPasses = 4;

}  // namespace

const cpu::CalibrationOps* calibration_ops(const Machine& machine, CpuFeatures wanted) {
  const CpuFeatures both = machine.cpu_features & wanted;
  if (has(both, CpuFeature::avx512_bf16)) return &cpu::kAvx512Bf16Calibration;
  if (has(both, CpuFeature::avx512)) return &cpu::kAvx512Calibration;
  if (has(both, CpuFeature::avx2)) return &cpu::kAvx2Calibration;
  return nullptr;
}

Result<double> measure_read_bandwidth(const cpu::CalibrationOps& ops, ThreadPool& pool, std::size_t bytes) {
  MORACLE_ASSIGN(PageBuffer buffer, PageBuffer::allocate(bytes));
  const int threads = pool.threads();
  const auto share = static_cast<std::int64_t>(bytes) / threads / (8 * kSlice) * (8 * kSlice);
  if (share == 0) return 0.0;
  // Untouched pages would all be one page of zeros that never leaves the cache.
  pool.parallel_for(threads, [&](std::int64_t i, int) {
    std::memset(buffer.data() + i * share, 0x5A, static_cast<std::size_t>(share));
  });
  std::atomic<std::uint64_t> sink{0};
  double best = 0;
  for (int pass = 0; pass < 2 * kPasses; ++pass) {
    const Stopwatch watch;
    pool.parallel_for(threads, [&](std::int64_t i, int) {
      sink.fetch_xor(ops.read(buffer.data() + i * share, share, pass % 2 == 0 ? 8 : 1), std::memory_order_relaxed);
    });
    best = std::max(best, static_cast<double>(share) * threads / watch.seconds() / 1e9);
  }
  return best;
}

double measure_peak(const cpu::CalibrationOps& ops, ThreadPool& pool) {
  constexpr std::int64_t kRounds = 2'000'000;
  const int threads = pool.threads();
  std::vector<float> out(static_cast<std::size_t>(threads) * 16);
  double best = 0;
  for (int pass = 0; pass < kPasses; ++pass) {
    const Stopwatch watch;
    pool.parallel_for(threads, [&](std::int64_t i, int) { ops.multiply(kRounds, out.data() + i * 16); });
    best = std::max(best, ops.flops_per_round * static_cast<double>(kRounds) * threads / watch.seconds() / 1e9);
  }
  return best;
}

Result<Calibration> calibrate(const cpu::CalibrationOps& ops, ThreadPool& pool) {
  Calibration result{.read_gb_s = 0, .gflop_s = 0, .unit = ops.unit};
  MORACLE_ASSIGN(result.read_gb_s, measure_read_bandwidth(ops, pool, kCalibrationBytes));
  result.gflop_s = measure_peak(ops, pool);
  return result;
}

}  // namespace moracle
