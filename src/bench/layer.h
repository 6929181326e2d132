// Times one MoE layer with random weights and random ragged routing.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "base/result.h"
#include "bench/calibrate.h"
#include "device/gpu_device.h"
#include "machine/machine.h"
#include "oracle/decide.h"
#include "synth/layer_shapes.h"

namespace moracle {

struct BenchLayerOptions {
  LayerShape shape;
  NamedScheme scheme;
  std::vector<std::int64_t> tokens;
  Machine machine;
  std::shared_ptr<GpuDevice> device{};  // of the machine, where it is no CPU
  Policy policy;
  int threads = 0;       // 0: the host's cores
  bool baseline = true;  // also time dequantizing to bf16 and multiplying densely
  // What is being done, and how much of the whole is behind; may be empty.
  std::function<void(const std::string& what, double share)> on_progress;
  std::function<void(const std::string&)> on_warning;  // may be empty
  std::function<bool()> interrupted;                   // asked between copies and rows; may be empty
};

struct BenchLayerRow {
  std::int64_t tokens = 0;
  std::int64_t iterations = 0;
  double median_us = 0;  // of the call; of a device, without copies from and to the host
  double min_us = 0;
  std::int64_t experts = 0;       // activated, mean over the iterations
  std::int64_t weight_bytes = 0;  // of the activated experts, once each, as published
  double weight_gb_s = 0;
  double gflop_s = 0;                   // 6 * tokens * top_k * hidden * intermediate operations
  double rel_err = 0;                   // against ref, the first tokens of the same call
  std::optional<Calibration> before{};  // what the machine could do, measured around the row
  std::optional<Calibration> after{};
  std::optional<double>
      floor_us{};  // max(weight_bytes / read bandwidth, operations / peak), the better of the two each
  std::optional<double> dequantize_to_bf16_us{};  // median of the plain alternative
};

struct BenchLayerResult {
  std::string backend;
  std::string device;
  int threads = 0;
  std::int64_t copies = 0;         // of the layer, used in turn
  std::uint64_t packed_bytes = 0;  // of all copies
  std::vector<BenchLayerRow> rows;
};

// The copies of the layer together exceed twice the last-level cache and 600 MB (memory allowing), so that weights
// come from memory; the routing is drawn anew for each iteration and is not timed. Errors: "oracle.no_table",
// "oracle.no_backend", "oracle.pinned", "quant.group", "memory.plan", "interrupted".
Result<BenchLayerResult> bench_layer(const BenchLayerOptions& options);

}  // namespace moracle
