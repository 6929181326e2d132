// What this machine can do at best, measured: the yardstick of benchmarks.
#pragma once

#include <cstdint>
#include <string>

#include "base/result.h"
#include "base/thread_pool.h"
#include "kernels/cpu/calibrate.h"
#include "machine/machine.h"

namespace moracle {

struct Calibration {
  double read_gb_s = 0;  // 10^9 bytes a second, all threads, from memory
  double gflop_s = 0;    // all threads
  std::string unit;      // of gflop_s
};

// The loops for the widest of `wanted` that `machine` has; null where it has none of them.
[[nodiscard]] const cpu::CalibrationOps* calibration_ops(const Machine& machine, CpuFeatures wanted);

// Best of several passes over a buffer of `bytes` in 2 MiB pages, every page written before. Errors: "memory.allocate".
Result<double> measure_read_bandwidth(const cpu::CalibrationOps& ops, ThreadPool& pool, std::size_t bytes);
// Best of several rounds, all threads at once.
[[nodiscard]] double measure_peak(const cpu::CalibrationOps& ops, ThreadPool& pool);

Result<Calibration> calibrate(const cpu::CalibrationOps& ops, ThreadPool& pool);

}  // namespace moracle
