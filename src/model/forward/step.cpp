#include "model/forward/step.h"

#include <algorithm>
#include <utility>

#include "base/checked.h"
#include "base/generic/count.h"

namespace moracle {

struct ForwardStep::Buffers {
  float* hidden = nullptr;             // [tokens, hidden], the residual stream
  float* normed = nullptr;             // [tokens, hidden]
  float* added = nullptr;              // [tokens, hidden]
  float* late = nullptr;               // the same, where a feed-forward is late
  std::span<std::int32_t> selected{};  // [tokens, positions that layers choose]
  std::span<std::byte> rest{};         // of one block after the other
};

struct ForwardStep::RankBuffers {
  float* logits = nullptr;      // [rows, vocab_size]
  std::span<std::byte> rest{};  // of the operation
};

// The residual stream between the parts of layers.
class ForwardStep::ResidualStream {
 public:
  ResidualStream(const ForwardContext& context, const Buffers& buffers, const TransformerParts& parts)
      : context_(context), buffers_(buffers), parts_(parts) {}

  // What a part reads, [tokens, hidden].
  const float* read(const Norm& norm) {
    context_.enter(Phase::norms);
    if (!norm.exists()) {
      join();
      return buffers_.hidden;
    }
    if (waits_ && norm.joins()) {
      waits_ = false;
      context_.ops.add_norm(context_.run_context({}), behind(norm));
    } else {
      join();
      norm.run(context_, context_.tokens, buffers_.hidden, buffers_.normed);
    }
    return buffers_.normed;
  }

  // The same, of a part that asks for the norm itself where it can.
  NormedInput read_later(const Norm& norm) {
    if (!waits_ || !norm.joins()) return NormedInput(read(norm));
    waits_ = false;
    return NormedInput(behind(norm));
  }

  // Takes what a part has left in buffers.added.
  void give(const Norm& behind_part) {
    if (behind_part.exists()) {
      context_.enter(Phase::norms);
      behind_part.run(context_, context_.tokens, buffers_.added, buffers_.added);
    }
    if (parts_.multipliers.residual != 1.0F) {
      context_.ops.scale(context_.run_context({}),
                         {.count = size(), .factor = parts_.multipliers.residual, .x = buffers_.added});
    }
    waits_ = true;
  }

  // Adds what the feed-forward of the layer before has left.
  void add_late() {
    join();
    context_.ops.add(context_.run_context({}), {.count = size(), .x = buffers_.late, .sum = buffers_.hidden});
  }

  void multiply(const float* by) {
    join();
    context_.ops.scale(context_.run_context({}), {.count = size(), .by = by, .x = buffers_.hidden});
  }

  // Adds what waits.
  void join() {
    if (!std::exchange(waits_, false)) return;
    context_.ops.add(context_.run_context({}), {.count = size(), .x = buffers_.added, .sum = buffers_.hidden});
  }

 private:
  [[nodiscard]] std::int64_t size() const { return context_.tokens * parts_.info.hidden_size; }
  [[nodiscard]] AddNormArgs behind(const Norm& norm) const {
    return norm.behind(context_.tokens, buffers_.added, buffers_.hidden, buffers_.normed);
  }

