#include "model/blocks/mla.h"

#include <algorithm>

#include "base/checked.h"
#include "base/first_error.h"
#include "base/generic/count.h"
#include "kernels/input_quant.h"

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

Result<LatentProjection> LatentProjection::lay_out(const LatentAttentionShape& shape) {
  LatentProjection projection;
  const std::int64_t columns = shape.heads * shape.kv_lora_rank;
  MORACLE_ASSIGN(projection.keys, PageBuffer::allocate(count(columns * shape.qk_nope_head_dim) * sizeof(float)));
  MORACLE_ASSIGN(projection.values, PageBuffer::allocate(count(columns * shape.v_head_dim) * sizeof(float)));
  return projection;
}

Result<LatentProjection> LatentProjection::load(const CanonicalLinear& linear, const LatentAttentionShape& shape,
                                                ThreadPool& pool) {
  const MatrixSource& source = *linear.weight;
  const std::int64_t rank = shape.kv_lora_rank;
  const std::int64_t key_floats = shape.qk_nope_head_dim * rank;
  MORACLE_ASSIGN(LatentProjection projection, lay_out(shape));
  if (linear.activation) projection.input = input_quant(*linear.activation, linear.input_scale);
  auto* const keys = reinterpret_cast<float*>(projection.keys.data());
  auto* const values = reinterpret_cast<float*>(projection.values.data());
  FirstError errors;
  std::vector<MatrixPanel> panels(count(pool.threads()));
  std::vector<std::vector<float>> rows(count(pool.threads()));
  pool.parallel_for(shape.heads, [&](std::int64_t head, int thread) {
    if (errors.failed()) return;
    MatrixPanel& panel = panels[count(thread)];
    Result<> read = source.read(head * shape.kv_head_dim(), (head + 1) * shape.kv_head_dim(), panel);
    if (!read.ok()) return errors.keep(head, std::move(read));
    std::vector<float>& own = rows[count(thread)];
    own.resize(count(shape.kv_head_dim() * rank));
    dequantize_panel(source.spec(), panel, own);
    std::copy_n(own.data(), key_floats, keys + head * key_floats);
    transpose(own.data() + key_floats, shape.v_head_dim, rank, values + head * rank * shape.v_head_dim);
  });
  MORACLE_TRY(errors.take());
  return projection;
}

struct LatentAttention::Call {
  LatentAttentionArgs args{};
  float* q_a = nullptr;         // [tokens, rank], where the model has one
  float* q = nullptr;           // [tokens, heads, q_head_dim]
  float* latents = nullptr;     // [tokens, latent_width]
  std::span<KvSpan> spans{};    // [tokens]
  std::span<std::byte> rest{};  // of one linear or operation after the other
};

LatentAttention::Call LatentAttention::lay_out(BumpArena& arena, const Ops& ops, std::int64_t tokens,
                                               int threads) const {
  const LatentAttentionShape& shape = parts_.shape;
  Call call;
  LatentAttentionArgs& args = call.args;
  args = {.shape = shape,
          .kv = parts_.kv,
          .tokens = tokens,
          .kv_norm = parts_.kv_norm.args(),
          .keys = floats(parts_.kv_b.keys),
          .values = floats(parts_.kv_b.values),
          .input = parts_.kv_b.input};
  call.q_a = arena.take<float>(count(tokens) * parts_.q_norm.weight.size()).data();
  args.q = call.q = arena.take<float>(count(tokens * shape.heads * shape.q_head_dim())).data();
  args.latents = call.latents = arena.take<float>(count(tokens * shape.latent_width())).data();
  args.out = arena.take<float>(count(tokens * shape.heads * shape.v_head_dim)).data();
  call.spans = arena.take<KvSpan>(count(tokens));
  const std::size_t linears =
      linear_workspace({parts_.q_a.get(), parts_.q.get(), parts_.kv_a.get(), parts_.o.get()}, tokens, threads);
  call.rest = arena.take<std::byte>(std::max(linears, ops.workspace(args, threads)));
  return call;
}

LayerState LatentAttention::state(const Ops& ops) const {
  return {.block_bytes = ops.block_bytes(parts_.shape, parts_.kv)};
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
  args.blocks = context.kv_blocks(parts_.layer);
  args.spans = context.kv_spans(parts_.layer, call.spans);
  args.span_count = std::ssize(context.spans);
  context.ops.latent_attention(run, args);
  context.enter(Phase::projections);
  parts_.o->run(run, context.tokens, args.out, out);
}

}  // namespace moracle
