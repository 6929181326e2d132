#include "model/forward/transformer.h"

#include <algorithm>
#include <utility>

#include "base/checked.h"
#include "base/generic/bisect.h"
#include "base/generic/count.h"

namespace moracle {

namespace {

// Bounds the sizes computed below; no machine holds the activations of a larger batch.
constexpr std::int64_t kMaxBatchTokens = std::int64_t{1} << 22;

Error batch_error(std::string where, std::string wanted, std::string found) {
  return Error{
      .code = "model.batch", .where = std::move(where), .wanted = std::move(wanted), .found = std::move(found)};
}

}  // namespace

struct Transformer::Buffers {
  float* hidden = nullptr;  // [tokens, hidden], the residual stream
  float* normed = nullptr;  // [tokens, hidden]
  float* added = nullptr;   // [tokens, hidden]
  std::span<RopeTable> ropes{};
  std::span<RopeTableArgs> rope_args{};
  std::span<std::int32_t> bad_layer{};  // of DeviceStatus
  std::span<std::byte> rest{};          // of one block after the other
};

Transformer::Transformer(Parts parts, ThreadPool& pool)
    : parts_(std::move(parts)), pool_(pool), stream_(std::make_shared<Stream>(pool)) {
  std::vector<LayerState> states;
  for (const TransformerLayer& layer : parts_.layers) states.push_back(layer.mixer->state(*parts_.ops));
  state_layout_ = std::make_shared<const StateLayout>(states, prefill_chunk());
}

Result<> Transformer::make_pool(std::size_t bytes) {
  MORACLE_ASSIGN(blocks_, BlockLedger::make(state_layout_->block_bytes(), bytes, stream_));
  prefixes_ = std::make_unique<PrefixStore>(state_layout_, blocks_);
  const auto fits = [&](std::int64_t length) {
    std::size_t taken = 2 * blocks_->footprint(state_layout_->fixed_kind());
    for (std::size_t kind = 0; kind < state_layout_->kinds().size(); ++kind) {
      taken += count(state_layout_->blocks(kind, length)) * blocks_->footprint(kind);
    }
    return taken <= bytes;
  };
  most_held_ = largest_that(parts_.info.max_context, fits);
  return Ok{};
}

StateMemory Transformer::state_memory() const {
  if (blocks_ == nullptr) return {};
  return {.budget = blocks_->budget(), .used = blocks_->used(), .positions = most_held_};
}

Result<std::unique_ptr<SequenceState>> Transformer::new_sequence() const {
  if (blocks_ == nullptr) {
    return Error{.code = "memory.state", .wanted = "a model that is loaded", .found = "one that is laid out"};
  }
  return std::make_unique<SequenceState>(state_layout_, blocks_);
}

std::size_t Transformer::block_workspace(std::int64_t tokens) const {
  std::size_t most = parts_.head->workspace_bytes(tokens, pool_.threads());
  for (const TransformerLayer& layer : parts_.layers) {
    most = std::max({most, layer.mixer->workspace_bytes(*parts_.ops, tokens, pool_.threads()),
                     layer.feed_forward->workspace_bytes(tokens, pool_.threads())});
  }
  return most;
}

Transformer::Buffers Transformer::lay_out(BumpArena& arena, std::int64_t tokens) const {
  const std::size_t floats = count(tokens * parts_.info.hidden_size);
  Buffers buffers{.hidden = arena.take<float>(floats).data(),
                  .normed = arena.take<float>(floats).data(),
                  .added = arena.take<float>(floats).data()};
  buffers.ropes = arena.take<RopeTable>(parts_.ropes.size());
  buffers.rope_args = arena.take<RopeTableArgs>(parts_.ropes.size());
  for (std::size_t r = 0; r < parts_.ropes.size(); ++r) {
    const Rope& rope = parts_.ropes[r];
    const std::size_t size = count(tokens * rope.inv_freq.size);
    float* const cos = arena.take<float>(size).data();
    float* const sin = arena.take<float>(size).data();
    if (buffers.ropes.empty()) continue;  // only counted
    buffers.ropes[r] = {.cos = cos, .sin = sin, .half = rope.inv_freq.size};
    buffers.rope_args[r] = {.tokens = tokens,
                            .half = rope.inv_freq.size,
                            .inv_freq = rope.inv_freq.data,
                            .scale = rope.scale,
                            .cos = cos,
                            .sin = sin};
  }
  buffers.bad_layer = arena.take<std::int32_t>(count(tokens));
  buffers.rest = arena.take<std::byte>(block_workspace(tokens));
  return buffers;
}

std::size_t Transformer::workspace_bytes(std::int64_t tokens) const {
  BumpArena counting = BumpArena::counting();
  static_cast<void>(lay_out(counting, tokens));
  return counting.used() + BumpArena::kAlignment;
}

StageBytes Transformer::stage_bytes(std::int64_t tokens) const {
  StageBytes most;
  for (const TransformerLayer& layer : parts_.layers) {
    const StageBytes bytes = layer.feed_forward->stage_bytes(tokens);
    most = {.device = std::max(most.device, bytes.device),
            .pinned = std::max(most.pinned, bytes.pinned),
            .kept = std::max(most.kept, bytes.kept)};
  }
  return most;
}

Result<> Transformer::reserve(std::int64_t tokens) {
  if (tokens <= reserved_tokens_) return Ok{};
  if (tokens > kMaxBatchTokens) {
    return batch_error("", "at most " + std::to_string(kMaxBatchTokens) + " tokens", std::to_string(tokens));
  }
  workspace_ = PageBuffer();
  reserved_tokens_ = 0;
  for (const TransformerLayer& layer : parts_.layers) MORACLE_TRY(layer.feed_forward->reserve(tokens));
  MORACLE_ASSIGN(workspace_, PageBuffer::allocate(workspace_bytes(tokens)));
  reserved_tokens_ = tokens;
  return Ok{};
}

Result<> Transformer::check_tokens(const Batch& batch, const SequenceSpan& span) const {
  const std::int64_t end = span.start + span.count;
  if (end > parts_.info.max_context) {
    return Error{.code = "model.context",
                 .wanted = "at most " + std::to_string(parts_.info.max_context) + " tokens in a sequence",
                 .found = std::to_string(end),
                 .advice = "shorten the prompt or generate fewer tokens"};
  }
  for (std::int64_t i = 0; i < span.count; ++i) {
    const std::size_t at = count(span.begin + i);
    if (batch.ids[at] < 0 || batch.ids[at] >= parts_.info.vocab_size) {
      return Error{.code = "model.token",
                   .where = "token " + std::to_string(at),
                   .wanted = "an id from 0 to " + std::to_string(parts_.info.vocab_size - 1),
                   .found = std::to_string(batch.ids[at])};
    }
    if (batch.positions[at] != span.start + i) {
      return Error{.code = "model.positions",
                   .where = "token " + std::to_string(at),
                   .wanted = "position " + std::to_string(span.start + i) + ", which continues the state",
                   .found = std::to_string(batch.positions[at])};
    }
  }
  return Ok{};
}

Result<> Transformer::check(const Batch& batch, std::span<SequenceState* const> states) {
  const auto tokens = static_cast<std::int64_t>(batch.ids.size());
  if (batch.positions.size() != batch.ids.size() || states.size() != batch.spans.size() || states.empty()) {
    return batch_error("", "a position for every id and a state for every span",
                       std::to_string(tokens) + " ids, " + std::to_string(batch.positions.size()) + " positions, " +
                           std::to_string(batch.spans.size()) + " spans, " + std::to_string(states.size()) + " states");
  }
  spans_.clear();
  wanted_.assign(batch.spans.begin(), batch.spans.end());
  indices_.clear();
  std::int64_t next = 0;
  for (std::size_t s = 0; s < states.size(); ++s) {
    const Batch::Span& span = batch.spans[s];
    const auto where = [s] { return "sequence " + std::to_string(s); };
    if (span.begin != next || span.count < 1 || span.count > tokens - next) {
      return batch_error(where(), "spans that follow each other over " + std::to_string(tokens) + " ids",
                         "begin " + std::to_string(span.begin) + ", count " + std::to_string(span.count));
    }
    next += span.count;
    if (span.rows < 0 || span.rows > span.count || span.top_k < 0 || (span.top_k > 0 && span.rows != 1)) {
      return batch_error(where(), "logits of none to all of its tokens, or the highest of the last one",
                         std::to_string(span.rows) + " rows, top_k " + std::to_string(span.top_k));
    }
    SequenceState* const state = states[s];
    if (state == nullptr || state->layout() != state_layout_.get()) {
      return batch_error(where(), "a state of this model", "another one");
    }
    spans_.push_back({.begin = span.begin, .count = span.count, .start = state->length(), .state = state});
    indices_.push_back(s);
  }
  if (next != tokens) return batch_error("", "spans over all ids", std::to_string(tokens - next) + " ids are left");
  seen_.assign(states.begin(), states.end());
  std::sort(seen_.begin(), seen_.end());
  if (std::adjacent_find(seen_.begin(), seen_.end()) != seen_.end()) {
    return batch_error("", "each state once", "a state twice");
  }
  return Ok{};
}

Batch Transformer::without_failed(const Batch& batch, const BatchResult& result) {
  ids_.clear();
  positions_.clear();
  std::size_t kept = 0;
  for (std::size_t s = 0; s < spans_.size(); ++s) {
    if (result.spans[indices_[s]].error) continue;
    SequenceSpan span = spans_[s];
    const auto ids = batch.ids.subspan(count(span.begin), count(span.count));
    const auto positions = batch.positions.subspan(count(span.begin), count(span.count));
    span.begin = std::ssize(ids_);
    ids_.insert(ids_.end(), ids.begin(), ids.end());
    positions_.insert(positions_.end(), positions.begin(), positions.end());
    spans_[kept] = span;
    wanted_[kept] = wanted_[s];
    indices_[kept] = indices_[s];
    ++kept;
  }
  spans_.resize(kept);
  wanted_.resize(kept);
  indices_.resize(kept);
  return {.ids = ids_, .positions = positions_, .spans = wanted_};
}

std::size_t Transformer::span_of(std::int64_t token) const {
  std::size_t span = 0;
  while (span + 1 < spans_.size() && token >= spans_[span + 1].begin) ++span;
  return span;
}

void Transformer::fail(std::size_t span, std::int64_t token, const std::string& place, BatchResult& result) const {
  std::optional<Error>& error = result.spans[indices_[span]].error;
  if (error) return;
  const std::int64_t position = spans_[span].start + token - spans_[span].begin;
  error = Error{.code = "numeric.nan",
                .where = "sequence " + std::to_string(indices_[span]) + ", position " + std::to_string(position),
                .wanted = "finite numbers",
                .found = "NaN or infinity in " + place,
                .advice = "run 'moracle verify' on the model"};
}

// Adds the choices of a layer to the counts of the spans' states.
class Transformer::SpanTally final : public RoutingTally {
 public:
  SpanTally(std::span<const SequenceSpan> spans, std::int64_t experts) : spans_(spans), experts_(experts) {}