  const ForwardContext& context_;
  const Buffers& buffers_;
  const TransformerParts& parts_;
  bool waits_ = false;
};

ForwardStep::ForwardStep(const TransformerParts& parts, int threads)
    : parts_(parts), threads_(threads), rope_args_(parts.ropes.size()), ropes_(parts.ropes.size()) {}

std::size_t ForwardStep::block_workspace(std::int64_t tokens) const {
  std::size_t most = parts_.head->workspace_bytes(tokens, threads_);
  for (const TransformerLayer& layer : parts_.layers) {
    if (layer.mixer != nullptr) most = std::max(most, layer.mixer->workspace_bytes(*parts_.ops, tokens, threads_));
    if (layer.feed_forward != nullptr) most = std::max(most, layer.feed_forward->workspace_bytes(tokens, threads_));
  }
  return most;
}

ForwardStep::Buffers ForwardStep::lay_out(BumpArena& arena, std::int64_t tokens, std::span<RopeTableArgs> ropes) const {
  const std::size_t floats = count(tokens * parts_.info.hidden_size);
  Buffers buffers{.hidden = arena.take<float>(floats).data(),
                  .normed = arena.take<float>(floats).data(),
                  .added = arena.take<float>(floats).data()};
  for (std::size_t r = 0; r < parts_.ropes.size(); ++r) {
    const Rope& rope = parts_.ropes[r];
    const std::size_t size = count(tokens * rope.inv_freq.size);
    float* const cos = arena.take<float>(size).data();
    float* const sin = arena.take<float>(size).data();
    if (ropes.empty()) continue;  // only counted
    ropes[r] = {.tokens = tokens,
                .half = rope.inv_freq.size,
                .inv_freq = rope.inv_freq.data,
                .scale = rope.scale,
                .cos = cos,
                .sin = sin};
  }
  std::int64_t selected = 0;
  bool late = false;
  for (const TransformerLayer& layer : parts_.layers) {
    if (layer.mixer != nullptr) selected = std::max(selected, layer.mixer->selected());
    late = late || layer.late();
  }
  buffers.late = arena.take<float>(late ? floats : 0).data();
  buffers.selected = arena.take<std::int32_t>(count(tokens * selected));
  buffers.rest = arena.take<std::byte>(block_workspace(tokens));
  return buffers;
}

std::size_t ForwardStep::workspace_bytes(std::int64_t tokens) const {
  BumpArena counting = BumpArena::counting();
  static_cast<void>(lay_out(counting, tokens, {}));
  return counting.used() + BumpArena::kAlignment;
}

RankArgs ForwardStep::rank_args(const Ranks& ranks) const {
  return {.rows = static_cast<std::int64_t>(ranks.rows),
          .cols = parts_.info.vocab_size,
          .k = ranks.k,
          .temperature = ranks.temperature};
}

ForwardStep::RankBuffers ForwardStep::lay_out(BumpArena& arena, const RankArgs& args) const {
  RankBuffers buffers;
  buffers.logits = arena.take<float>(count(args.rows * args.cols)).data();
  buffers.rest = arena.take<std::byte>(parts_.ops->workspace(args, threads_));
  return buffers;
}

std::size_t ForwardStep::rank_bytes(std::span<const Ranks> ranks, bool with_logits) const {
  std::size_t most = 0;
  for (const Ranks& each : ranks) {
    if (!with_logits) {
      most = std::max(most, parts_.ops->workspace(rank_args(each), threads_));
      continue;
    }
    BumpArena counting = BumpArena::counting();
    static_cast<void>(lay_out(counting, rank_args(each)));
    most = std::max(most, counting.used() + BumpArena::kAlignment);
  }
  return most;
}

std::size_t ForwardStep::sample_bytes(SampleArgs samples) const {
  if (samples.rows == 0) return 0;
  constexpr float kSome = 0.0F;
  samples.logits = &kSome;  // there are logits; no number is read
  return parts_.ops->workspace(samples, threads_);
}

void ForwardStep::enqueue(Stream& stream, const StepCall& call) {
  const ForwardResult::Arrays& out = call.out;
  const std::int64_t tokens = call.size.tokens;
  BumpArena arena(call.workspace);
  const Buffers buffers = lay_out(arena, tokens, rope_args_);
  const DeviceStatus status{.bad_layer = out.failed_layer};
  const ForwardContext context{.stream = stream,
                               .ops = *parts_.ops,
                               .workspace = buffers.rest,
                               .tokens = tokens,
                               .ids = call.in.ids,
                               .state = call.state,
                               .ropes = ropes_,
                               .selected = buffers.selected.data(),
                               .late = buffers.late,
                               .status = &status,
                               .clock = call.clock,
                               .counts = call.counts};
  stream.fill(out.failed_layer, DeviceStatus::kRoutedByte, count(tokens) * sizeof *out.failed_layer);
  stream.fill(out.counts, 0, count(call.counted) * sizeof *out.counts);
  context.enter(Phase::attention);
  make_ropes(context, call.in.positions);
  context.enter(Phase::embedding);
  parts_.embedding.lookup(context, buffers.hidden);
  scale(context, tokens, parts_.multipliers.embedding, buffers.hidden);
  run_layers(context, buffers);
  // What once is not finite stays so: residuals are added to.
  context.ops.find_not_finite(
      context.run_context({}),
      {.rows = tokens, .cols = parts_.info.hidden_size, .x = buffers.hidden, .bad = out.bad_tokens});
  if (call.size.head_rows == 0) return;
  gather_rows(context, call, buffers);
  run_head(context, call, buffers, 0, call.logit_rows, call.logits);
  for (const Ranks& ranks : call.ranks) rank(context, call, buffers, ranks);
}

void ForwardStep::enqueue_head(Stream& stream, const StepCall& call, std::size_t first, std::size_t rows,
                               float* logits) {
  BumpArena arena(call.workspace);
  const Buffers buffers = lay_out(arena, call.size.tokens, rope_args_);
  const ForwardContext context{.stream = stream, .ops = *parts_.ops, .workspace = buffers.rest, .clock = call.clock};
  context.enter(Phase::head);
  run_head(context, call, buffers, first, rows, logits);
}

void ForwardStep::enqueue_samples(Stream& stream, const StepCall& call, std::size_t first, std::size_t rows,
                                  const float* logits) const {
  if (rows == 0) return;
  if (call.clock != nullptr) call.clock->enter(Phase::other);
  SampleArgs args = call.samples;
  const std::int64_t words = mask_words(args.vocab);
  args.rows = static_cast<std::int32_t>(rows);
  args.logits = logits;
  args.params += first;
  args.logit_row += first;
  args.given += first;
  args.tops += first;
  args.counts_start += first;
  args.bias_start += first;
  if (args.mask != nullptr) args.mask += static_cast<std::int64_t>(first) * words;
  args.ids += first;
  args.logprobs += first;
  args.top += static_cast<std::int64_t>(first) * args.most_tops;
  parts_.ops->sample({.stream = stream, .workspace = call.scratch}, args);
}

void ForwardStep::scale(const ForwardContext& context, std::int64_t rows, float factor, float* x) const {
  if (factor == 1.0F) return;
  context.ops.scale(context.run_context({}), {.count = rows * parts_.info.hidden_size, .factor = factor, .x = x});
}

void ForwardStep::make_ropes(const ForwardContext& context, const std::int32_t* positions) {
  for (std::size_t r = 0; r < ropes_.size(); ++r) {
    RopeTableArgs& args = rope_args_[r];
    args.positions = positions;
    ropes_[r] = {.cos = args.cos, .sin = args.sin, .half = args.half};
    context.ops.rope_table(context.run_context({}), args);
  }
}

// A token that goes wrong makes no other sequence's tokens go wrong: the others are computed to the end. What a part
// adds to the residual stream waits in buffers.added, and is added by the norm behind it where that can.
void ForwardStep::run_layers(const ForwardContext& context, const Buffers& buffers) const {
  ResidualStream stream(context, buffers, parts_);
  bool late = false;  // the layer before has left something
  for (const TransformerLayer& layer : parts_.layers) {
    const float* x = nullptr;
    if (layer.mixer != nullptr) {
      x = stream.read(layer.input_norm);
      layer.mixer->run(context, x, buffers.added);
      stream.give(layer.mixer_norm);
    }
    if (layer.parallel) stream.join();
    if (layer.feed_forward != nullptr) {
      const NormedInput input = layer.parallel ? NormedInput(x) : stream.read_later(layer.post_norm);
      context.enter(Phase::dense);
      layer.feed_forward->run(context, input, buffers.added);
      stream.give(layer.feed_forward_norm);
    }
    if (late) stream.add_late();
    late = layer.late();
    if (layer.scalar.size != 0) stream.multiply(layer.scalar.data);
  }
  context.enter(Phase::norms);
  stream.join();
}

void ForwardStep::gather_rows(const ForwardContext& context, const StepCall& call, const Buffers& buffers) const {
  const std::int64_t rows = call.size.head_rows;
  context.stream.fill(call.out.bad_rows, 0, count(rows));
  context.ops.gather(context.run_context({}), {.rows = rows,
                                               .cols = parts_.info.hidden_size,
                                               .index = call.in.head_tokens,
                                               .from = buffers.hidden,
                                               .to = buffers.added});
  context.enter(Phase::norms);
  parts_.final_norm.run(context, rows, buffers.added, buffers.normed);
  scale(context, rows, parts_.multipliers.head, buffers.normed);
  context.enter(Phase::head);
}

void ForwardStep::run_head(const ForwardContext& context, const StepCall& call, const Buffers& buffers,
                           std::size_t first, std::size_t rows, float* logits) const {
  if (rows == 0) return;
  const auto row_count = static_cast<std::int64_t>(rows);
  parts_.head->run(context.run_context(context.workspace), row_count,
                   buffers.normed + static_cast<std::int64_t>(first) * parts_.info.hidden_size, logits);
  if (const float cap = parts_.multipliers.logit_cap; cap != 0.0F) {
    context.ops.softcap(context.run_context({}),
                        {.count = row_count * parts_.info.vocab_size, .cap = cap, .x = logits});
  }
  context.ops.find_not_finite(
      context.run_context({}),
      {.rows = row_count, .cols = parts_.info.vocab_size, .x = logits, .bad = call.out.bad_rows + first});
}

void ForwardStep::rank(const ForwardContext& context, const StepCall& call, const Buffers& buffers,
                       const Ranks& ranks) const {
  RankedOutput* const out = call.out.ranked + ranks.out;
  const TopKQuery query{.tokens = static_cast<std::int64_t>(ranks.rows),
                        .x = buffers.normed + static_cast<std::int64_t>(ranks.first) * parts_.info.hidden_size,
                        .k = ranks.k,
                        .seeds = ranks.seeded ? call.in.seeds + ranks.first : nullptr,
                        .temperature = ranks.temperature};
  const bool found =
      ranks.k <= kMaxHeadTopK && parts_.head->has_top_k() && parts_.multipliers.logit_cap == 0.0F &&
      parts_.head->top_k(context.run_context(context.workspace), query, {out, ranks.rows * count(ranks.k)});
  if (found) return;
  BumpArena arena(call.scratch);
  const RankBuffers scratch = lay_out(arena, rank_args(ranks));
  run_head(context, call, buffers, ranks.first, ranks.rows, scratch.logits);
  rank_rows(context.run_context(scratch.rest), call, ranks, scratch.logits);
}

void ForwardStep::rank_rows(const RunContext& context, const StepCall& call, const Ranks& ranks,
                            const float* logits) const {
  RankArgs args = rank_args(ranks);
  args.x = logits;
  args.bad = call.out.bad_rows + ranks.first;
  args.seeds = ranks.seeded ? call.in.seeds + ranks.first : nullptr;
  args.out = call.out.ranked + ranks.out;
  parts_.ops->top_k(context, args);
}

void ForwardStep::enqueue_ranks(Stream& stream, const StepCall& call, std::span<const Ranks> ranks) const {
  for (const Ranks& each : ranks) {
    const float* const logits = call.logits + static_cast<std::int64_t>(each.first) * parts_.info.vocab_size;
    rank_rows({.stream = stream, .workspace = call.scratch}, call, each, logits);
  }
}

}  // namespace moracle
