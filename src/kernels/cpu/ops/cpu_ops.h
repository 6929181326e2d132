// The operations of ops.h on the threads of a pool, over the loops of one instruction set. Every result depends on its
// own row alone and is summed in one fixed order: the same bits for any batch and any number of threads.
#pragma once

#include <cmath>

#include "kernels/ops.h"
#include "kernels/vector/vector_ops.h"

namespace moracle::cpu {

class CpuOps final : public Ops {
 public:
  explicit CpuOps(const VectorOps& vector) : vector_(vector) {}

  [[nodiscard]] std::string_view name() const override { return vector_.name; }
  [[nodiscard]] std::int64_t block_bytes(const AttentionShape& shape, KvType kv) const override;
  [[nodiscard]] std::int64_t block_bytes(const LatentAttentionShape& shape, KvType kv) const override;
  [[nodiscard]] std::size_t workspace(const RankArgs& args, int threads) const override;
  [[nodiscard]] std::size_t workspace(const RouteArgs& args, int threads) const override;
  [[nodiscard]] std::size_t workspace(const AttentionArgs& args, int threads) const override;
  [[nodiscard]] std::size_t workspace(const LatentAttentionArgs& args, int threads) const override;
  [[nodiscard]] std::size_t workspace(const DeltaRuleArgs& args, int threads) const override;
  [[nodiscard]] std::size_t workspace(const SampleArgs& args, int threads) const override;
  [[nodiscard]] std::size_t workspace(const IndexArgs& args, int threads) const override;

#define MORACLE_OPERATION(name, Args) void name(const RunContext& context, const Args& args) const override;
  MORACLE_OPERATIONS(MORACLE_OPERATION)
  MORACLE_HOST_OPERATIONS(MORACLE_OPERATION)
#undef MORACLE_OPERATION

 private:
  void compute_logits(ThreadPool& pool, const RouteArgs& args) const;

  const VectorOps& vector_;
};

inline float sigmoid(float x) {
  return 1.0F / (1.0F + std::exp(-x));
}
inline float softplus(float x) {
  return x > 20.0F ? x : std::log1p(std::exp(x));
}

// Tokens that one task of an elementwise loop takes: enough to outweigh handing it out.
inline constexpr std::int64_t kTokenTile = 8;

}  // namespace moracle::cpu
