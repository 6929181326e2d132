// The plain alternative to a quantized kernel: dequantize each activated expert to bf16, then multiply densely.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "base/memory.h"
#include "base/result.h"
#include "kernels/calibrate/calibrate.h"
#include "moe/layer_runner.h"
#include "synth/layer_shapes.h"

namespace moracle {

class DequantizeBaseline {
 public:
  // Codes of the whole layer lie in memory at their published width. The dense part is one bf16 expert in the layout
  // of the best bf16 kernel of this machine: reading the buffer that was just written from the cache is as fast, and
  // no time is charged for packing, so the figure flatters the alternative. Errors: "memory.allocate", those of
  // deciding and packing bf16.
  static Result<DequantizeBaseline> make(const LayerShape& shape, const NamedScheme& scheme, const Machine& machine,
                                         const cpu::CalibrationOps& ops, std::int64_t most_tokens, ThreadPool& pool);

  // One call: `tokens_of_expert` [experts] tokens per expert. Returns seconds.
  double run(std::span<const std::int64_t> tokens_of_expert);

 private:
  DequantizeBaseline(LayerShape shape, LayerRunner dense, const cpu::CalibrationOps& ops, ThreadPool& pool)
      : shape_(std::move(shape)), dense_(std::move(dense)), ops_(&ops), pool_(&pool) {}
  void expand(std::int64_t expert);

  LayerShape shape_;
  LayerRunner dense_;
  const cpu::CalibrationOps* ops_;
  ThreadPool* pool_;
  int bits_ = 4;
  float zero_ = 8;
  std::int64_t bytes_of_expert_ = 0;
  std::int64_t group_[3] = {};  // of gate, up, down
  std::vector<float> table_;    // empty for integers
  PageBuffer codes_;
  std::vector<float> scales_;  // of one expert; all are alike
  PageBuffer expanded_;
  LayerInput input_;
  std::vector<float> out_;
};

}  // namespace moracle
