#include "model/blocks/delta_net.h"

#include <algorithm>

#include "base/generic/count.h"

namespace moracle {

struct DeltaNet::Call {
  DeltaRuleArgs args{};
  std::span<std::byte> rest{};  // of one linear or operation after the other
};

DeltaNet::Call DeltaNet::lay_out(BumpArena& arena, const Ops& ops, std::int64_t tokens, int threads) const {
  Call call;
  DeltaRuleArgs& args = call.args;
  const DeltaNetShape& shape = parts_.shape;
  args = {.shape = shape,
          .tokens = tokens,
          .batch_invariant = parts_.batch_invariant ? 1 : 0,
          .taps = parts_.taps.data,
          .rate = parts_.rate.data,
          .dt_bias = parts_.dt_bias.data,
          .norm = parts_.norm.args()};
  args.mixed = arena.take<float>(count(tokens * shape.channels())).data();
  args.work = arena.take<float>(count(tokens * (shape.channels() + (shape.grouped ? shape.value_width() : 0)))).data();
  args.z = arena.take<float>(count(tokens * shape.value_width())).data();
  args.b = arena.take<float>(count(tokens * shape.value_heads * (shape.grouped ? 2 : 1))).data();
  args.a = arena.take<float>(count(shape.grouped ? 0 : tokens * shape.value_heads)).data();
  const std::size_t linears = linear_workspace(
      {parts_.qkv.get(), parts_.z.get(), parts_.b.get(), parts_.a.get(), parts_.out.get()}, tokens, threads);
  call.rest = arena.take<std::byte>(std::max(linears, ops.workspace(args, threads)));
  return call;
}

LayerState DeltaNet::state(const Ops& /*ops*/) const {
  return {.fixed_floats = parts_.shape.state_floats()};
}

std::size_t DeltaNet::bytes() const {
  std::size_t total = parts_.taps.bytes() + parts_.rate.bytes() + parts_.dt_bias.bytes() + parts_.norm.bytes();
  for (const PackedLinear* linear :
       {parts_.qkv.get(), parts_.z.get(), parts_.b.get(), parts_.a.get(), parts_.out.get()}) {
    if (linear != nullptr) total += linear->bytes();
  }
  return total;
}

std::size_t DeltaNet::workspace_bytes(const Ops& ops, std::int64_t tokens, int threads) const {
  BumpArena counting = BumpArena::counting();
  static_cast<void>(lay_out(counting, ops, tokens, threads));
  return counting.used() + BumpArena::kAlignment;
}

void DeltaNet::run(const ForwardContext& context, const float* x, float* out) const {
  BumpArena arena(context.workspace);
  Call call = lay_out(arena, context.ops, context.tokens, context.threads());
  DeltaRuleArgs& args = call.args;
  const RunContext run = context.run_context(call.rest);
  context.enter(Phase::projections);
  run_linears(run,
              {{parts_.qkv.get(), args.shape.grouped ? args.work : args.mixed},
               {parts_.z.get(), args.z},
               {parts_.b.get(), args.b},
               {parts_.a.get(), args.a}},
              context.tokens, x);
  context.enter(Phase::attention);
  args.states = context.state.recurrent_blocks(parts_.layer);
  args.spans = context.state.recurrent;
  args.span_count = context.state.count;
  context.ops.delta_rule(run, args);
  context.enter(Phase::projections);
  parts_.out->run(run, context.tokens, args.mixed, out);
}

}  // namespace moracle
