// The bytes of one expert in the files of its checkpoint.
#pragma once

#include <cstddef>
#include <span>
#include <vector>

#include "base/result.h"
#include "checkpoint/checkpoint.h"
#include "scheme/canonical.h"

namespace moracle {

// What is read of an expert: its tensors in the order of the file, neighbours at once, in pieces that several threads
// may read.
class ExpertExtents {
 public:
  ExpertExtents() = default;
  ExpertExtents(const CanonicalExperts::Expert& expert, const Checkpoint& checkpoint);

  // Whether every matrix reads a checkpoint, so that relocated() has them.
  [[nodiscard]] bool complete() const { return complete_; }
  // Of the memory that pieces are read into, whole disk blocks.
  [[nodiscard]] std::size_t room() const { return room_; }
  // No expert of so many stored bytes has more room().
  [[nodiscard]] static std::size_t most_room(std::size_t stored_bytes);
  // That are read, with what lies between tensors.
  [[nodiscard]] std::size_t bytes() const { return bytes_; }
  // Where they begin: experts in the order of this are in the order of the files.
  [[nodiscard]] const std::byte* first() const { return pieces_.empty() ? nullptr : pieces_.front().stored.data(); }
  [[nodiscard]] std::size_t pieces() const { return pieces_.size(); }
  [[nodiscard]] std::size_t bytes(std::size_t piece) const { return pieces_[piece].stored.size(); }
  // Reads one of them to its place in `room`, of at least room() bytes and as Checkpoint::read wants it. Thread-safe.
  // Errors: those of that.
  Result<> read(std::size_t piece, const Checkpoint& checkpoint, std::span<std::byte> room) const;
  // The expert as a reader of what was read into `room`, as long as that is left as it is.
  [[nodiscard]] CanonicalExperts::Expert relocated(const CanonicalExperts::Expert& expert,
                                                   std::span<const std::byte> room) const;

 private:
  // Bytes of a file, and where the block of the first one lies in the room. In it they are as far from a block's begin
  // as in the file, so that pieces of an extent lie there in one piece.
  struct Piece {
    std::span<const std::byte> stored;
    std::size_t block = 0;
  };
  [[nodiscard]] std::span<const std::byte> copy_of(std::span<const std::byte> part,
                                                   std::span<const std::byte> room) const;

  std::vector<Piece> extents_;
  std::vector<Piece> pieces_;  // of these
  std::size_t room_ = 0;
  std::size_t bytes_ = 0;
  bool complete_ = false;
};

}  // namespace moracle
