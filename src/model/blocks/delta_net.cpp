#include "model/blocks/delta_net.h"

#include <algorithm>

#include "base/generic/count.h"

namespace moracle {

struct DeltaNet::Call {
  DeltaRuleArgs args{};
  float* z_low = nullptr;       // [tokens, z_rank]
  float* a_low = nullptr;       // [tokens, a_rank]
  std::span<std::byte> rest{};  // of one linear or operation after the other
};

std::array<const PackedLinear*, 9> DeltaNet::linears() const {
  return {parts_.qkv.get(), parts_.k.get(),     parts_.v.get(), parts_.z_low.get(), parts_.z.get(),
          parts_.b.get(),   parts_.a_low.get(), parts_.a.get(), parts_.out.get()};
}

DeltaNet::Call DeltaNet::lay_out(BumpArena& arena, const Ops& ops, std::int64_t tokens, int threads) const {
  Call call;
  DeltaRuleArgs& args = call.args;
  const DeltaNetShape& shape = parts_.shape;
  args = {.shape = shape,
          .tokens = tokens,
          .batch_invariant = parts_.batch_invariant ? 1 : 0,
          .taps = parts_.taps.data,
          .k_taps = parts_.k_taps.data,
          .v_taps = parts_.v_taps.data,
          .rate = parts_.rate.data,
          .dt_bias = parts_.dt_bias.data,
          .norm = parts_.norm.args()};
  args.mixed = arena.take<float>(count(tokens * shape.channels())).data();
  args.work = arena.take<float>(count(tokens * (shape.channels() + (shape.grouped ? shape.value_width() : 0)))).data();
  args.z = arena.take<float>(count(tokens * shape.value_width())).data();
  args.b = arena.take<float>(count(tokens * shape.value_heads * (shape.grouped ? 2 : 1))).data();
  args.a = arena.take<float>(count(shape.grouped ? 0 : tokens * shape.decays())).data();
  call.z_low = arena.take<float>(count(tokens * parts_.z_rank)).data();
  call.a_low = arena.take<float>(count(tokens * parts_.a_rank)).data();
  std::size_t rest = ops.workspace(args, threads);
  for (const PackedLinear* linear : linears()) rest = std::max(rest, linear_workspace({linear}, tokens, threads));
  call.rest = arena.take<std::byte>(rest);
  return call;
}

LayerState DeltaNet::state(const Ops& /*ops*/) const {
  return {.fixed_floats = parts_.shape.state_floats()};
}

std::size_t DeltaNet::bytes() const {
  std::size_t total = parts_.taps.bytes() + parts_.k_taps.bytes() + parts_.v_taps.bytes() + parts_.rate.bytes() +
                      parts_.dt_bias.bytes() + parts_.norm.bytes();
  for (const PackedLinear* linear : linears()) {
    if (linear != nullptr) total += linear->bytes();
  }
  return total;
}

std::size_t DeltaNet::workspace_bytes(const Ops& ops, std::int64_t tokens, int threads) const {
  BumpArena counting = BumpArena::counting();
  static_cast<void>(lay_out(counting, ops, tokens, threads));
  return counting.used() + BumpArena::kAlignment;
}

void DeltaNet::project(const ForwardContext& context, const Call& call, const float* x) const {
  const DeltaRuleArgs& args = call.args;
  const RunContext run = context.run_context(call.rest);
  const std::int64_t tokens = context.tokens;
  const bool z_low = parts_.z_low != nullptr;
  const bool a_low = parts_.a_low != nullptr;
  const LinearRun z = z_low ? LinearRun{parts_.z_low.get(), call.z_low} : LinearRun{parts_.z.get(), args.z};
  const LinearRun a = a_low ? LinearRun{parts_.a_low.get(), call.a_low} : LinearRun{parts_.a.get(), args.a};
  run_linears(run, {{parts_.qkv.get(), args.shape.grouped ? args.work : args.mixed}, z, {parts_.b.get(), args.b}, a},
              tokens, x);
  if (args.shape.apart) {
    float* const k = args.mixed + tokens * args.shape.key_width();
    run_linears(run, {{parts_.k.get(), k}, {parts_.v.get(), k + tokens * args.shape.key_width()}}, tokens, x);
  }
  if (z_low) parts_.z->run(run, tokens, call.z_low, args.z);
  if (a_low) parts_.a->run(run, tokens, call.a_low, args.a);
}

void DeltaNet::run(const ForwardContext& context, const float* x, float* out) const {
  BumpArena arena(context.workspace);
  Call call = lay_out(arena, context.ops, context.tokens, context.threads());
  DeltaRuleArgs& args = call.args;
  const RunContext run = context.run_context(call.rest);
  context.enter(Phase::projections);
  project(context, call, x);
  context.enter(Phase::attention);
  args.states = context.state.recurrent_blocks(parts_.layer);
  args.spans = context.state.recurrent;
  args.span_count = context.state.count;
  context.ops.delta_rule(run, args);
  context.enter(Phase::projections);
  parts_.out->run(run, context.tokens, args.mixed, out);
}

}  // namespace moracle
