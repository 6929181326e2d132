#include "model/forward/transformer.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "base/checked.h"
#include "base/generic/bisect.h"
#include "base/generic/count.h"
#include "device/host_device.h"

namespace moracle {

namespace {

// Bounds the sizes computed below; no machine holds the activations of a larger batch.
constexpr std::int64_t kMaxBatchTokens = std::int64_t{1} << 22;
// Rows of logits that a device keeps at a time; the host writes all where they are wanted.
constexpr std::size_t kDeviceLogitRows = 64;
static_assert(kDecodeSizes.back() == kDeviceLogitRows);
// What decode steps have room for, for each sequence: tokens that penalties count, biases, alternatives of a token.
constexpr std::int64_t kDecodeCounts = 4096;
constexpr std::int64_t kDecodeBiases = 512;
constexpr std::int32_t kDecodeTops = 32;

Error batch_error(std::string where, std::string wanted, std::string found) {
  return Error{
      .code = "model.batch", .where = std::move(where), .wanted = std::move(wanted), .found = std::move(found)};
}

std::shared_ptr<const StateLayout> layout_of(const TransformerParts& parts, std::int64_t prefill_chunk) {
  std::vector<LayerState> states;
  for (const TransformerLayer& layer : parts.layers) states.push_back(layer.state(*parts.ops));
  return std::make_shared<const StateLayout>(states, prefill_chunk);
}

}  // namespace

Transformer::Transformer(Parts parts, ThreadPool& pool)
    : parts_(std::move(parts)),
      device_(parts_.device != nullptr ? std::shared_ptr<Device>(parts_.device)
                                       : std::make_shared<HostDevice>(Machine{}, pool)),
      stream_(std::make_shared<Stream>(pool)),
      state_layout_(layout_of(parts_, prefill_chunk())),
      step_(parts_, on_host() ? pool.threads() : 0),
      calls_(state_layout_, *device_),
      decode_calls_(state_layout_, *device_),
      memory_(&calls_) {}

std::int64_t Transformer::prefill_chunk() const {
  if (parts_.prefill_chunk > 0) return parts_.prefill_chunk;
  return on_host() ? kHostPrefillChunk : kDevicePrefillChunk;
}

std::int64_t Transformer::decode_sequences() const {
  return on_host() ? Model::decode_sequences() : kDecodeSizes.back();
}

Result<> Transformer::make_pool(std::size_t bytes) {
  if (on_host()) {
    MORACLE_ASSIGN(blocks_, BlockLedger::make(state_layout_->block_bytes(), bytes, stream_));
  } else {
    MORACLE_ASSIGN(*stream_, device_->make_stream());
    MORACLE_ASSIGN(blocks_, BlockLedger::make(*device_, state_layout_->block_bytes(), bytes, stream_));
  }
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

CallBytes Transformer::call_bytes(const DeviceWorkspace& of, std::int64_t tokens) const {
  CallBytes most;
  for (const TransformerLayer& layer : parts_.layers) {
    if (layer.feed_forward == nullptr) continue;
    const CallBytes bytes = layer.feed_forward->call_bytes(of, tokens);
    most = {.device = std::max(most.device, bytes.device),
            .staging = std::max(most.staging, bytes.staging),
            .persistent = std::max(most.persistent, bytes.persistent)};
  }
  return most;
}

Result<> Transformer::reserve(std::int64_t tokens) {
  if (tokens <= reserved_tokens_) return Ok{};
  if (tokens > kMaxBatchTokens) {
    return batch_error("", "at most " + std::to_string(kMaxBatchTokens) + " tokens", std::to_string(tokens));
  }
  reserved_tokens_ = 0;
  for (const std::shared_ptr<DeviceWorkspace>& workspace : parts_.elsewhere) {
    MORACLE_TRY(reserve_calls(*workspace, tokens, parts_.info.experts_per_token,
                              [&](std::int64_t call) { return call_bytes(*workspace, call); }));
  }
  MORACLE_TRY(grow(*device_, workspace_bytes(tokens), "intermediate results", calls_.workspace));
  MORACLE_TRY(calls_.inputs.reserve({.tokens = tokens, .spans = tokens, .head_rows = tokens}, 0));
  MORACLE_TRY(calls_.results.reserve({.tokens = tokens, .head_rows = tokens}));
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
  return {.ids = ids_, .positions = positions_, .spans = wanted_, .samples = batch.samples, .logits = batch.logits};
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

void Transformer::fail_unread(std::size_t span, BatchResult& result) const {
  std::optional<Error>& error = result.spans[indices_[span]].error;
  if (!error) error = parts_.pool->last_error();
}

std::optional<ExpertSlots> Transformer::expert_slots() const {
  if (parts_.pool == nullptr) return std::nullopt;
  const PoolSize& size = parts_.pool->size();
  const PoolCounts counts = parts_.pool->counts();
  return ExpertSlots{.slots = size.slots,
                     .experts = size.experts,
                     .slot_bytes = size.slot_bytes,
                     .uses = counts.uses,
                     .hits = counts.hits,
                     .reads = counts.reads,
                     .read_bytes = counts.read_bytes,
                     .ahead = counts.ahead,
                     .foreseen = counts.foreseen,
                     .failures = counts.failures};
}

// Of each sequence, the token that went wrong in the lowest layer; then what is not finite behind the last one.
void Transformer::read_errors(BatchResult& result) const {
  const ForwardResult::Arrays& found = memory_->results.read();
  for (std::size_t s = 0; s < spans_.size(); ++s) {
    const std::int32_t* const first = found.failed_layer + spans_[s].begin;
    const std::int32_t* const bad = std::min_element(first, first + spans_[s].count);
    if (*bad == DeviceStatus::kRouted) continue;
    if (*bad == DeviceStatus::kUnread) {
      fail_unread(s, result);
      continue;
    }
    fail(s, spans_[s].begin + (bad - first), "the router logits of layer " + std::to_string(*bad), result);
  }
  for (std::size_t s = 0; s < spans_.size(); ++s) {
    for (std::int64_t t = spans_[s].begin; t < spans_[s].begin + spans_[s].count; ++t) {
      if (found.bad_tokens[t] != 0) fail(s, t, "the hidden states behind the last layer", result);
    }
  }
  fail_rows(0, rows_.rows().size(), result);
}

void Transformer::fail_rows(std::size_t first, std::size_t rows, BatchResult& result) const {
  for (std::size_t row = first; row < first + rows; ++row) {
    const HeadRow& at = rows_.rows()[row];
    if (memory_->results.read().bad_rows[row] != 0) fail(at.span, at.token, "the logits", result);
  }
}

void Transformer::read(BatchResult& result) const {
  const ForwardResult::Arrays& found = memory_->results.read();
  const std::uint32_t* counts = found.counts;
  for (const SequenceSpan& span : spans_) {
    std::uint32_t* const sums = span.state->routing();
    if (sums == nullptr) continue;
    for (std::int64_t i = 0; i < counts_.row_stride; ++i) sums[i] += counts[i];
    counts += counts_.row_stride;
  }
  read_errors(result);
  std::transform(found.ranked, found.ranked + rows_.ranked(), result.top.begin(), [](const RankedOutput& output) {
    return TokenLogit{.logit = output.value, .id = static_cast<std::int32_t>(output.row)};
  });
}

Result<> Transformer::compute_rows(const StepCall& call, std::size_t first, std::size_t rows, float* logits,
                                   BatchResult& result) {
  auto* const image = reinterpret_cast<float*>(logits_.image().data());
  float* const at = on_host() ? logits : logits_.on_device(image);
  step_.enqueue_head(*stream_, call, first, rows, at);
  const std::size_t before = samples_before(first);
  step_.enqueue_samples(*stream_, call, before, samples_before(first + rows) - before, at);
  const bool copied = !on_host() && logits != nullptr;
  if (copied) logits_.download(*stream_, 0, logit_bytes(rows));
  memory_->results.download(*stream_);
  MORACLE_TRY(stream_->wait());
  if (copied) std::copy_n(image, rows * count(parts_.info.vocab_size), logits);
  fail_rows(first, rows, result);
  return Ok{};
}

void Transformer::read_samples(BatchResult& result) const {
  const ForwardResult::Arrays& found = memory_->results.read();
  const std::size_t samples = sample_rows_.size();
  result.ids.assign(found.ids, found.ids + samples);
  result.logprobs.assign(found.logprobs, found.logprobs + samples);
  result.tops.assign(found.tops, found.tops + sample_tops_);
}

Result<> Transformer::read_logits(const StepCall& call, BatchResult& result) {
  if (on_host()) return Ok{};
  const std::size_t width = count(parts_.info.vocab_size);
  const std::size_t here = std::min(call.logit_rows, rows_.logit_rows());
  if (result.rows)
    std::copy_n(reinterpret_cast<const float*>(logits_.image().data()), here * width, result.logits.data());
  for (std::size_t row = here; row < rows_.logit_rows(); row += kDeviceLogitRows) {
    const std::size_t rows = std::min(kDeviceLogitRows, rows_.logit_rows() - row);
    float* const logits = result.rows ? result.logits.data() + row * width : nullptr;
    MORACLE_TRY(compute_rows(call, row, rows, logits, result));
  }
  return Ok{};
}

Result<> Transformer::complete_rows(const StepCall& call, BatchResult& result) {
  for (std::size_t row = rows_.logit_rows(); row < rows_.rows().size(); ++row) {
    const std::size_t span = rows_.rows()[row].span;
    const Batch::Span& wanted = wanted_[span];
    BatchResult::Span& given = result.spans[indices_[span]];
    if (wanted.min_share <= 0 || wanted.seed || wanted.top_k >= parts_.info.vocab_size || given.error) continue;
    const double best = result.top[given.top].logit;
    const double last = result.top[given.top + count(wanted.top_k) - 1].logit;
    if (std::exp((last - best) / wanted.temperature) < wanted.min_share) continue;
    given.all = true;
    given.logits = result.logits.size();
    result.logits.resize(given.logits + count(parts_.info.vocab_size));
    MORACLE_TRY(compute_rows(call, row, 1, result.logits.data() + given.logits, result));
  }
  return Ok{};
}

bool Transformer::reserve_states(const Batch& batch, BatchResult& result) {
  bool failed = false;
  for (std::size_t s = 0; s < spans_.size(); ++s) {
    Result<> ready = check_tokens(batch, spans_[s]);
    if (ready.ok()) ready = spans_[s].state->reserve(spans_[s].start + spans_[s].count);
    if (ready.ok()) continue;
    result.spans[s].error = std::move(ready).error();
    failed = true;
  }
  return failed;
}

Transformer::CallSize Transformer::size_of(const Batch& batch) const {
  const std::int64_t counting = std::count_if(
      spans_.begin(), spans_.end(), [](const SequenceSpan& span) { return span.state->routing() != nullptr; });
  const auto tokens = static_cast<std::int64_t>(batch.ids.size());
  return {.in = {.tokens = tokens, .spans = std::ssize(spans_), .head_rows = std::ssize(rows_.rows())},
          .out = {.counts = counting * layer_experts(),
                  .counted = counting > 0,
                  .tokens = tokens,
                  .head_rows = std::ssize(rows_.rows()),
                  .ranked = static_cast<std::int64_t>(rows_.ranked())},
          .logit_rows = rows_.logit_rows()};
}

void Transformer::list_samples(const Batch& batch, const BatchResult& result) {
  sample_rows_.clear();
  piece_rows_.clear();
  if (batch.samples == nullptr || rows_.logit_rows() == 0) return;
  const std::int64_t kept = on_host() ? std::ssize(rows_.rows()) : std::int64_t{kDeviceLogitRows};
  std::int64_t row = 0;
  for (const BatchSamples::Row& sample : batch.samples->rows) {
    const BatchResult::Span& span = result.spans[sample.span];
    // A span that has failed has no rows: its samples are drawn from others and say nothing.
    if (!span.error) row = static_cast<std::int64_t>(span.logits) / parts_.info.vocab_size + sample.row;
    sample_rows_.push_back(narrow<std::int32_t>(row));
    piece_rows_.push_back(narrow<std::int32_t>(row % kept));
  }
}

std::size_t Transformer::samples_before(std::size_t rows) const {
  return count(std::lower_bound(sample_rows_.begin(), sample_rows_.end(), static_cast<std::int64_t>(rows)) -
               sample_rows_.begin());
}

void Transformer::add_samples(const Batch& batch, CallSize& size) const {
  if (sample_rows_.empty()) return;
  const std::int64_t samples = std::ssize(sample_rows_);
  size.samples = batch.samples->args;
  size.samples.rows = static_cast<std::int32_t>(samples);
  size.samples.vocab = narrow<std::int32_t>(parts_.info.vocab_size);
  size.in.samples = size.out.samples = samples;
  size.in.counts = size.samples.counts_start[samples];
  size.in.biases = size.samples.bias_start[samples];
  size.in.mask_words = size.samples.mask == nullptr ? 0 : samples * mask_words(parts_.info.vocab_size);
  size.out.tops = samples * size.samples.most_tops;
}

Transformer::CallSize Transformer::decode_size(std::int64_t sequences) const {
  return {.in = {.tokens = sequences, .spans = sequences, .head_rows = sequences},
          .out = {.counts = sequences * layer_experts(), .tokens = sequences, .head_rows = sequences},
          .logit_rows = count(sequences)};
}

Transformer::CallSize Transformer::decode_room(std::int64_t sequences) const {
  CallSize size = decode_size(sequences);
  size.samples = {.rows = narrow<std::int32_t>(sequences),
                  .vocab = narrow<std::int32_t>(parts_.info.vocab_size),
                  .most_tops = kDecodeTops};
  size.in.samples = size.out.samples = sequences;
  size.in.counts = sequences * kDecodeCounts;
  size.in.biases = sequences * kDecodeBiases;
  size.in.mask_words = sequences * mask_words(parts_.info.vocab_size);
  size.out.ranked = sequences * kMaxHeadTopK;
  size.out.tops = sequences * kDecodeTops;
  return size;
}

std::size_t Transformer::most_listed(std::int64_t sequences) const {
  const std::int64_t blocks = ceil_div(parts_.info.max_context, kBlockTokens) * std::ssize(state_layout_->kinds());
  return count(sequences * blocks);
}

const Transformer::DecodeStep* Transformer::decode_step(const Batch& batch, CallSize& size) {
  const std::int64_t sequences = std::ssize(spans_);
  if (std::ssize(batch.ids) != sequences) return nullptr;
  const auto step =
      std::find_if(decode_.begin(), decode_.end(), [&](const DecodeStep& each) { return each.sequences >= sequences; });
  if (step == decode_.end()) return nullptr;
  CallSize own = decode_size(step->sequences);
  own.out.counted = size.out.counted;
  own.out.ranked = size.out.ranked;
  add_samples(batch, own);
  const bool has_room = decode_calls_.inputs.has_room(own.in, decode_calls_.inputs.listed_blocks(spans_)) &&
                        decode_calls_.results.has_room(own.out);
  if (!has_room) return nullptr;
  size = own;
  return &*step;
}

Result<> Transformer::reserve_call(const CallSize& size, std::size_t blocks) {
  MORACLE_TRY(memory_->inputs.reserve(size.in, blocks));
  MORACLE_TRY(memory_->results.reserve(size.out));
  const bool with_logits = memory_ == &calls_;
  const std::size_t scratch = std::max(step_.rank_bytes(rows_.ranks(), with_logits), step_.sample_bytes(size.samples));
  MORACLE_TRY(grow(*device_, scratch, "the choice of tokens", scratch_));
  if (on_host()) return Ok{};
  // Of one row at least, which may have to be completed. Decode steps have reserved all.
  const std::size_t rows = size.in.head_rows == 0 ? 0 : std::clamp<std::size_t>(size.logit_rows, 1, kDeviceLogitRows);
  MORACLE_TRY(logits_.reserve(*device_, logit_bytes(rows), "logits"));
  return Ok{};
}

StepCall Transformer::make_call(const CallSize& size, float* logits) {
  memory_->results.lay_out(size.out);
  const ForwardInputs::Arrays& in = memory_->inputs.arrays();
  sample_tops_ = count(size.out.tops);
  StepCall call{.size = size.in,
                .in = in,
                .out = memory_->results.on_device(),
                .counted = size.out.counts,
                .logit_rows = size.logit_rows,
                .logits = logits,
                .workspace = {memory_->workspace.data(), memory_->workspace.size()},
                .samples = in.samples,
                .scratch = {scratch_.data(), scratch_.size()},
                .clock = clock_};
  if (memory_ == &calls_) call.ranks = rows_.ranks();  // else enqueue_ranks() has them
  if (!on_host()) {
    call.logit_rows = std::min(call.logit_rows, kDeviceLogitRows);
    call.logits = logits_.on_device(reinterpret_cast<float*>(logits_.image().data()));
  }
  call.state = {.layout = state_layout_.get(),
                .ledger = blocks_.get(),
                .kv = call.in.kv,
                .recurrent = call.in.recurrent,
                .count = call.size.spans};
  call.samples.rows = size.samples.rows;
  call.samples.vocab = size.samples.vocab;
  call.samples.ids = call.out.ids;
  call.samples.logprobs = call.out.logprobs;
  call.samples.top = call.out.tops;
  counts_ = {.rows = call.in.count_rows, .counts = call.out.counts, .row_stride = layer_experts()};
  if (size.out.counts > 0) call.counts = &counts_;
  return call;
}

std::size_t Transformer::decode_bytes() const {
  const std::int64_t most = kDecodeSizes.back();
  const CallSize room = decode_room(most);
  ForwardInputs inputs(state_layout_, *device_);
  return step_.workspace_bytes(most) + inputs.bytes(room.in, most_listed(most)) + ForwardResult::bytes(room.out) +
         step_.sample_bytes(room.samples) + logit_bytes(kDeviceLogitRows);
}

std::size_t Transformer::graph_bytes() const {
  return kDecodeSizes.size() * parts_.layers.size() * kGraphLayerBytes;
}

Result<> Transformer::prepare_decode(std::span<const std::int64_t> sequences, bool graphs) {
  decode_.clear();
  graphs_ = {};
  if (on_host() || !parts_.elsewhere.empty() || sequences.empty()) return Ok{};
  const std::int64_t most = *std::max_element(sequences.begin(), sequences.end());
  const CallSize room = decode_room(most);
  MORACLE_TRY(grow(*device_, step_.workspace_bytes(most), "intermediate results", decode_calls_.workspace));
  MORACLE_TRY(decode_calls_.inputs.reserve(room.in, most_listed(most)));
  MORACLE_TRY(decode_calls_.results.reserve(room.out));
  MORACLE_TRY(grow(*device_, step_.sample_bytes(room.samples), "the choice of tokens", scratch_));
  MORACLE_TRY(logits_.reserve(*device_, logit_bytes(kDeviceLogitRows), "logits"));
  MORACLE_ASSIGN(const std::uint64_t before, parts_.device->free_memory());
  std::vector<DecodeStep> steps;
  for (const std::int64_t each : sequences) {
    steps.push_back({.sequences = each});
    if (graphs) MORACLE_TRY(capture(steps.back()));
  }
  MORACLE_ASSIGN(const std::uint64_t after, parts_.device->free_memory());
  graphs_ = {.sizes = std::ssize(steps),
             .captured = graphs ? std::ssize(steps) : 0,
             .bytes = before > after ? before - after : 0};
  std::sort(steps.begin(), steps.end(), [](const auto& a, const auto& b) { return a.sequences < b.sequences; });
  decode_ = std::move(steps);
  return Ok{};
}

// What a kernel needs of its first launch cannot be had in a capture, and what a step runs into is told by its wait.
Result<> Transformer::capture(DecodeStep& step) {
  memory_ = &decode_calls_;
  rows_ = HeadRows();
  const CallSize size = decode_size(step.sequences);
  memory_->inputs.fill(size.in, {}, {}, rows_, {});
  StepCall call = make_call(size, nullptr);
  call.clock = nullptr;
  memory_->inputs.upload(*stream_);
  step_.enqueue(*stream_, call);
  MORACLE_TRY(stream_->wait());
  MORACLE_ASSIGN(step.graph, stream_->capture([&] { step_.enqueue(*stream_, call); }));
  return Ok{};
}

Result<> Transformer::compute(const Batch& whole, std::span<SequenceState* const> states, BatchResult& result) {
  MORACLE_TRY(check(whole, states));
  result.spans.assign(spans_.size(), {});
  const Batch batch = reserve_states(whole, result) ? without_failed(whole, result) : whole;
  if (batch.ids.empty()) return Ok{};
  rows_.list(spans_, wanted_, indices_, parts_.info.vocab_size, result);
  result.rows = on_host() || batch.logits;
  result.logits.resize(result.rows ? rows_.logit_rows() * count(parts_.info.vocab_size) : 0);
  result.top.resize(rows_.ranked());
  list_samples(whole, result);
  CallSize size = size_of(batch);
  const DecodeStep* const decode = decode_step(batch, size);
  memory_ = decode != nullptr ? &decode_calls_ : &calls_;
  if (decode == nullptr) {
    add_samples(batch, size);
    MORACLE_TRY(reserve(static_cast<std::int64_t>(batch.ids.size())));
  }
  MORACLE_TRY(reserve_call(size, memory_->inputs.listed_blocks(spans_)));
  memory_->inputs.fill(size.in, batch, spans_, rows_, piece_rows_);
  const StepCall call = make_call(size, result.logits.data());
  Result<> done = run_step(call, decode, result);
  for (std::size_t s = 0; !done.ok() && s < spans_.size(); ++s) spans_[s].state->abandon();
  if (clock_ != nullptr) clock_->enter(Phase::other);
  return done;
}

void Transformer::enqueue(const StepCall& call, const DecodeStep* decode) {
  if (decode == nullptr) return step_.enqueue(*stream_, call);
  if (!decode->graph) {
    step_.enqueue(*stream_, call);
  } else {
    if (call.clock != nullptr) call.clock->enter(Phase::other);
    stream_->launch(*decode->graph);
    ++graphs_.replayed;
  }
  step_.enqueue_ranks(*stream_, call, rows_.ranks());
}

Result<> Transformer::run_step(const StepCall& call, const DecodeStep* decode, BatchResult& result) {
  memory_->inputs.upload(*stream_);
  enqueue(call, decode);
  const std::size_t wanted = std::min(call.logit_rows, rows_.logit_rows());
  step_.enqueue_samples(*stream_, call, 0, samples_before(wanted), call.logits);
  if (!on_host() && result.rows && wanted > 0) logits_.download(*stream_, 0, logit_bytes(wanted));
  memory_->results.download(*stream_);
  // A device that failed leaves NaN behind, which is not the cause.
  MORACLE_TRY(stream_->wait());
  read(result);
  MORACLE_TRY(read_logits(call, result));
  read_samples(result);
  return complete_rows(call, result);
}

Result<> Transformer::run(const Batch& batch, std::span<SequenceState* const> states, BatchResult& result) {
  Result<> done = compute(batch, states, result);
  for (BatchResult::Span& span : result.spans) {
    if (done.ok() && batch.whole && span.error) done = *std::move(span.error);
  }
  MORACLE_TRY(std::move(done));
  for (std::size_t s = 0; s < spans_.size(); ++s) {
    if (!result.spans[indices_[s]].error) spans_[s].state->commit(spans_[s].start + spans_[s].count);
  }
  return Ok{};
}

}  // namespace moracle
