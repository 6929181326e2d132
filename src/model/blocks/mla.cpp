#include "model/blocks/mla.h"

#include <algorithm>

#include "base/generic/count.h"

namespace moracle {

struct LatentAttention::Call {
  LatentAttentionArgs args{};
  float* q_a = nullptr;            // [tokens, rank], where the model has one
  float* q = nullptr;              // [tokens, heads, q_head_dim]
  float* latents = nullptr;        // [tokens, latent_width]
  float* gate = nullptr;           // [tokens, heads], where the model has one
  IndexArgs index{};               // where the layer has an indexer
  float* index_weights = nullptr;  // [tokens, heads of the indexer]
  std::span<std::byte> rest{};     // of one linear or operation after the other
};

LatentAttention::Call LatentAttention::lay_out(BumpArena& arena, const Ops& ops, std::int64_t tokens,
                                               int threads) const {
  const LatentAttentionShape& shape = parts_.shape;
  Call call;
  LatentAttentionArgs& args = call.args;
  args = {.shape = shape,
          .kv = parts_.kv,
          .tokens = tokens,
          .batch_invariant = parts_.batch_invariant ? 1 : 0,
          .kv_norm = parts_.kv_norm.args(),
          .keys = parts_.kv_b.keys.data,
          .values = parts_.kv_b.values.data,
          .input = parts_.kv_b.input};
  call.q_a = arena.take<float>(count(tokens * parts_.q_norm.weight.size)).data();
  args.q = call.q = arena.take<float>(count(tokens * shape.heads * shape.q_head_dim())).data();
  args.latents = call.latents = arena.take<float>(count(tokens * shape.latent_width())).data();
  args.gate = call.gate = arena.take<float>(count(shape.head_gate ? tokens * shape.heads : 0)).data();
  args.out = arena.take<float>(count(tokens * shape.heads * shape.v_head_dim)).data();
  std::size_t rest = std::max(
      linear_workspace({parts_.q_a.get(), parts_.q.get(), parts_.kv_a.get(), parts_.head_gate.get(), parts_.o.get()},
                       tokens, threads),
      ops.workspace(args, threads));
  if (const Indexer& indexer = parts_.indexer; indexer.exists()) {
    call.index = {.shape = indexer.shape, .kv = parts_.kv, .tokens = tokens};
    call.index.q = arena.take<float>(count(tokens * indexer.shape.heads * indexer.shape.dim)).data();
    call.index.k = arena.take<float>(count(tokens * indexer.shape.dim)).data();
    call.index.weights = call.index_weights = arena.take<float>(count(tokens * indexer.shape.heads)).data();
    rest = std::max({rest, ops.workspace(call.index, threads),
                     linear_workspace({indexer.q.get(), indexer.k.get(), indexer.weights.get()}, tokens, threads)});
  }
  call.rest = arena.take<std::byte>(rest);
  return call;
}

LayerState LatentAttention::state(const Ops& ops) const {
  return {.block_bytes = ops.block_bytes(parts_.shape, parts_.kv)};
}

std::size_t LatentAttention::bytes() const {
  return (parts_.q_a != nullptr ? parts_.q_a->bytes() : 0) + parts_.q->bytes() + parts_.kv_a->bytes() +
         parts_.kv_b.bytes() + parts_.o->bytes() + parts_.q_norm.bytes() + parts_.kv_norm.bytes() +
         parts_.indexer.bytes() + (parts_.head_gate != nullptr ? parts_.head_gate->bytes() : 0);
}

std::size_t LatentAttention::workspace_bytes(const Ops& ops, std::int64_t tokens, int threads) const {
  BumpArena counting = BumpArena::counting();
  static_cast<void>(lay_out(counting, ops, tokens, threads));
  return counting.used() + BumpArena::kAlignment;
}

void LatentAttention::choose(const ForwardContext& context, const Call& call, const float* x) const {
  const Indexer& indexer = parts_.indexer;
  const RunContext run = context.run_context(call.rest);
  indexer.q->run(run, context.tokens, call.q_a, call.index.q);
  run_linears(run, {{indexer.k.get(), call.index.k}, {indexer.weights.get(), call.index_weights}}, context.tokens, x);
  indexer.k_norm.run(context, context.tokens, call.index.k, call.index.k);
  IndexArgs args = call.index;
  args.rope = context.ropes[*parts_.rope];
  args.blocks = context.state.kv_blocks(parts_.layer);
  LatentAttentionShape latents = parts_.shape;
  latents.index_dim = 0;
  args.block_offset = context.ops.block_bytes(latents, parts_.kv);
  args.spans = context.state.kv_spans(parts_.layer);
  args.span_count = context.state.count;
  args.selected = context.selected;
  context.ops.index(run, args);
}

void LatentAttention::run(const ForwardContext& context, const float* x, float* out) const {
  BumpArena arena(context.workspace);
  Call call = lay_out(arena, context.ops, context.tokens, context.threads());
  LatentAttentionArgs& args = call.args;
  const RunContext run = context.run_context(call.rest);
  context.enter(Phase::projections);
  const bool low_rank = parts_.q_a != nullptr;
  const LinearRun queries = low_rank ? LinearRun{parts_.q_a.get(), call.q_a} : LinearRun{parts_.q.get(), call.q};
  run_linears(run, {queries, {parts_.kv_a.get(), call.latents}, {parts_.head_gate.get(), call.gate}}, context.tokens,
              x);
  if (low_rank) {
    parts_.q_norm.run(context, context.tokens, call.q_a, call.q_a);
    parts_.q->run(run, context.tokens, call.q_a, call.q);
  }
  if (parts_.indexer.exists()) choose(context, call, x);
  context.enter(Phase::attention);
  args.selected = context.selected;
  if (parts_.rope) args.rope = context.ropes[*parts_.rope];
  args.blocks = context.state.kv_blocks(parts_.layer);
  args.spans = context.state.kv_spans(parts_.layer);
  args.span_count = context.state.count;
  context.ops.latent_attention(run, args);
  context.enter(Phase::projections);
  parts_.o->run(run, context.tokens, args.out, out);
}

}  // namespace moracle
