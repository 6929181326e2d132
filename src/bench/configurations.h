// Times MoE layers the way that other engines are timed beside them: routings of spec_routing.h, all calls of a
// measurement in one graph.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "base/result.h"
#include "device/gpu_device.h"
#include "machine/machine.h"
#include "oracle/decide.h"
#include "synth/layer_shapes.h"

namespace moracle {

// One line of a file of configurations: `shape scheme tokens...`; # begins a comment.
struct ConfigurationLine {
  std::string shape_name;  // as written
  LayerShape shape;
  NamedScheme scheme;
  std::vector<std::int64_t> tokens;
};

// Shapes by the names of parse_layer_shape, or Q, G, G120 and D for those of the four published models. Errors:
// "cells.line" with the line's number, those of parse_layer_shape and find_scheme.
Result<std::vector<ConfigurationLine>> parse_configurations(const std::string& text);

struct BenchConfigurationsOptions {
  std::vector<ConfigurationLine> lines;
  Machine machine;
  std::shared_ptr<GpuDevice> device{};  // of the machine, where it is no CPU
  Policy policy;
  int threads = 0;                                                         // 0: the host's cores
  std::function<void(const std::string& what, double share)> on_progress;  // may be empty
  std::function<void(const std::string&)> on_warning;                      // may be empty; told of lines that fail
  std::function<bool()> interrupted;                                       // may be empty
};

// One shape, scheme and token count.
struct ConfigurationRow {
  std::string shape;
  std::string scheme;
  std::string backend;
  std::int64_t tokens = 0;
  double us = 0;  // of a call: the median over replays
  double min_us = 0;
  double max_us = 0;
  std::int64_t calls = 0;   // in a replay
  std::int64_t copies = 0;  // of the layer
  double experts = 0;       // with tokens, mean over the calls
  double rel_err = 0;       // of the first call's first tokens against ref
};

// A line that fails, for memory say, is told and left out. Errors: "interrupted", "bench.cells" where no line is left.
Result<std::vector<ConfigurationRow>> bench_configurations(const BenchConfigurationsOptions& options);

}  // namespace moracle
