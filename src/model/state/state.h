// State of one sequence, in blocks of 64 positions that are allocated as it grows.
#pragma once

#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

#include "base/memory.h"
#include "base/result.h"
#include "model/model.h"

namespace moracle {

inline constexpr std::int64_t kBlockTokens = 64;

// What one layer keeps: floats for each block of positions (keys and values, a latent, ...), and floats that do not
// grow with the sequence (a recurrent state).
struct LayerState {
  std::int64_t block_floats = 0;
  std::int64_t fixed_floats = 0;
};

// Where each layer's floats lie inside a block and inside the fixed part.
class StateLayout {
 public:
  explicit StateLayout(const std::vector<LayerState>& layers);
  [[nodiscard]] std::int64_t block_floats() const { return block_floats_; }
  [[nodiscard]] std::int64_t fixed_floats() const { return fixed_floats_; }
  // Of a sequence of `length` positions, as it is allocated: whole blocks, and the fixed part twice.
  [[nodiscard]] std::size_t bytes(std::int64_t length) const;
  [[nodiscard]] std::int64_t block_offset(std::size_t layer) const { return offsets_[layer].block_floats; }
  [[nodiscard]] std::int64_t fixed_offset(std::size_t layer) const { return offsets_[layer].fixed_floats; }

 private:
  std::vector<LayerState> offsets_;
  std::int64_t block_floats_ = 0;
  std::int64_t fixed_floats_ = 0;
};

// One block holds all layers' share of 64 positions, so that a sequence allocates once in 64 tokens. Floats start as
// zero.
class PagedState final : public SequenceState {
 public:
  static Result<std::unique_ptr<PagedState>> make(std::shared_ptr<const StateLayout> layout);

  [[nodiscard]] std::int64_t length() const override { return length_; }
  // Copies everything; null when the system has no memory for it.
  [[nodiscard]] std::unique_ptr<SequenceState> fork() const override;

  // Makes room for `length` positions. Errors: "memory.allocate"; the state is then as before.
  Result<> reserve(std::int64_t length);
  // The end of a call that worked: its positions are held, and next_fixed() becomes fixed().
  void commit(std::int64_t length) {
    length_ = length;
    std::swap(fixed_, next_fixed_);
  }

  [[nodiscard]] float* block(std::size_t layer, std::int64_t index) {
    return floats(blocks_[static_cast<std::size_t>(index)]) + layout_->block_offset(layer);
  }
  // What the held positions left behind. A call reads it and writes all of its own into next_fixed(), so that one that
  // fails has changed nothing.
  [[nodiscard]] const float* fixed(std::size_t layer) { return floats(fixed_) + layout_->fixed_offset(layer); }
  [[nodiscard]] float* next_fixed(std::size_t layer) { return floats(next_fixed_) + layout_->fixed_offset(layer); }
  [[nodiscard]] const StateLayout* layout() const { return layout_.get(); }

 private:
  explicit PagedState(std::shared_ptr<const StateLayout> layout) : layout_(std::move(layout)) {}
  static float* floats(PageBuffer& buffer) { return reinterpret_cast<float*>(buffer.data()); }

  std::shared_ptr<const StateLayout> layout_;
  std::vector<PageBuffer> blocks_;
  PageBuffer fixed_;
  PageBuffer next_fixed_;
  std::int64_t length_ = 0;
};

}  // namespace moracle
