// Threads that read experts, so that a disk has several requests at a time.
#pragma once

#include <atomic>
#include <condition_variable>
#include <deque>
#include <mutex>
#include <span>
#include <thread>
#include <vector>

#include "base/generic/function_ref.h"
#include "base/result.h"
#include "checkpoint/checkpoint.h"
#include "slots/extents.h"

namespace moracle {

// One expert to be read.
struct ReadJob {
  ExpertExtents extents{};
  std::span<std::byte> room{};
  Result<> result = Ok{};         // once it is done
  std::atomic<bool> done{false};  // set last
};

class DiskReader {
 public:
  // Where the system has no thread to give, submit() reads.
  DiskReader(const Checkpoint& checkpoint, int threads);
  ~DiskReader();
  DiskReader(const DiskReader&) = delete;
  DiskReader& operator=(const DiskReader&) = delete;

  // Jobs are begun in their order; one stays where it is until it is done or the reader has ended.
  void submit(ReadJob& job);
  // Returns once `enough()` holds, which looks at jobs.
  void wait(FunctionRef<bool()> enough);

 private:
  void work();
  void finish(ReadJob& job);

  const Checkpoint& checkpoint_;
  std::mutex mutex_;  // of what follows
  std::condition_variable submitted_, finished_;
  std::deque<ReadJob*> jobs_;
  bool stop_ = false;
  std::vector<std::jthread> threads_;  // last: they use the rest
};

}  // namespace moracle
