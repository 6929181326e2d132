#include "model/forward/inputs.h"

#include <algorithm>

#include "base/generic/count.h"

namespace moracle {

ForwardInputs::Arrays ForwardInputs::lay_out(BumpArena& arena, const InputSize& size) {
  Arrays arrays;
  arrays.ids = arena.take<std::int32_t>(count(size.tokens)).data();
  arrays.positions = arena.take<std::int32_t>(count(size.tokens)).data();
  arrays.count_rows = arena.take<std::int32_t>(count(size.tokens)).data();
  arrays.head_tokens = arena.take<std::int32_t>(count(size.head_rows)).data();
  arrays.seeds = arena.take<std::uint64_t>(count(size.head_rows)).data();
  arrays.recurrent = arena.take<RecurrentSpan>(count(size.spans)).data();
  for (KvSpan*& spans : kv_) spans = arena.take<KvSpan>(count(size.spans)).data();
  arrays.kv = kv_;
  return arrays;
}

Result<bool> ForwardInputs::reserve(const InputSize& size, std::size_t blocks) {
  BumpArena counting = BumpArena::counting();
  static_cast<void>(lay_out(counting, size));
  static_cast<void>(counting.take<std::uint32_t>(blocks));
  return memory_.reserve(device_, counting.used() + BumpArena::kAlignment, "inputs of a call");
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
                         const HeadRows& rows) {
  BumpArena arena(memory_.image());
  const Arrays images = lay_out(arena, size);
  fill_tokens(images, size, batch, spans);
  fill_spans(images, size, spans, arena.take<std::uint32_t>(listed_blocks(spans)));
  const auto end = std::transform(rows.rows().begin(), rows.rows().end(), images.head_tokens,
                                  [](const HeadRow& row) { return static_cast<std::int32_t>(row.token); });
  std::fill(end, images.head_tokens + size.head_rows, 0);
  std::copy(rows.seeds().begin(), rows.seeds().end(), images.seeds);
  used_ = arena.used();
  std::transform(kv_.begin(), kv_.end(), kv_on_device_.begin(), [&](KvSpan* at) { return memory_.on_device(at); });
  on_device_ = {.ids = memory_.on_device(images.ids),
                .positions = memory_.on_device(images.positions),
                .count_rows = memory_.on_device(images.count_rows),
                .head_tokens = memory_.on_device(images.head_tokens),
                .seeds = memory_.on_device(images.seeds),
                .recurrent = memory_.on_device(images.recurrent),
                .kv = kv_on_device_};
}

void ForwardInputs::fill_tokens(const Arrays& images, const InputSize& size, const Batch& batch,
                                std::span<const SequenceSpan> spans) const {
  std::fill(std::copy(batch.ids.begin(), batch.ids.end(), images.ids), images.ids + size.tokens, 0);
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
