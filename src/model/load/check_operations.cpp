#include "model/load/check_operations.h"

#include <utility>

namespace moracle {

namespace {

Result<> check(const AttentionSpec& spec, const Ops& ops, KvType kv) {
  return ops.check(AttentionArgs{.shape = spec.shape, .kv = kv});
}
Result<> check(const LatentAttentionSpec& spec, const Ops& ops, KvType kv) {
  return ops.check(LatentAttentionArgs{.shape = spec.shape, .kv = kv});
}
Result<> check(const DeltaNetSpec& spec, const Ops& ops, KvType /*kv*/) {
  return ops.check(DeltaRuleArgs{.shape = spec.shape});
}
Result<> check(const DenseSpec& /*spec*/, const Ops& /*ops*/, KvType /*kv*/) {
  return Ok{};
}
Result<> check(const MoeSpec& spec, const Ops& ops, KvType /*kv*/) {
  return ops.check(route_args(spec.routing));
}

}  // namespace

Result<> check_operations(const ModelSpec& spec, const Ops& ops, KvType kv) {
  for (const LayerSpec& layer : spec.layers) {
    const auto check_part = [&](const auto& part) { return check(part, ops, kv); };
    Result<> checked = std::visit(check_part, layer.mixer);
    if (checked.ok()) checked = std::visit(check_part, layer.feed_forward);
    if (checked.ok()) continue;
    Error error = std::move(checked).error();
    error.where += ", " + layer.input_norm.path.substr(0, layer.input_norm.path.rfind('.'));
    error.advice = kv == KvType::bf16 ? "use --device cpu" : "use --kv bf16, or --device cpu";
    return error;
  }
  return Ok{};
}

}  // namespace moracle
