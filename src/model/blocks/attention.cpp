#include "model/blocks/attention.h"

#include "base/generic/count.h"

namespace moracle {

struct Attention::Call {
  AttentionArgs args{};
  float* gate = nullptr;        // [tokens, heads] with parts_.head_gate, [tokens, out_width] with parts_.wide_gate
  std::span<std::byte> rest{};  // of one linear or operation after the other
};

Attention::Call Attention::lay_out(BumpArena& arena, const Ops& ops, std::int64_t tokens, int threads) const {
  const AttentionShape& shape = parts_.shape;
  Call call;
  AttentionArgs& args = call.args;
  args = {.shape = shape,
          .kv = parts_.kv,
          .tokens = tokens,
          .batch_invariant = parts_.batch_invariant ? 1 : 0,
          .q_norm = parts_.q_norm.args(),
          .k_norm = parts_.k_norm.args(),
          .sinks = parts_.sinks.data};
  args.q = arena.take<float>(count(tokens * shape.q_width())).data();
  args.out = arena.take<float>(count(tokens * shape.out_width())).data();
  args.k = arena.take<float>(count(tokens * shape.kv_width())).data();
  args.v = arena.take<float>(count(tokens * shape.value_width())).data();
  if (parts_.head_gate) args.head_gate = call.gate = arena.take<float>(count(tokens * shape.heads)).data();
  if (parts_.wide_gate) args.wide_gate = call.gate = arena.take<float>(count(tokens * shape.out_width())).data();
  const std::size_t linears = linear_workspace(
      {parts_.q.get(), parts_.k.get(), parts_.v.get(), parts_.o.get(), parts_.gate()}, tokens, threads);
  call.rest = arena.take<std::byte>(std::max(linears, ops.workspace(args, threads)));
  return call;
}

LayerState Attention::state(const Ops& ops) const {
  return {.block_bytes = ops.block_bytes(parts_.shape, parts_.kv), .window = parts_.shape.window};
}

std::size_t Attention::bytes() const {
  return parts_.q->bytes() + parts_.k->bytes() + (parts_.v != nullptr ? parts_.v->bytes() : 0) + parts_.o->bytes() +
         (parts_.gate() != nullptr ? parts_.gate()->bytes() : 0) + parts_.q_norm.bytes() + parts_.k_norm.bytes() +
         parts_.sinks.bytes();
}

std::size_t Attention::workspace_bytes(const Ops& ops, std::int64_t tokens, int threads) const {
  BumpArena counting = BumpArena::counting();
  static_cast<void>(lay_out(counting, ops, tokens, threads));
  return counting.used() + BumpArena::kAlignment;
}

void Attention::run(const ForwardContext& context, const float* x, float* out) const {
  BumpArena arena(context.workspace);
  Call call = lay_out(arena, context.ops, context.tokens, context.threads());
  AttentionArgs& args = call.args;
  const RunContext run = context.run_context(call.rest);
  context.enter(Phase::projections);
  run_linears(run,
              {{parts_.q.get(), args.q},
               {parts_.k.get(), args.k},
               {parts_.v != nullptr ? parts_.v.get() : parts_.k.get(), args.v},
               {parts_.gate(), call.gate}},
              context.tokens, x);
  context.enter(Phase::attention);
  if (parts_.rope) args.rope = context.ropes[*parts_.rope];
  args.blocks = context.state.kv_blocks(parts_.layer);
  args.spans = context.state.kv_spans(parts_.layer);
  args.span_count = context.state.count;
  context.ops.attention(run, args);
  context.enter(Phase::projections);
  parts_.o->run(run, context.tokens, args.out, out);
}

}  // namespace moracle
