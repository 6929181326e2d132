#include "model/load/check_operations.h"

#include <utility>

namespace moracle {

namespace {

Result<> check(const AttentionSpec& spec, const Ops& ops, KvType kv) {
  return ops.check(AttentionArgs{.shape = spec.shape, .kv = kv});
}
Result<> check(const LatentAttentionSpec& spec, const Ops& ops, KvType kv) {
  if (spec.shape.top_k != 0) MORACLE_TRY(ops.check_host_operation("index"));
  return ops.check(LatentAttentionArgs{.shape = spec.shape, .kv = kv});
}
Result<> check(const DeltaNetSpec& spec, const Ops& ops, KvType /*kv*/) {
  return ops.check(DeltaRuleArgs{.shape = spec.shape});
}
Result<> check(const ShortConvolutionSpec& /*spec*/, const Ops& ops, KvType /*kv*/) {
  return ops.check_host_operation("convolution");
}
Result<> check(const StateSpaceSpec& /*spec*/, const Ops& ops, KvType /*kv*/) {
  return ops.check_host_operation("state_space");
}
Result<> check(const AbsentSpec& /*spec*/, const Ops& /*ops*/, KvType /*kv*/) {
  return Ok{};
}
Result<> check(const DenseSpec& /*spec*/, const Ops& /*ops*/, KvType /*kv*/) {
  return Ok{};
}
Result<> check(const MoeSpec& spec, const Ops& ops, KvType /*kv*/) {
  return ops.check(route_args(spec.routing));
}

// Of operations that only the host may have.
Result<> check_host_operations(const ModelSpec& spec, const LayerSpec& layer, const Ops& ops) {
  if (spec.multipliers != Multipliers{} || !layer.scalar.empty()) MORACLE_TRY(ops.check_host_operation("scale"));
  const auto* const moe = std::get_if<MoeSpec>(&layer.feed_forward);
  if (moe != nullptr && moe->shared && moe->shared->mean != 1.0F) MORACLE_TRY(ops.check_host_operation("scale"));
  if (moe != nullptr && moe->routing.weighs_inputs) MORACLE_TRY(ops.check_host_operation("weigh"));
  return layer.input_norm.centred || layer.post_norm.centred ? ops.check_host_operation("layer_norm") : Result<>(Ok{});
}

}  // namespace

Result<> check_operations(const ModelSpec& spec, const Ops& ops, KvType kv) {
  for (const LayerSpec& layer : spec.layers) {
    const auto check_part = [&](const auto& part) { return check(part, ops, kv); };
    Result<> checked = check_host_operations(spec, layer, ops);
    if (checked.ok()) checked = std::visit(check_part, layer.mixer);
    if (checked.ok()) checked = std::visit(check_part, layer.feed_forward);
    if (checked.ok()) continue;
    Error error = std::move(checked).error();
    error.where += ", " + layer.path;
    error.advice = kv == KvType::bf16 ? "use --device cpu" : "use --kv bf16, or --device cpu";
    return error;
  }
  return Ok{};
}

}  // namespace moracle
