// A checkpoint on a disk that tests make slow, or let fail.
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <memory>
#include <thread>
#include <utility>

#include "base/json.h"
#include "checkpoint/checkpoint.h"

namespace moracle::test {

// Reads of experts fail by number; all else is the checkpoint's.
class FaultyDisk final : public Checkpoint {
 public:
  explicit FaultyDisk(std::shared_ptr<const Checkpoint> whole) : whole_(std::move(whole)) {}

  // Every so many reads one fails; 0: none.
  void fail_every(std::int64_t reads) { every_ = reads; }
  void wait_for_each(std::chrono::microseconds time) { delay_ = time; }
  [[nodiscard]] std::int64_t reads() const { return reads_; }

  const std::filesystem::path& folder() const override { return whole_->folder(); }
  const Json& config() const override { return whole_->config(); }
  const std::map<std::string, TensorView, std::less<>>& tensors() const override { return whole_->tensors(); }
  std::uint64_t total_bytes() const override { return whole_->total_bytes(); }
  Result<> verify_unchanged() const override { return whole_->verify_unchanged(); }
  void copy(std::span<const std::byte> bytes, std::byte* to) const override { whole_->copy(bytes, to); }
  void release(std::span<const std::byte> bytes) const override { whole_->release(bytes); }
  bool in_one_file(std::span<const std::byte> bytes) const override { return whole_->in_one_file(bytes); }

  Result<std::span<const std::byte>> read(std::span<const std::byte> bytes, std::span<std::byte> room) const override {
    const std::int64_t number = ++reads_;
    std::this_thread::sleep_for(delay_);
    if (every_ > 0 && number % every_ == 0) {
      return Error{.code = "file.read", .file = "shard", .where = "byte 4096", .found = "Input/output error"};
    }
    return whole_->read(bytes, room);
  }

 private:
  std::shared_ptr<const Checkpoint> whole_;
  std::int64_t every_ = 0;
  std::chrono::microseconds delay_{0};
  mutable std::atomic<std::int64_t> reads_{0};
};

}  // namespace moracle::test
