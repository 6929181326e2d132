// The bytes of one expert in the files of its checkpoint.
#pragma once

#include <cstddef>
#include <span>
#include <vector>

#include "base/result.h"
#include "checkpoint/checkpoint.h"
#include "scheme/canonical.h"

namespace moracle {

// What is read of an expert: its tensors in the order of the file, neighbours at once.
class ExpertExtents {
 public:
  ExpertExtents() = default;
  ExpertExtents(const CanonicalExperts::Expert& expert, const Checkpoint& checkpoint);

  // Whether every matrix reads a checkpoint, so that relocated() has them.
  [[nodiscard]] bool complete() const { return complete_; }
  // Of the memory that read() needs, whole disk blocks.
  [[nodiscard]] std::size_t room() const { return room_; }
  // No expert of so many stored bytes has more room().
  [[nodiscard]] static std::size_t most_room(std::size_t stored_bytes);
  // That are read, with what lies between tensors.
  [[nodiscard]] std::size_t bytes() const { return bytes_; }
  // Where they begin: experts in the order of this are in the order of the files.
  [[nodiscard]] const std::byte* first() const { return extents_.empty() ? nullptr : extents_.front().stored.data(); }
  // Reads them into `room`, of at least room() bytes and as Checkpoint::read wants it. Errors: those of that.
  Result<> read(const Checkpoint& checkpoint, std::span<std::byte> room);
  // The expert as a reader of what was read, as long as that memory is left as it is.
  [[nodiscard]] CanonicalExperts::Expert relocated(const CanonicalExperts::Expert& expert) const;

 private:
  struct Extent {
    std::span<const std::byte> stored;
    std::span<const std::byte> copy{};
  };
  [[nodiscard]] std::span<const std::byte> copy_of(std::span<const std::byte> part) const;

  std::vector<Extent> extents_;
  std::size_t room_ = 0;
  std::size_t bytes_ = 0;
  bool complete_ = false;
};

}  // namespace moracle