  [[nodiscard]] bool counts() const {
    return std::any_of(spans_.begin(), spans_.end(),
                       [](const SequenceSpan& span) { return span.state->routing() != nullptr; });
  }
  void enter(std::size_t layer) { layer_ = layer; }
  void count(std::int64_t top_k, std::span<const std::int32_t> ids) override {
    for (const SequenceSpan& span : spans_) {
      if (span.state->routing() == nullptr) continue;
      std::uint32_t* const experts = span.state->routing() + layer_ * moracle::count(experts_);
      const std::int32_t* const end = ids.data() + (span.begin + span.count) * top_k;
      for (const std::int32_t* id = ids.data() + span.begin * top_k; id != end; ++id) {
        if (*id >= 0 && *id < experts_) ++experts[*id];
      }
    }
  }

 private:
  std::span<const SequenceSpan> spans_;
  std::int64_t experts_;
  std::size_t layer_ = 0;
};

// A token that goes wrong makes no other sequence's tokens go wrong: the others are computed to the end.
void Transformer::run_layers(const ForwardContext& context, SpanTally& tally, Buffers& buffers) const {
  const std::int64_t tokens = context.tokens;
  const std::int64_t hidden = parts_.info.hidden_size;
  const RunContext run = context.run_context({});
  const AddArgs residual{.count = tokens * hidden, .x = buffers.added, .sum = buffers.hidden};
  for (std::size_t l = 0; l < parts_.layers.size(); ++l) {
    const TransformerLayer& layer = parts_.layers[l];
    tally.enter(l);
    context.enter(Phase::norms);
    layer.input_norm.run(context, tokens, buffers.hidden, buffers.normed);
    layer.mixer->run(context, buffers.normed, buffers.added);
    context.enter(Phase::norms);
    context.ops.add(run, residual);
    layer.post_norm.run(context, tokens, buffers.hidden, buffers.normed);
    context.enter(Phase::dense);
    layer.feed_forward->run(context, buffers.normed, buffers.added);
    context.enter(Phase::norms);
    context.ops.add(run, residual);
  }
}

// Of each sequence, the token that went wrong in the lowest layer.
void Transformer::tell_unrouted(const DeviceStatus& status, BatchResult& result) const {
  for (std::size_t s = 0; s < spans_.size(); ++s) {
    const std::int32_t* const first = status.bad_layer + spans_[s].begin;
    const std::int32_t* const bad = std::min_element(first, first + spans_[s].count);
    if (*bad == DeviceStatus::kRouted) continue;
    fail(s, spans_[s].begin + (bad - first), "the router logits of layer " + std::to_string(*bad), result);
  }
}

// What once is not finite stays so: residuals are added to.
void Transformer::find_bad_tokens(const ForwardContext& context, const Buffers& buffers, BatchResult& result) {
  const std::int64_t tokens = context.tokens;
  const std::int64_t hidden = parts_.info.hidden_size;
  bad_.resize(count(tokens));
  context.ops.find_not_finite(context.run_context({}),
                              {.rows = tokens, .cols = hidden, .x = buffers.hidden, .bad = bad_.data()});
  for (std::int64_t t = 0; t < tokens; ++t) {
    if (bad_[count(t)] != 0) fail(span_of(t), t, "the hidden states behind the last layer", result);
  }
}

void Transformer::list_head_rows(BatchResult& result) {
  head_rows_.clear();
  seeds_.clear();
  ranks_.clear();
  for (std::size_t s = 0; s < spans_.size(); ++s) {
    const Batch::Span& wanted = wanted_[s];
    result.spans[indices_[s]].logits = head_rows_.size() * count(parts_.info.vocab_size);
    const std::int64_t rows = wanted.top_k > 0 ? 0 : wanted.rows;
    for (std::int64_t i = rows; i > 0; --i) {
      head_rows_.push_back({.span = s, .token = spans_[s].begin + spans_[s].count - i});
    }
  }
  logit_rows_ = head_rows_.size();
  seeds_.resize(head_rows_.size());
  std::size_t top = 0;
  const auto alike = [](const Batch::Span& a, const Batch::Span& b) {
    return a.top_k == b.top_k && a.seed.has_value() == b.seed.has_value() &&
           (!a.seed || a.temperature == b.temperature);
  };
  for (std::size_t s = 0; s < spans_.size(); ++s) {
    const Batch::Span& wanted = wanted_[s];
    if (wanted.top_k == 0) continue;
    const auto before = std::find_if(wanted_.begin(), wanted_.end(), [&](const auto& w) { return alike(w, wanted); });
    if (count(before - wanted_.begin()) < s) continue;  // listed with the first that is like it
    Ranks ranks{.first = head_rows_.size(),
                .k = std::min(wanted.top_k, parts_.info.vocab_size),
                .seeded = wanted.seed.has_value(),
                .temperature = wanted.temperature};
    for (std::size_t other = s; other < spans_.size(); ++other) {
      if (!alike(wanted_[other], wanted)) continue;
      head_rows_.push_back({.span = other, .token = spans_[other].begin + spans_[other].count - 1});
      seeds_.push_back(wanted_[other].seed.value_or(0));
      result.spans[indices_[other]].top = top;
      top += count(ranks.k);
      ++ranks.rows;
    }
    ranks_.push_back(ranks);
  }
  result.logits.resize(logit_rows_ * count(parts_.info.vocab_size));
  result.top.resize(top);
}

void Transformer::gather_rows(const ForwardContext& context, Buffers& buffers) {
  gathered_.resize(head_rows_.size());
  std::transform(head_rows_.begin(), head_rows_.end(), gathered_.begin(),
                 [](const HeadRow& row) { return static_cast<std::int32_t>(row.token); });
  context.ops.gather(context.run_context({}), {.rows = std::ssize(head_rows_),
                                               .cols = parts_.info.hidden_size,
                                               .index = gathered_.data(),
                                               .from = buffers.hidden,
                                               .to = buffers.added});
  context.enter(Phase::norms);
  parts_.final_norm.run(context, std::ssize(head_rows_), buffers.added, buffers.normed);
  context.enter(Phase::head);
}

void Transformer::gemm_head(const ForwardContext& context, const Buffers& buffers, std::size_t first, std::size_t rows,
                            std::vector<float>& logits, BatchResult& result) {
  const std::int64_t vocabulary = parts_.info.vocab_size;
  const auto row_count = static_cast<std::int64_t>(rows);
  if (rows == 0) return;
  logits.resize(rows * count(vocabulary));
  parts_.head->run(context.run_context(context.workspace), row_count,
                   buffers.normed + static_cast<std::int64_t>(first) * parts_.info.hidden_size, logits.data());
  bad_.resize(rows);
  context.ops.find_not_finite(context.run_context({}),
                              {.rows = row_count, .cols = vocabulary, .x = logits.data(), .bad = bad_.data()});
  for (std::size_t row = 0; row < rows; ++row) {
    if (bad_[row] != 0) fail(head_rows_[first + row].span, head_rows_[first + row].token, "the logits", result);
  }
}

void Transformer::write_top_k(const ForwardContext& context, const Buffers& buffers, const Ranks& ranks,
                              TokenLogit* top, BatchResult& result) {
  ranked_.resize(ranks.rows * count(ranks.k));
  const TopKQuery query{.tokens = static_cast<std::int64_t>(ranks.rows),
                        .x = buffers.normed + static_cast<std::int64_t>(ranks.first) * parts_.info.hidden_size,
                        .k = ranks.k,
                        .seeds = ranks.seeded ? seeds_.data() + ranks.first : nullptr,
                        .temperature = ranks.temperature};
  const bool found = ranks.k <= kMaxHeadTopK && parts_.head->has_top_k() &&
                     parts_.head->top_k(context.run_context(context.workspace), query, ranked_);
  if (!found) {
    gemm_head(context, buffers, ranks.first, ranks.rows, logits_, result);
    const RankArgs args{.rows = query.tokens,
                        .cols = parts_.info.vocab_size,
                        .k = ranks.k,
                        .x = logits_.data(),
                        .bad = bad_.data(),
                        .seeds = query.seeds,
                        .temperature = ranks.temperature,
                        .out = ranked_.data()};
    rank_workspace_.resize(context.ops.workspace(args, pool_.threads()));
    context.ops.top_k(context.run_context(rank_workspace_), args);
  }
  std::transform(ranked_.begin(), ranked_.end(), top, [](const RankedOutput& output) {
    return TokenLogit{.logit = output.value, .id = static_cast<std::int32_t>(output.row)};
  });
}

void Transformer::complete_rows(const ForwardContext& context, const Buffers& buffers, BatchResult& result) {
  for (std::size_t row = logit_rows_; row < head_rows_.size(); ++row) {
    const Batch::Span& wanted = wanted_[head_rows_[row].span];
    BatchResult::Span& given = result.spans[indices_[head_rows_[row].span]];
    if (wanted.min_share <= 0 || wanted.seed || wanted.top_k >= parts_.info.vocab_size || given.error) continue;
    const double best = result.top[given.top].logit;
    const double last = result.top[given.top + count(wanted.top_k) - 1].logit;
    if (std::exp((last - best) / wanted.temperature) < wanted.min_share) continue;
    gemm_head(context, buffers, row, 1, logits_, result);
    given.all = true;
    given.logits = result.logits.size();
    result.logits.insert(result.logits.end(), logits_.begin(), logits_.end());
  }
}

Result<> Transformer::compute(const Batch& whole, std::span<SequenceState* const> states, BatchResult& result) {
  MORACLE_TRY(check(whole, states));
  result.spans.assign(spans_.size(), {});
  bool failed = false;
  for (std::size_t s = 0; s < spans_.size(); ++s) {
    Result<> ready = check_tokens(whole, spans_[s]);
    if (ready.ok()) ready = spans_[s].state->reserve(spans_[s].start + spans_[s].count);
    if (ready.ok()) continue;
    result.spans[s].error = std::move(ready).error();
    failed = true;
  }
  const Batch batch = failed ? without_failed(whole, result) : whole;
  const auto tokens = static_cast<std::int64_t>(batch.ids.size());
  if (tokens == 0) return Ok{};
  MORACLE_TRY(reserve(tokens));

  BumpArena arena({workspace_.data(), workspace_.size()});
  Buffers buffers = lay_out(arena, tokens);
  std::fill(buffers.bad_layer.begin(), buffers.bad_layer.end(), DeviceStatus::kRouted);
  const DeviceStatus status{.bad_layer = buffers.bad_layer.data()};
  SpanTally tally(spans_, parts_.info.experts);
  const ForwardContext context{.stream = *stream_,
                               .ops = *parts_.ops,
                               .workspace = buffers.rest,
                               .tokens = tokens,
                               .ids = batch.ids.data(),
                               .spans = spans_,
                               .ropes = buffers.ropes,
                               .status = &status,
                               .clock = clock_,
                               .tally = tally.counts() ? &tally : nullptr};
  context.enter(Phase::attention);
  for (RopeTableArgs& rope : buffers.rope_args) {
    rope.positions = batch.positions.data();
    context.ops.rope_table(context.run_context({}), rope);
  }
  context.enter(Phase::embedding);
  parts_.embedding.lookup(context, buffers.hidden);
  run_layers(context, tally, buffers);
  // A device that failed leaves NaN behind, which is not the cause.
  MORACLE_TRY(stream_->wait());
  tell_unrouted(status, result);
  find_bad_tokens(context, buffers, result);
  list_head_rows(result);
  if (!head_rows_.empty()) gather_rows(context, buffers);
  gemm_head(context, buffers, 0, logit_rows_, result.logits, result);
  TokenLogit* top = result.top.data();
  for (const Ranks& ranks : ranks_) {
    write_top_k(context, buffers, ranks, top, result);
    top += ranks.rows * count(ranks.k);
  }
  complete_rows(context, buffers, result);
  context.enter(Phase::other);
  return Ok{};
}

Result<> Transformer::run(const Batch& batch, std::span<SequenceState* const> states, BatchResult& result) {
  MORACLE_TRY(compute(batch, states, result));
  for (std::size_t s = 0; s < spans_.size(); ++s) {
    if (!result.spans[indices_[s]].error) spans_[s].state->commit(spans_[s].start + spans_[s].count);
  }
  return Ok{};
}

Result<> Transformer::run_whole(const Batch& batch, std::span<SequenceState* const> states, BatchResult& result) {
  MORACLE_TRY(compute(batch, states, result));
  for (BatchResult::Span& span : result.spans) {
    if (span.error) return *std::move(span.error);
  }
  for (const SequenceSpan& span : spans_) span.state->commit(span.start + span.count);
  return Ok{};
}

Result<> Transformer::forward(const Batch& batch, std::span<SequenceState* const> states, LogitRows rows,
                              std::vector<float>& logits) {
  asked_.assign(batch.spans.begin(), batch.spans.end());
  for (Batch::Span& span : asked_) {
    span.rows = rows == LogitRows::all ? span.count : 1;
    span.top_k = 0;
  }
  result_.logits.swap(logits);
  Result<> done = run_whole({.ids = batch.ids, .positions = batch.positions, .spans = asked_}, states, result_);
  result_.logits.swap(logits);
  return done;
}

Result<> Transformer::forward_top_k(const Batch& batch, std::span<SequenceState* const> states, const TopK& which,
                                    std::vector<TokenLogit>& top) {
  asked_.assign(batch.spans.begin(), batch.spans.end());
  for (std::size_t s = 0; s < asked_.size(); ++s) {
    asked_[s].rows = 1;
    asked_[s].top_k = which.k;
    asked_[s].seed = which.seeds.empty() ? std::nullopt : std::optional(which.seeds[s]);
    asked_[s].temperature = which.temperature;
    asked_[s].min_share = 0;
  }
  result_.top.swap(top);
  Result<> done = run_whole({.ids = batch.ids, .positions = batch.positions, .spans = asked_}, states, result_);
  result_.top.swap(top);
  return done;
}

}  // namespace moracle
