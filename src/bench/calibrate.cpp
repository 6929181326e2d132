#include "bench/calibrate.h"

#include <algorithm>
#include <atomic>
#include <cstring>
#include <vector>

#include "base/clock.h"
#include "base/memory.h"

namespace moracle {

namespace {

constexpr std::int64_t kSlice = 4096;  // the read loop's unit
constexpr int kPasses = 4;
constexpr double kLeastFlops = 4e9;     // of a pass and thread: some milliseconds
constexpr double kLeastSeconds = 0.15;  // a shared machine's fastest unit sleeps for moments

}  // namespace

const cpu::CalibrationOps* calibration_ops(const Machine& machine, CpuFeatures wanted, const Factors& factors) {
  const CpuFeatures both = machine.cpu_features & wanted;
  const bool bytes = factors.input_bits == 8;
  if (bytes && has(both, CpuFeature::amx_int8)) return &cpu::kAmxInt8Calibration;
  if (has(both, CpuFeature::amx_bf16)) return &cpu::kAmxBf16Calibration;
  if (has(both, CpuFeature::avx512_vnni))
    return bytes ? &cpu::kAvx512VnniCalibration : &cpu::kAvx512VnniWordsCalibration;
  if (has(both, CpuFeature::avx512_bf16)) return &cpu::kAvx512Bf16Calibration;
  if (has(both, CpuFeature::avx512)) return &cpu::kAvx512Calibration;
  if (has(both, CpuFeature::avx_vnni)) return bytes ? &cpu::kAvxVnniCalibration : &cpu::kAvxVnniWordsCalibration;
  if (!has(both, CpuFeature::avx2)) return nullptr;
  // Two products of bytes fill its 16-bit sums where weights have 8 bits, so those are taken as words.
  if (bytes && factors.weight_bits == 4) return &cpu::kAvx2BytesCalibration;
  return factors.input_bits > 0 ? &cpu::kAvx2WordsCalibration : &cpu::kAvx2Calibration;
}

Result<Calibrator> Calibrator::make(const cpu::CalibrationOps& ops, ThreadPool& pool, std::size_t bytes) {
  MORACLE_ASSIGN(PageBuffer buffer, PageBuffer::allocate(bytes));
  Calibrator calibrator(ops, pool, std::move(buffer));
  // Untouched pages would all be one page of zeros that never leaves the cache.
  const std::int64_t share = calibrator.share();
  pool.parallel_for(pool.threads(), [&](std::int64_t i, int) {
    std::memset(calibrator.buffer_.data() + i * share, 0x5A, static_cast<std::size_t>(share));
  });
  return calibrator;
}

std::int64_t Calibrator::share() const {
  return static_cast<std::int64_t>(buffer_.size()) / pool_->threads() / (8 * kSlice) * (8 * kSlice);
}

double Calibrator::read_gb_s() const {
  const int threads = pool_->threads();
  const std::int64_t share = this->share();
  if (share == 0) return 0.0;
  std::atomic<std::uint64_t> sink{0};
  double best = 0;
  for (int pass = 0; pass < 2 * kPasses; ++pass) {
    const Stopwatch watch;
    pool_->parallel_for(threads, [&](std::int64_t i, int) {
      sink.fetch_xor(ops_->read(buffer_.data() + i * share, share, pass % 2 == 0 ? 8 : 1), std::memory_order_relaxed);
    });
    best = std::max(best, static_cast<double>(share) * threads / watch.seconds() / 1e9);
  }
  return best;
}

double Calibrator::gflop_s() const {
  const int threads = pool_->threads();
  const auto rounds = static_cast<std::int64_t>(kLeastFlops / ops_->flops_per_round) + 1;
  std::vector<float> out(static_cast<std::size_t>(threads) * 16);
  double best = 0;
  const Stopwatch all;
  for (int pass = 0; pass < kPasses || all.seconds() < kLeastSeconds; ++pass) {
    const Stopwatch watch;
    pool_->parallel_for(threads, [&](std::int64_t i, int) { ops_->compute(rounds, out.data() + i * 16); });
    best = std::max(best, ops_->flops_per_round * static_cast<double>(rounds) * threads / watch.seconds() / 1e9);
  }
  return best;
}

std::optional<double> quick_bandwidth(const Machine& machine) {
  // Large enough to leave any cache, small enough to be read in a blink.
  constexpr std::size_t kQuickBytes = std::size_t{512} << 20;
  const cpu::CalibrationOps* ops = calibration_ops(machine, machine.cpu_features);
  if (ops == nullptr) return std::nullopt;
  ThreadPool pool(machine.cores);
  const auto calibrator = Calibrator::make(*ops, pool, kQuickBytes);
  return calibrator.ok() ? std::optional(calibrator->read_gb_s()) : std::nullopt;
}

}  // namespace moracle
