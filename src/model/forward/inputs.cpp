#include "model/forward/inputs.h"

#include <algorithm>

#include "base/generic/count.h"

namespace moracle {

namespace {

// A copy of `count` T; null where there are none. A counting arena copies nothing.
template <class T>
const T* place(BumpArena& arena, const T* from, std::int64_t count) {
  if (count == 0) return nullptr;
  const std::span<T> to = arena.take<T>(moracle::count(count));
  std::copy_n(from, to.size(), to.data());
  return to.data();
}

SampleArgs place(BumpArena& arena, const InputSize& size, SampleArgs samples) {
  const std::int64_t starts = size.samples == 0 ? 0 : size.samples + 1;
  samples.params = place(arena, samples.params, size.samples);
  samples.logit_row = place(arena, samples.logit_row, size.samples);
  samples.given = place(arena, samples.given, size.samples);
  samples.tops = place(arena, samples.tops, size.samples);
  samples.counts_start = place(arena, samples.counts_start, starts);
  samples.bias_start = place(arena, samples.bias_start, starts);
  samples.counts = place(arena, samples.counts, size.counts);
  samples.bias = place(arena, samples.bias, size.biases);
  samples.mask = place(arena, samples.mask, size.mask_words);
  return samples;
}

}  // namespace

ForwardInputs::Arrays ForwardInputs::lay_out(BumpArena& arena, const InputSize& size, std::span<KvSpan*> kv) {
  Arrays arrays;
  arrays.ids = arena.take<std::int32_t>(count(size.tokens)).data();
  arrays.positions = arena.take<std::int32_t>(count(size.tokens)).data();
  arrays.count_rows = arena.take<std::int32_t>(count(size.tokens)).data();
  arrays.head_tokens = arena.take<std::int32_t>(count(size.head_rows)).data();
  arrays.seeds = arena.take<std::uint64_t>(count(size.head_rows)).data();
  arrays.recurrent = arena.take<RecurrentSpan>(count(size.spans)).data();
  for (KvSpan*& spans : kv) spans = arena.take<KvSpan>(count(size.spans)).data();
  arrays.kv = kv;
  return arrays;
}

std::size_t ForwardInputs::bytes(const InputSize& size, std::size_t blocks) {
  BumpArena counting = BumpArena::counting();
  static_cast<void>(lay_out(counting, size, kv_));
  static_cast<void>(counting.take<std::uint32_t>(blocks));
  static_cast<void>(place(counting, size, {}));
  return counting.used() + BumpArena::kAlignment;
}

Result<bool> ForwardInputs::reserve(const InputSize& size, std::size_t blocks) {
  return memory_.reserve(device_, bytes(size, blocks), "inputs of a call");
}

std::size_t ForwardInputs::listed_blocks(std::span<const SequenceSpan> spans) const {
  std::size_t blocks = 0;
  if (is_host(device_)) return blocks;
  for (const SequenceSpan& span : spans) {
    for (std::size_t kind = 0; kind < kv_.size(); ++kind) blocks += span.state->table(kind).size();
  }
  return blocks;
}

void ForwardInputs::fill(const InputSize& size, const Batch& batch, std::span<const SequenceSpan> spans,
                         const HeadRows& rows, std::span<const std::int32_t> sample_rows) {
  BumpArena arena(memory_.image());
  const Arrays images = lay_out(arena, size, kv_);
  fill_tokens(images, size, batch, spans);
  fill_spans(images, size, spans, arena.take<std::uint32_t>(listed_blocks(spans)));
  const auto end = std::transform(rows.rows().begin(), rows.rows().end(), images.head_tokens,
                                  [](const HeadRow& row) { return static_cast<std::int32_t>(row.token); });
  std::fill(end, images.head_tokens + size.head_rows, 0);
  std::copy(rows.seeds().begin(), rows.seeds().end(), images.seeds);
  SampleArgs samples = batch.samples != nullptr ? batch.samples->args : SampleArgs{};
  samples.logit_row = sample_rows.data();
  samples = place(arena, size, samples);
  used_ = arena.used();
  BumpArena there(memory_.memory());
  on_device_ = lay_out(there, size, kv_on_device_);
  on_device_.samples = on_device(samples);
}

SampleArgs ForwardInputs::on_device(SampleArgs samples) const {
  const auto move = [&](auto*& at) {
    if (at != nullptr) at = memory_.on_device(at);
  };
  move(samples.params);
  move(samples.logit_row);
  move(samples.given);
  move(samples.tops);
  move(samples.counts_start);
  move(samples.bias_start);
  move(samples.counts);
  move(samples.bias);
  move(samples.mask);
  return samples;
}

void ForwardInputs::fill_tokens(const Arrays& images, const InputSize& size, const Batch& batch,
                                std::span<const SequenceSpan> spans) const {
  std::fill(std::copy(batch.ids.begin(), batch.ids.end(), images.ids), images.ids + size.tokens, -1);
  std::fill(std::copy(batch.positions.begin(), batch.positions.end(), images.positions), images.positions + size.tokens,
            0);
  std::fill_n(images.count_rows, size.tokens, -1);
  std::int32_t row = 0;
  for (const SequenceSpan& span : spans) {
    if (span.state->routing() != nullptr) std::fill_n(images.count_rows + span.begin, span.count, row++);
  }
}

void ForwardInputs::fill_spans(const Arrays& images, const InputSize& size, std::span<const SequenceSpan> spans,
                               std::span<std::uint32_t> tables) const {
  std::fill_n(images.recurrent, size.spans, RecurrentSpan{});
  for (std::size_t s = 0; s < spans.size(); ++s) {
    images.recurrent[s] = {.begin = spans[s].begin,
                           .count = spans[s].count,
                           .before = spans[s].state->fixed_block(),
                           .after = spans[s].state->next_fixed_block()};
  }
  for (std::size_t kind = 0; kind < images.kv.size(); ++kind) {
    std::fill_n(images.kv[kind], size.spans, KvSpan{});
    for (std::size_t s = 0; s < spans.size(); ++s) {
      images.kv[kind][s] = {.begin = spans[s].begin,
                            .count = spans[s].count,
                            .start = spans[s].start,
                            .table = table_on_device(spans[s].state->table(kind), tables)};
    }
  }
}

const std::uint32_t* ForwardInputs::table_on_device(std::span<const BlockId> table,
                                                    std::span<std::uint32_t>& room) const {
  if (is_host(device_)) return table.data();
  const std::uint32_t* const at = memory_.on_device(room.data());
  std::copy(table.begin(), table.end(), room.begin());
  room = room.subspan(table.size());
  return at;
}

}  // namespace moracle
