// Prefetches a checkpoint while a load packs it.
#pragma once

#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <mutex>
#include <span>
#include <thread>
#include <vector>

namespace moracle {

// A thread that asks the system for the bytes of one step of a load after the other, each step's in the order of the
// file, so that many reads of the disk are under way while all cores pack. Who needs a page that has not come yet waits
// for that page.
class Prefetcher {
 public:
  // Bytes of mapped files, by step, in any order. They stay mapped for as long as this object lives.
  using Steps = std::vector<std::vector<std::span<const std::byte>>>;
  // Prefetched and not needed yet, beyond the step that is being packed: what a fast disk reads in a tenth of a second.
  static constexpr std::uint64_t kWindow = std::uint64_t{512} << 20;

  // Where the system has no thread to give, nothing is prefetched.
  explicit Prefetcher(Steps steps, std::uint64_t window = kWindow);
  ~Prefetcher();
  Prefetcher(const Prefetcher&) = delete;
  Prefetcher& operator=(const Prefetcher&) = delete;

  // Steps up to this one are packed. From one thread.
  void packed(std::size_t step);

  // Bytes so far.
  [[nodiscard]] std::uint64_t prefetched() const;

 private:
  void read();
  // Waits until the window has room for one byte more than were prefetched. False: nobody needs more.
  bool has_room();

  std::uint64_t window_;
  Steps runs_;                       // of each step, in the order of the file, neighbours joined
  std::vector<std::uint64_t> ends_;  // bytes of all steps up to and with this one
  mutable std::mutex mutex_;         // of what follows
  std::condition_variable moved_;
  std::uint64_t prefetched_ = 0;
  std::uint64_t limit_ = 0;  // of prefetched_
  bool stop_ = false;
  std::jthread thread_;  // last: it uses the rest
};

}  // namespace moracle
