#include "model/run/transformer.h"

#include <algorithm>
#include <array>
#include <atomic>
#include <cmath>

#include "base/checked.h"
#include "base/gumbel.h"
#include "base/ranking.h"

namespace moracle {

namespace {

// Bounds the sizes computed below; no machine holds the activations of a larger batch.
constexpr std::int64_t kMaxBatchTokens = std::int64_t{1} << 22;

// Of a row, that one task looks through.
constexpr std::int64_t kCheckedLogits = 16384;

std::size_t count(std::int64_t n) {
  return static_cast<std::size_t>(n);
}

// The first of `kept` tokens by their keys.
void rank_logits(std::span<const float> logits, const TopK& which, std::size_t row, std::span<KeyedLogit> kept) {
  Ranking<KeyedLogit> ranking(kept);
  for (std::size_t i = 0; i < logits.size(); ++i) {
    KeyedLogit offered{.key = static_cast<double>(logits[i]),
                       .token = {.logit = logits[i], .id = static_cast<std::int32_t>(i)}};
    if (!which.seeds.empty()) {
      const double scaled = offered.key / which.temperature;
      if (i >= kept.size() && scaled + gumbel_bound(which.seeds[row], i) < ranking.last().key) continue;
      offered.key = scaled + gumbel(which.seeds[row], i);
    }
    ranking.offer(offered);
  }
  ranking.sort();
}

Error batch_error(std::string where, std::string wanted, std::string found) {
  return Error{
      .code = "model.batch", .where = std::move(where), .wanted = std::move(wanted), .found = std::move(found)};
}

}  // namespace

struct Transformer::Buffers {
  float* hidden = nullptr;  // [tokens, hidden], the residual stream
  float* normed = nullptr;  // [tokens, hidden]
  float* added = nullptr;   // [tokens, hidden]
};

Transformer::Transformer(Parts parts, ThreadPool& pool) : parts_(std::move(parts)), pool_(pool) {
  std::vector<LayerState> states;
  for (const TransformerLayer& layer : parts_.layers) states.push_back(layer.mixer->state());
  state_layout_ = std::make_shared<const StateLayout>(states);
}

Result<std::unique_ptr<SequenceState>> Transformer::new_sequence() const {
  MORACLE_ASSIGN(std::unique_ptr<PagedState> state, PagedState::make(state_layout_));
  return std::unique_ptr<SequenceState>(std::move(state));
}

std::size_t Transformer::block_workspace(std::int64_t tokens) const {
  std::size_t most = parts_.head->workspace_bytes(tokens, pool_.threads());
  for (const TransformerLayer& layer : parts_.layers) {
    most = std::max({most, layer.mixer->workspace_bytes(tokens, pool_.threads()),
                     layer.feed_forward->workspace_bytes(tokens, pool_.threads())});
  }
  return most;
}

std::size_t Transformer::workspace_bytes(std::int64_t tokens) const {
  std::size_t bytes = 3 * BumpArena::cost<float>(count(tokens * parts_.info.hidden)) + BumpArena::kAlignment +
                      block_workspace(tokens) + BumpArena::cost<RopeTable>(parts_.ropes.size());
  for (const RopeSpec& rope : parts_.ropes) bytes += 2 * BumpArena::cost<float>(count(tokens) * rope.inv_freq.size());
  return bytes;
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
  if (end > parts_.info.max_positions) {
    return Error{.code = "model.context",
                 .wanted = "at most " + std::to_string(parts_.info.max_positions) + " tokens in a sequence",
                 .found = std::to_string(end),
                 .advice = "shorten the prompt or generate fewer tokens"};
  }
  for (std::int64_t i = 0; i < span.count; ++i) {
    const std::size_t at = count(span.begin + i);
    if (batch.ids[at] < 0 || batch.ids[at] >= parts_.info.vocabulary) {
      return Error{.code = "model.token",
                   .where = "token " + std::to_string(at),
                   .wanted = "an id from 0 to " + std::to_string(parts_.info.vocabulary - 1),
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

// Fills spans_.
Result<> Transformer::check(const Batch& batch, std::span<SequenceState* const> states) {
  const auto tokens = static_cast<std::int64_t>(batch.ids.size());
  if (batch.positions.size() != batch.ids.size() || states.size() != batch.spans.size() || states.empty()) {
    return batch_error("", "a position for every id and a state for every span",
                       std::to_string(tokens) + " ids, " + std::to_string(batch.positions.size()) + " positions, " +
                           std::to_string(batch.spans.size()) + " spans, " + std::to_string(states.size()) + " states");
  }
  spans_.clear();
  std::int64_t next = 0;
  for (std::size_t s = 0; s < states.size(); ++s) {
    const Batch::Span& span = batch.spans[s];
    const auto where = [s] { return "sequence " + std::to_string(s); };
    if (span.begin != next || span.count < 1 || span.count > tokens - next) {
      return batch_error(where(), "spans that follow each other over " + std::to_string(tokens) + " ids",
                         "begin " + std::to_string(span.begin) + ", count " + std::to_string(span.count));
    }
    next += span.count;
    auto* const state = dynamic_cast<PagedState*>(states[s]);
    if (state == nullptr || state->layout() != state_layout_.get()) {
      return batch_error(where(), "a state of this model", "another one");
    }
    spans_.push_back({.begin = span.begin, .count = span.count, .start = state->length(), .state = state});
    MORACLE_TRY(check_tokens(batch, spans_.back()));
  }
  if (next != tokens) return batch_error("", "spans over all ids", std::to_string(tokens - next) + " ids are left");
  seen_.assign(states.begin(), states.end());
  std::sort(seen_.begin(), seen_.end());
  if (std::adjacent_find(seen_.begin(), seen_.end()) != seen_.end()) {
    return batch_error("", "each state once", "a state twice");
  }
  return Ok{};
}

void Transformer::fill_rope_tables(const Batch& batch, std::span<const RopeTable> tables) const {
  const auto tokens = static_cast<std::int64_t>(batch.ids.size());
  pool_.parallel_for(ceil_div(tokens, kTokenTile), [&](std::int64_t tile, int) {
    for (std::size_t r = 0; r < tables.size(); ++r) {
      const RopeSpec& rope = parts_.ropes[r];
      const std::size_t half = rope.inv_freq.size();
      for (std::int64_t t = tile * kTokenTile; t < std::min((tile + 1) * kTokenTile, tokens); ++t) {
        const auto position = static_cast<float>(batch.positions[count(t)]);
        float* const cos = tables[r].cos + count(t) * half;
        float* const sin = tables[r].sin + count(t) * half;
        for (std::size_t i = 0; i < half; ++i) {
          const float angle = position * rope.inv_freq[i];
          cos[i] = std::cos(angle) * rope.scale;
          sin[i] = std::sin(angle) * rope.scale;
        }
      }
    }
  });
}

Error Transformer::numeric_error(std::int64_t token, const std::string& place) const {
  std::size_t sequence = 0;
  while (sequence + 1 < spans_.size() && token >= spans_[sequence + 1].begin) ++sequence;
  const std::int64_t position = spans_[sequence].start + token - spans_[sequence].begin;
  return Error{.code = "numeric.nan",
               .where = "sequence " + std::to_string(sequence) + ", position " + std::to_string(position),
               .wanted = "finite numbers",
               .found = "NaN or infinity in " + place,
               .advice = "run 'moracle verify' on the model"};
}

Result<> Transformer::run_layers(const ForwardContext& context, Buffers& buffers) const {
  const std::int64_t tokens = context.tokens;
  const std::int64_t hidden = parts_.info.hidden;
  const auto add_residual = [&] {
    pool_.parallel_for(ceil_div(tokens, kTokenTile), [&](std::int64_t tile, int) {
      const std::int64_t begin = tile * kTokenTile * hidden;
      const std::int64_t end = std::min((tile + 1) * kTokenTile, tokens) * hidden;
      context.ops.add(buffers.added + begin, buffers.hidden + begin, end - begin);
    });
  };
  for (std::size_t l = 0; l < parts_.layers.size(); ++l) {
    const TransformerLayer& layer = parts_.layers[l];
    context.enter(Phase::norms);
    layer.input_norm.run(context, tokens, buffers.hidden, buffers.normed);
    layer.mixer->run(context, buffers.normed, buffers.added);
    context.enter(Phase::norms);
    add_residual();
    layer.post_norm.run(context, tokens, buffers.hidden, buffers.normed);
    context.enter(Phase::dense);
    const std::int64_t bad = layer.feed_forward->run(context, buffers.normed, buffers.added);
    if (bad >= 0) return numeric_error(bad, "the router logits of layer " + std::to_string(l));
    context.enter(Phase::norms);
    add_residual();
  }
  return Ok{};
}

std::int64_t Transformer::first_bad_row(const ForwardContext& context, std::int64_t rows,
                                        std::span<const float> logits) const {
  const std::int64_t vocabulary = parts_.info.vocabulary;
  const std::int64_t pieces = ceil_div(vocabulary, kCheckedLogits);
  std::atomic<std::int64_t> bad{rows};
  pool_.parallel_for(rows * pieces, [&](std::int64_t task, int) {
    const std::int64_t row = task / pieces;
    const std::int64_t first = task % pieces * kCheckedLogits;
    const float* const at = logits.data() + row * vocabulary + first;
    if (context.ops.finite(at, std::min(kCheckedLogits, vocabulary - first))) return;
    std::int64_t seen = bad.load();
    while (row < seen && !bad.compare_exchange_weak(seen, row)) {
    }
  });
  return bad == rows ? -1 : bad.load();
}

std::int64_t Transformer::gather_rows(const ForwardContext& context, LogitRows rows, Buffers& buffers) const {
  const std::int64_t hidden = parts_.info.hidden;
  const bool all = rows == LogitRows::all;
  const std::int64_t row_count = all ? context.tokens : static_cast<std::int64_t>(context.spans.size());
  if (!all) {
    // Rows move towards the front, so that none is overwritten before it was moved.
    for (std::size_t s = 0; s < context.spans.size(); ++s) {
      const float* const last = buffers.hidden + (context.spans[s].begin + context.spans[s].count - 1) * hidden;
      std::copy_n(last, hidden, buffers.hidden + static_cast<std::int64_t>(s) * hidden);
    }
  }
  context.enter(Phase::norms);
  parts_.final_norm.run(context, row_count, buffers.hidden, buffers.normed);
  context.enter(Phase::head);
  return row_count;
}

Result<> Transformer::write_logits(const ForwardContext& context, LogitRows rows, Buffers& buffers,
                                   std::vector<float>& logits) const {
  const std::int64_t row_count = gather_rows(context, rows, buffers);
  return multiply_head(context, rows, row_count, buffers, logits);
}

Result<> Transformer::multiply_head(const ForwardContext& context, LogitRows rows, std::int64_t row_count,
                                    const Buffers& buffers, std::vector<float>& logits) const {
  logits.resize(count(row_count * parts_.info.vocabulary));
  parts_.head->run(context.run_context(context.workspace), row_count, buffers.normed, logits.data());
  context.enter(Phase::other);
  const std::int64_t bad = first_bad_row(context, row_count, logits);
  if (bad < 0) return Ok{};
  const SequenceSpan* const span = rows == LogitRows::all ? nullptr : &context.spans[count(bad)];
  return numeric_error(span == nullptr ? bad : span->begin + span->count - 1, "the logits");
}

Result<> Transformer::write_top_k(const ForwardContext& context, const TopK& which, Buffers& buffers,
                                  std::vector<TokenLogit>& top) {
  const std::int64_t rows = gather_rows(context, LogitRows::last_of_each, buffers);
  const std::int64_t vocabulary = parts_.info.vocabulary;
  const std::int64_t k = std::min(which.k, vocabulary);
  top.resize(count(rows * k));
  if (k <= kMaxHeadTopK && parts_.head->has_top_k()) {
    ranked_.resize(top.size());
    const TopKQuery query{.tokens = rows,
                          .x = buffers.normed,
                          .k = k,
                          .seeds = which.seeds.empty() ? nullptr : which.seeds.data(),
                          .temperature = which.temperature};
    if (parts_.head->top_k(context.run_context(context.workspace), query, ranked_)) {
      context.enter(Phase::other);
      std::transform(ranked_.begin(), ranked_.end(), top.begin(), [](const RankedOutput& output) {
        return TokenLogit{.logit = output.value, .id = static_cast<std::int32_t>(output.row)};
      });
      return Ok{};
    }
  }
  MORACLE_TRY(multiply_head(context, LogitRows::last_of_each, rows, buffers, logits_));
  keyed_.resize(count(k));
  for (std::int64_t row = 0; row < rows; ++row) {
    const std::span<const float> logits(logits_.data() + row * vocabulary, count(vocabulary));
    rank_logits(logits, which, count(row), keyed_);
    std::transform(keyed_.begin(), keyed_.end(), top.begin() + row * k,
                   [](const KeyedLogit& kept) { return kept.token; });
  }
  return Ok{};
}

template <class Finish>
Result<> Transformer::run_batch(const Batch& batch, std::span<SequenceState* const> states, const Finish& finish) {
  MORACLE_TRY(check(batch, states));
  const auto tokens = static_cast<std::int64_t>(batch.ids.size());
  MORACLE_TRY(reserve(tokens));
  for (const SequenceSpan& span : spans_) MORACLE_TRY(span.state->reserve(span.start + span.count));

  const std::int64_t hidden = parts_.info.hidden;
  BumpArena arena({workspace_.data(), workspace_.size()});
  Buffers buffers{.hidden = arena.take<float>(count(tokens * hidden)).data(),
                  .normed = arena.take<float>(count(tokens * hidden)).data(),
                  .added = arena.take<float>(count(tokens * hidden)).data()};
  const auto tables = arena.take<RopeTable>(parts_.ropes.size());
  for (std::size_t r = 0; r < tables.size(); ++r) {
    const std::size_t floats = count(tokens) * parts_.ropes[r].inv_freq.size();
    tables[r] = {.cos = arena.take<float>(floats).data(), .sin = arena.take<float>(floats).data()};
  }
  const ForwardContext context{.pool = pool_,
                               .ops = *parts_.ops,
                               .workspace = arena.take<std::byte>(block_workspace(tokens)),
                               .tokens = tokens,
                               .ids = batch.ids.data(),
                               .spans = spans_,
                               .ropes = tables,
                               .clock = clock_};
  context.enter(Phase::attention);
  fill_rope_tables(batch, tables);
  context.enter(Phase::embedding);
  pool_.parallel_for(ceil_div(tokens, kTokenTile), [&](std::int64_t tile, int) {
    for (std::int64_t t = tile * kTokenTile; t < std::min((tile + 1) * kTokenTile, tokens); ++t) {
      parts_.embedding.lookup(batch.ids[count(t)], buffers.hidden + t * hidden);
    }
  });
  Result<> ran = run_layers(context, buffers);
  // A device that failed leaves NaN behind, which is not the cause.
  if (parts_.device != nullptr) MORACLE_TRY(parts_.device->stage().status());
  MORACLE_TRY(std::move(ran));
  MORACLE_TRY(finish(context, buffers));
  for (const SequenceSpan& span : spans_) span.state->commit(span.start + span.count);
  return Ok{};
}

Result<> Transformer::forward(const Batch& batch, std::span<SequenceState* const> states, LogitRows rows,
                              std::vector<float>& logits) {
  return run_batch(batch, states, [&](const ForwardContext& context, Buffers& buffers) {
    return write_logits(context, rows, buffers, logits);
  });
}

Result<> Transformer::forward_top_k(const Batch& batch, std::span<SequenceState* const> states, const TopK& which,
                                    std::vector<TokenLogit>& top) {
  return run_batch(batch, states, [&](const ForwardContext& context, Buffers& buffers) {
    return write_top_k(context, which, buffers, top);
  });
}

}  // namespace moracle
