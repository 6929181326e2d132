// What one forward call brings to the device, in one upload.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "base/memory.h"
#include "kernels/args/state.h"
#include "model/forward/head_rows.h"
#include "model/forward/memory.h"
#include "model/state/state.h"

namespace moracle {

// Of a call. Equal sizes have equal addresses until the memory moves, but for samples. A call may be smaller than its
// size: tokens that it has not have an id of -1 and are of no span.
struct InputSize {
  std::int64_t tokens = 0;
  std::int64_t spans = 0;
  std::int64_t head_rows = 0;
  // Of BatchSamples.
  std::int64_t samples = 0;
  std::int64_t counts = 0;  // of tokens
  std::int64_t biases = 0;
  std::int64_t mask_words = 0;  // of all rows
};

class ForwardInputs {
 public:
  // Addresses on the device.
  struct Arrays {
    std::int32_t* ids = nullptr;          // [tokens]
    std::int32_t* positions = nullptr;    // [tokens]
    std::int32_t* count_rows = nullptr;   // [tokens], as of ExpertCounts
    std::int32_t* head_tokens = nullptr;  // [head_rows]
    std::uint64_t* seeds = nullptr;       // [head_rows]
    RecurrentSpan* recurrent = nullptr;   // [spans]
    std::span<KvSpan* const> kv{};        // by kind of blocks: [spans]
    SampleArgs samples{};                 // without outputs
  };

  ForwardInputs(std::shared_ptr<const StateLayout> layout, const Device& device)
      : layout_(std::move(layout)), device_(device), kv_(layout_->kinds().size()), kv_on_device_(kv_.size()) {}

  // Room for calls of a size whose sequences have so many blocks listed in all tables. True: addresses have changed.
  // Errors: those of MirroredMemory::reserve.
  Result<bool> reserve(const InputSize& size, std::size_t blocks);
  // Whether there is that room, so that reserve() would move nothing.
  [[nodiscard]] bool has_room(const InputSize& size, std::size_t blocks) {
    return bytes(size, blocks) <= memory_.image().size();
  }
  // What reserve() makes sure of.
  [[nodiscard]] std::size_t bytes(const InputSize& size, std::size_t blocks);
  // Blocks that these sequences have listed. Of the host none: it reads the states' own tables.
  [[nodiscard]] std::size_t listed_blocks(std::span<const SequenceSpan> spans) const;

  // Fills in a call, for which there is room. Tokens whose state counts its routing add to the row of their number
  // among such spans. `sample_rows`: the rows of logits that samples are of.
  void fill(const InputSize& size, const Batch& batch, std::span<const SequenceSpan> spans, const HeadRows& rows,
            std::span<const std::int32_t> sample_rows);
  void upload(Stream& stream) const { memory_.upload(stream, used_); }
  // Of what fill() laid out last.
  [[nodiscard]] const Arrays& arrays() const { return on_device_; }

 private:
  // `kv`: by kind of blocks, where its spans are.
  static Arrays lay_out(BumpArena& arena, const InputSize& size, std::span<KvSpan*> kv);
  [[nodiscard]] SampleArgs on_device(SampleArgs samples) const;
  void fill_tokens(const Arrays& images, const InputSize& size, const Batch& batch,
                   std::span<const SequenceSpan> spans) const;
  void fill_spans(const Arrays& images, const InputSize& size, std::span<const SequenceSpan> spans,
                  std::span<std::uint32_t> tables) const;
  // A table as the device reads it; takes from `room`.
  const std::uint32_t* table_on_device(std::span<const BlockId> table, std::span<std::uint32_t>& room) const;

  std::shared_ptr<const StateLayout> layout_;
  const Device& device_;
  MirroredMemory memory_;
  std::size_t used_ = 0;
  Arrays on_device_;
  std::vector<KvSpan*> kv_;  // of the image
  std::vector<KvSpan*> kv_on_device_;
};

}  // namespace moracle
