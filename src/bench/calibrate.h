// What this machine can do at best, measured: the yardstick of benchmarks.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <utility>

#include "base/memory.h"
#include "base/result.h"
#include "base/thread_pool.h"
#include "kernels/calibrate/calibrate.h"
#include "machine/machine.h"

namespace moracle {

struct Calibration {
  double read_gb_s = 0;  // 10^9 bytes a second, all threads, from memory
  double gflop_s = 0;    // all threads
  std::string unit;      // of gflop_s
};

// The factors of a kernel's products: bits of integers, or 0 where they are numbers.
struct Factors {
  int weight_bits = 0;
  int input_bits = 0;
};

// The loops for the fastest of `wanted` that `machine` has and that multiplies such factors; null where it has none of
// them.
[[nodiscard]] const cpu::CalibrationOps* calibration_ops(const Machine& machine, CpuFeatures wanted,
                                                         const Factors& factors = {});

// 10^9 bytes a second that all cores of this machine read from memory, in a blink; empty where no loop measures it.
[[nodiscard]] std::optional<double> quick_bandwidth(const Machine& machine);

// Measures again and again, each time the best of several passes, all threads at once.
class Calibrator {
 public:
  // Takes `bytes` in 2 MiB pages and writes every page. `ops` and `pool` are to outlive it. Errors: "memory.allocate".
  static Result<Calibrator> make(const cpu::CalibrationOps& ops, ThreadPool& pool, std::size_t bytes);

  [[nodiscard]] double read_gb_s() const;
  [[nodiscard]] double gflop_s() const;
  [[nodiscard]] Calibration measure() const { return {read_gb_s(), gflop_s(), ops_->unit}; }

 private:
  Calibrator(const cpu::CalibrationOps& ops, ThreadPool& pool, PageBuffer buffer)
      : ops_(&ops), pool_(&pool), buffer_(std::move(buffer)) {}
  [[nodiscard]] std::int64_t share() const;  // bytes a thread reads

  const cpu::CalibrationOps* ops_;
  ThreadPool* pool_;
  PageBuffer buffer_;
};

}  // namespace moracle
