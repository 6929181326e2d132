#include "model/blocks/attention.h"

#include "base/generic/count.h"

namespace moracle {

struct Attention::Call {
  AttentionArgs args{};
  float* head_gate = nullptr;   // [tokens, heads] with parts_.head_gate
  std::span<KvSpan> spans{};    // [tokens]
  std::span<std::byte> rest{};  // of one linear or operation after the other
};

Attention::Call Attention::lay_out(BumpArena& arena, const Ops& ops, std::int64_t tokens, int threads) const {
  const std::int64_t width = parts_.heads * parts_.head_dim;
  const std::size_t kv_floats = count(tokens * parts_.kv_heads * parts_.head_dim);
  Call call;
  AttentionArgs& args = call.args;
  args = {.tokens = tokens,
          .heads = parts_.heads,
          .kv_heads = parts_.kv_heads,
          .head_dim = parts_.head_dim,
          .rotary_dims = parts_.rotary_dims,
          .window = parts_.window,
          .clip = parts_.clip,
          .element_gate = parts_.element_gate,
          .kv = parts_.kv,
          .q_norm = parts_.q_norm.args(),
          .k_norm = parts_.k_norm.args(),
          .sinks = parts_.sinks.empty() ? nullptr : parts_.sinks.data()};
  args.q = arena.take<float>(count(tokens * (parts_.element_gate ? 2 * width : width))).data();
  args.out = arena.take<float>(count(tokens * width)).data();
  args.k = arena.take<float>(kv_floats).data();
  args.v = arena.take<float>(kv_floats).data();
  if (parts_.head_gate) args.head_gate = call.head_gate = arena.take<float>(count(tokens * parts_.heads)).data();
  call.spans = arena.take<KvSpan>(count(tokens));
  const std::size_t linears = linear_workspace(
      {parts_.q.get(), parts_.k.get(), parts_.v.get(), parts_.o.get(), parts_.head_gate.get()}, tokens, threads);
  call.rest = arena.take<std::byte>(std::max(linears, ops.attention_bytes(args, threads)));
  return call;
}

LayerState Attention::state() const {
  const AttentionArgs args{
      .kv_heads = parts_.kv_heads, .head_dim = parts_.head_dim, .window = parts_.window, .kv = parts_.kv};
  return {.block_bytes = block_bytes(args), .window = parts_.window};
}

std::size_t Attention::bytes() const {
  return parts_.q->bytes() + parts_.k->bytes() + parts_.v->bytes() + parts_.o->bytes() +
         (parts_.head_gate ? parts_.head_gate->bytes() : 0) + parts_.q_norm.bytes() + parts_.k_norm.bytes() +
         sizeof(float) * parts_.sinks.size();
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
               {parts_.v.get(), args.v},
               {parts_.head_gate.get(), call.head_gate}},
              context.tokens, x);
  context.enter(Phase::attention);
  if (parts_.rotary_dims > 0) args.rope = context.ropes[parts_.rope];
  args.spans = context.kv_spans(parts_.layer, call.spans);
  context.ops.attention(run, args);
  context.enter(Phase::projections);
  parts_.o->run(run, context.tokens, args.out, out);
}

}  // namespace moracle
