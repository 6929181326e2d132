// Threads that read experts, so that a disk has several requests at a time.
#pragma once

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <mutex>
#include <optional>
#include <span>
#include <thread>
#include <vector>

#include "base/first_error.h"
#include "base/generic/function_ref.h"
#include "base/result.h"
#include "checkpoint/checkpoint.h"
#include "slots/extents.h"

namespace moracle {

// When a piece is read: before all that is read ahead, or once nobody waits for the disk.
enum class ReadWhen : std::uint8_t { now, ahead };

// One expert to be read.
struct ReadJob {
  ExpertExtents extents{};  // of at least one piece
  std::span<std::byte> room{};
  std::optional<FirstError> error{};  // of pieces, once it is submitted
  std::atomic<std::size_t> left{0};   // pieces; 0: it is done

  [[nodiscard]] bool done() const { return left == 0; }
};

class DiskReader {
 public:
  static constexpr int kThreads = 4;  // with fewer a disk of flash idles between requests
  // Where the system has no thread to give, submit() reads what is wanted now, and has nothing read ahead.
  DiskReader(const Checkpoint& checkpoint, int threads);
  ~DiskReader();
  DiskReader(const DiskReader&) = delete;
  DiskReader& operator=(const DiskReader&) = delete;

  // Pieces are read in the order of jobs; a job stays where it is until it is done or the reader has ended.
  void submit(ReadJob& job, ReadWhen when = ReadWhen::now);
  // What is left of a job that was to be read ahead is wanted now.
  void hasten(ReadJob& job);
  // Nobody wants what is left of a job that was to be read ahead: it is done once pieces under way are.
  void drop(ReadJob& job);
  [[nodiscard]] bool reads_ahead() const { return !threads_.empty(); }
  // That were read since the start.
  [[nodiscard]] std::uint64_t bytes() const { return bytes_; }
  // Returns once `enough()` holds, which looks at jobs.
  void wait(FunctionRef<bool()> enough);

 private:
  void work();
  struct Piece {
    ReadJob* job;
    std::size_t index;
  };
  void read(const Piece& piece);
  // A piece that may be read now. The mutex is held.
  [[nodiscard]] bool has_piece() const;

  const Checkpoint& checkpoint_;
  std::mutex mutex_;  // of what follows
  std::condition_variable submitted_, finished_;
  std::deque<Piece> pieces_, ahead_;
  int reading_ahead_ = 0;  // threads
  bool stop_ = false;
  std::atomic<std::uint64_t> bytes_{0};
  std::vector<std::jthread> threads_;  // last: they use the rest
};

}  // namespace moracle
