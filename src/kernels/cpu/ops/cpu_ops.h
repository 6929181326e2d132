// The operations of ops.h on the threads of a pool, over the loops of one instruction set. Every result depends on its
// own row alone and is summed in one fixed order: the same bits for any batch and any number of threads.
#pragma once

#include "kernels/ops.h"
#include "kernels/vector/vector_ops.h"

namespace moracle::cpu {

class CpuOps final : public Ops {
 public:
  explicit CpuOps(const VectorOps& vector) : vector_(vector) {}

  [[nodiscard]] std::string_view name() const override { return vector_.name; }
  void embed(const RunContext& context, const EmbedArgs& args) const override;
  void rms_norm(const RunContext& context, const RmsNormArgs& args) const override;
  void add(const RunContext& context, const AddArgs& args) const override;
  void add_gated(const RunContext& context, const AddGatedArgs& args) const override;
  void gated_activation(const RunContext& context, const GatedArgs& args) const override;
  void gather(const RunContext& context, const GatherArgs& args) const override;
  void find_not_finite(const RunContext& context, const FiniteArgs& args) const override;
  void top_k(const RunContext& context, const RankArgs& args) const override;
  void rope_table(const RunContext& context, const RopeTableArgs& args) const override;
  void router(const RunContext& context, const RouterArgs& args) const override;
  [[nodiscard]] std::size_t route_bytes(const RouteArgs& args, int threads) const override;
  void route(const RunContext& context, const RouteArgs& args) const override;
  [[nodiscard]] std::size_t attention_bytes(const AttentionArgs& args, int threads) const override;
  void attention(const RunContext& context, const AttentionArgs& args) const override;
  [[nodiscard]] std::size_t attention_bytes(const LatentAttentionArgs& args, int threads) const override;
  void attention(const RunContext& context, const LatentAttentionArgs& args) const override;
  [[nodiscard]] std::size_t delta_rule_bytes(const DeltaRuleArgs& args) const override;
  void delta_rule(const RunContext& context, const DeltaRuleArgs& args) const override;

 private:
  const VectorOps& vector_;
};

// Tokens that one task of an elementwise loop takes: enough to outweigh handing it out.
inline constexpr std::int64_t kTokenTile = 8;

}  // namespace moracle::cpu
