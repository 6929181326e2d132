// Slots for packed experts, fewer than the model has: an expert that is not there is read from its file and packed.
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "base/memory.h"
#include "base/result.h"
#include "base/thread_pool.h"
#include "checkpoint/checkpoint.h"
#include "kernels/expert_store.h"
#include "slots/disk_reader.h"
#include "slots/policy.h"

namespace moracle {

struct PoolSize {
  std::size_t slots = 0;       // at least 1
  std::size_t slot_bytes = 0;  // of the largest packed expert
  std::size_t read_bytes = 0;  // ExpertExtents::room() of the largest stored one
  std::size_t experts = 0;     // of all layers

  // Experts that are read or packed at a time, beside the slots.
  static constexpr std::size_t kReads = 8;
  [[nodiscard]] std::size_t bytes() const { return slots * slot_bytes + kReads * read_bytes; }
};

// What has happened since the load.
struct PoolCounts {
  std::uint64_t uses = 0;        // experts that layers have asked for, once a call
  std::uint64_t hits = 0;        // of those, in a slot
  std::uint64_t reads = 0;       // experts that were asked for
  std::uint64_t read_bytes = 0;  // of the files, with what was read ahead in vain
  std::uint64_t ahead = 0;       // experts of which reads were begun ahead
  std::uint64_t foreseen = 0;    // of those, asked for
  std::uint64_t failures = 0;    // reads and packs
};

// Slots are shared by all layers; which expert gives way, AgeingFrequency says. Layers are used in turn, from one
// thread; counts are read from any.
class ExpertPool final : public ExpertStore {
 public:
  // Errors: "memory.allocate".
  static Result<std::shared_ptr<ExpertPool>> make(std::shared_ptr<const Checkpoint> checkpoint, const PoolSize& size);

  Result<std::unique_ptr<LayerExperts>> add(CanonicalExperts experts, std::size_t block_bytes,
                                            PackExpert pack) override;

  // The layer that was added last; it is whoever's who added it. Null: none was.
  [[nodiscard]] LayerExperts* newest() const;
  [[nodiscard]] const PoolSize& size() const { return size_; }
  [[nodiscard]] PoolCounts counts() const;
  // The error of the read or pack that failed last; empty: none has.
  [[nodiscard]] const std::optional<Error>& last_error() const { return last_error_; }

 private:
  class Layer;
  static constexpr std::size_t kNone = SIZE_MAX;
  struct Slot {
    std::size_t expert = kNone;  // of the pool
    bool held = false;           // by the call under way
    bool expected = false;       // by the next one
  };
  // What a read is for: nothing, the call under way, the one that is expected, or nobody any more.
  enum class Want : std::uint8_t { none, now, ahead, dropped };
  struct Read {
    ReadJob job{};
    Want want = Want::none;
    std::size_t expert = kNone;  // of the pool

    [[nodiscard]] bool ready() const { return want == Want::now && job.done(); }
    [[nodiscard]] bool free() const { return want == Want::none || (want == Want::dropped && job.done()); }
  };
  struct Counters {
    std::atomic<std::uint64_t> uses{0}, hits{0}, reads{0}, ahead{0}, foreseen{0}, failures{0};
  };

  ExpertPool(std::shared_ptr<const Checkpoint> checkpoint, const PoolSize& size);
  [[nodiscard]] std::span<std::byte> block(std::size_t slot) {
    return {slots_memory_.data() + slot * size_.slot_bytes, size_.slot_bytes};
  }
  // Ends what a call before has left.
  void drop_call();
  // A slot that the call does not hold, emptied; it is held then. What is expected gives way last.
  std::size_t take_slot();
  void read(Read& read, std::size_t expert, ExpertExtents extents, Want want);
  // Makes a read that was begun ahead one of the call under way; false: there is none.
  [[nodiscard]] bool adopt(std::size_t expert);
  // Ends reads that were begun ahead and not adopted, and what was expected for the call that begins.
  void forget_expected();
  void expect(Layer* layer);

  std::shared_ptr<const Checkpoint> checkpoint_;
  PoolSize size_;
  PageBuffer slots_memory_, read_memory_;
  std::vector<Slot> slots_;
  std::vector<std::size_t> slot_of_;    // by expert of the pool, or kNone
  std::vector<std::size_t> evictable_;  // of take_slot()
  std::size_t added_ = 0;               // experts, of layers so far
  Layer* newest_ = nullptr;
  AgeingFrequency policy_;
  Counters counters_;
  std::optional<Error> last_error_;
  std::array<Read, PoolSize::kReads> reads_;
  Layer* expecting_ = nullptr;        // the layer whose experts are read ahead
  bool foretold_ = false;             // by expect() since the last begin()
  std::optional<DiskReader> reader_;  // last: its threads use the rest
};

}  // namespace moracle
