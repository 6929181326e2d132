#include "model/blocks/mla.h"

#include <algorithm>

#include "base/checked.h"
#include "base/first_error.h"
#include "base/generic/count.h"

namespace moracle {

namespace {

const float* floats(const PageBuffer& buffer) {
  return reinterpret_cast<const float*>(buffer.data());
}

// to[cols, rows] = from[rows, cols]
void transpose(const float* from, std::int64_t rows, std::int64_t cols, float* to) {
  for (std::int64_t r = 0; r < rows; ++r) {
    for (std::int64_t c = 0; c < cols; ++c) to[c * rows + r] = from[r * cols + c];
  }
}

}  // namespace

Result<LatentProjection> LatentProjection::lay_out(std::int64_t heads, std::int64_t qk_nope_head_dim,
                                                   std::int64_t v_head_dim, std::int64_t kv_lora_rank) {
  LatentProjection projection;
  MORACLE_ASSIGN(projection.keys, PageBuffer::allocate(count(heads * qk_nope_head_dim * kv_lora_rank) * sizeof(float)));
  MORACLE_ASSIGN(projection.values, PageBuffer::allocate(count(heads * v_head_dim * kv_lora_rank) * sizeof(float)));
  return projection;
}

Result<LatentProjection> LatentProjection::load(const CanonicalLinear& linear, std::int64_t heads,
                                                std::int64_t qk_nope_head_dim, std::int64_t v_head_dim,
                                                ThreadPool& pool) {
  const MatrixSource& source = *linear.weight;
  const std::int64_t kv_lora_rank = source.spec().cols;
  MORACLE_ASSIGN(LatentProjection projection, lay_out(heads, qk_nope_head_dim, v_head_dim, kv_lora_rank));
  projection.activation = linear.activation;
  projection.input_scale = linear.input_scale;
  auto* const keys = reinterpret_cast<float*>(projection.keys.data());
  auto* const values = reinterpret_cast<float*>(projection.values.data());
  FirstError errors;
  std::vector<MatrixPanel> panels(count(pool.threads()));
  std::vector<std::vector<float>> rows(count(pool.threads()));
  pool.parallel_for(heads, [&](std::int64_t head, int thread) {
    if (errors.failed()) return;
    MatrixPanel& panel = panels[count(thread)];
    Result<> read =
        source.read(head * (qk_nope_head_dim + v_head_dim), (head + 1) * (qk_nope_head_dim + v_head_dim), panel);
    if (!read.ok()) return errors.keep(head, std::move(read));
    std::vector<float>& own = rows[count(thread)];
    own.resize(count((qk_nope_head_dim + v_head_dim) * kv_lora_rank));
    dequantize_panel(source.spec(), panel, own);
    std::copy_n(own.data(), qk_nope_head_dim * kv_lora_rank, keys + head * qk_nope_head_dim * kv_lora_rank);
    transpose(own.data() + qk_nope_head_dim * kv_lora_rank, v_head_dim, kv_lora_rank,
              values + head * kv_lora_rank * v_head_dim);
  });
  MORACLE_TRY(errors.take());
  return projection;
}

struct LatentAttention::Call {
  LatentAttentionArgs args{};
  float* q_a = nullptr;         // [tokens, rank], where the model has one
  float* q = nullptr;           // [tokens, heads, qk_nope_head_dim + qk_rope_head_dim]
  float* latents = nullptr;     // [tokens, kv_lora_rank + qk_rope_head_dim]
  std::span<KvSpan> spans{};    // [tokens]
  std::span<std::byte> rest{};  // of one linear or operation after the other
};

LatentAttention::Call LatentAttention::lay_out(BumpArena& arena, const Ops& ops, std::int64_t tokens,
                                               int threads) const {
  Call call;
  LatentAttentionArgs& args = call.args;
  args = {.tokens = tokens,
          .heads = parts_.heads,
          .qk_nope_head_dim = parts_.qk_nope_head_dim,
          .qk_rope_head_dim = parts_.qk_rope_head_dim,
          .v_head_dim = parts_.v_head_dim,
          .kv_lora_rank = parts_.kv_lora_rank,
          .interleaved = parts_.interleaved,
          .scale = parts_.scale,
          .kv = parts_.kv,
          .kv_norm = parts_.kv_norm.args(),
          .keys = floats(parts_.kv_b.keys),
          .values = floats(parts_.kv_b.values),
          .activation = parts_.kv_b.activation ? &*parts_.kv_b.activation : nullptr,
          .input_scale = parts_.kv_b.input_scale};
  call.q_a = arena.take<float>(count(tokens) * parts_.q_norm.weight.size()).data();
  args.q = call.q =
      arena.take<float>(count(tokens * parts_.heads * (parts_.qk_nope_head_dim + parts_.qk_rope_head_dim))).data();
  args.latents = call.latents =
      arena.take<float>(count(tokens * (parts_.kv_lora_rank + parts_.qk_rope_head_dim))).data();
  args.out = arena.take<float>(count(tokens * parts_.heads * parts_.v_head_dim)).data();
  call.spans = arena.take<KvSpan>(count(tokens));
  const std::size_t linears =
      linear_workspace({parts_.q_a.get(), parts_.q.get(), parts_.kv_a.get(), parts_.o.get()}, tokens, threads);
  call.rest = arena.take<std::byte>(std::max(linears, ops.attention_bytes(args, threads)));
  return call;
}

LayerState LatentAttention::state() const {
  const LatentAttentionArgs args{
      .qk_rope_head_dim = parts_.qk_rope_head_dim, .kv_lora_rank = parts_.kv_lora_rank, .kv = parts_.kv};
  return {.block_bytes = block_bytes(args)};
}

std::size_t LatentAttention::bytes() const {
  return (parts_.q_a != nullptr ? parts_.q_a->bytes() : 0) + parts_.q->bytes() + parts_.kv_a->bytes() +
         parts_.kv_b.bytes() + parts_.o->bytes() + parts_.q_norm.bytes() + parts_.kv_norm.bytes();
}

std::size_t LatentAttention::workspace_bytes(const Ops& ops, std::int64_t tokens, int threads) const {
  BumpArena counting = BumpArena::counting();
  static_cast<void>(lay_out(counting, ops, tokens, threads));
  return counting.used() + BumpArena::kAlignment;
}

void LatentAttention::run(const ForwardContext& context, const float* x, float* out) const {
  BumpArena arena(context.workspace);
  Call call = lay_out(arena, context.ops, context.tokens, context.threads());
  LatentAttentionArgs& args = call.args;
  const RunContext run = context.run_context(call.rest);
  context.enter(Phase::projections);
  const bool low_rank = parts_.q_a != nullptr;
  const LinearRun queries = low_rank ? LinearRun{parts_.q_a.get(), call.q_a} : LinearRun{parts_.q.get(), call.q};
  run_linears(run, {queries, {parts_.kv_a.get(), call.latents}}, context.tokens, x);
  if (low_rank) {
    parts_.q_norm.run(context, context.tokens, call.q_a, call.q_a);
    parts_.q->run(run, context.tokens, call.q_a, call.q);
  }
  context.enter(Phase::attention);
  args.rope = context.ropes[parts_.rope];
  args.spans = context.kv_spans(parts_.layer, call.spans);
  context.ops.attention(run, args);
  context.enter(Phase::projections);
  parts_.o->run(run, context.tokens, args.out, out);
}

}  // namespace moracle
