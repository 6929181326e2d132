// The routed experts of one layer, or a rank's slice of them, packed and ready to run.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "api/edge/handles.h"
#include "api/edge/pool.h"
#include "api/layer/rows.h"
#include "base/checked.h"
#include "kernels/kernel.h"
#include "model/load/plan.h"

namespace moracle::api {

// What is asked for.
struct LayerRequest {
  std::int64_t layer = 0;  // number in the model
  int tp = 1;
  int tp_rank = 0;
  std::vector<std::int64_t> experts{};  // numbers in the layer; empty: all
  Policy policy{};
};

// Tokens of one call, as the host has them.
struct LayerCall {
  std::int64_t tokens = 0;
  std::int64_t top_k = 0;
  ConstRows x{}, ids{}, weights{};
  ConstRows out{};                   // is written
  std::span<std::byte> workspace{};  // empty: the pool's
};

class ExpertsLayer {
 public:
  static constexpr Kind kKind = Kind::experts;
  // Errors: "experts.layer", "experts.list", "plan.tp", those of deciding, reading and packing.
  static Result<std::shared_ptr<ExpertsLayer>> open(const Plan& plan, LayerRequest request, std::shared_ptr<Pool> pool);

  [[nodiscard]] const LayerRequest& request() const { return request_; }
  [[nodiscard]] const Problem& problem() const { return problem_; }
  [[nodiscard]] const Decision& decision() const { return decision_; }
  [[nodiscard]] const std::string& name() const { return name_; }
  [[nodiscard]] std::int64_t experts() const { return narrow<std::int64_t>(local_.size()); }  // of the layer
  [[nodiscard]] std::int64_t held() const { return held_; }
  [[nodiscard]] std::size_t bytes() const { return packed_->bytes(); }
  [[nodiscard]] int threads() const { return pool_->threads().threads(); }

  // Errors: "argument.range" of tokens or top_k.
  [[nodiscard]] Result<std::size_t> workspace_bytes(std::int64_t tokens, std::int64_t top_k) const;
  // Takes turns with the other layers of the pool. Errors: "argument.workspace", "argument.id", "memory.allocate".
  Result<> run(const LayerCall& call);

 private:
  ExpertsLayer() = default;
  struct Scratch;
  [[nodiscard]] Scratch lay_out(BumpArena& arena, std::int64_t tokens, std::int64_t top_k) const;
  Result<> run_in(const LayerCall& call, std::span<std::byte> workspace);

  LayerRequest request_{};
  std::string name_;
  Problem problem_{};
  Decision decision_{};
  std::shared_ptr<Pool> pool_;
  std::vector<std::int32_t> local_;  // by number in the layer: number in `packed_`, or -1
  std::int64_t held_ = 0;
  std::unique_ptr<PackedExperts> packed_;
};

}  // namespace moracle::api
