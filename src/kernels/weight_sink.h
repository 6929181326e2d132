// Where the bytes of a pack go while it is packed.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "base/generic/function_ref.h"
#include "base/result.h"
#include "base/thread_pool.h"

namespace moracle {

// Each worker stages a part of the pack, fills it and commits it. What is written holds no address, so that it can lie
// anywhere.
class WeightSink {
 public:
  virtual ~WeightSink() = default;
  // Workers that it serves at a time, out of `threads`.
  [[nodiscard]] virtual int workers(int threads) const { return threads; }
  // Zeroed memory for bytes [offset, offset + size) of the pack, the worker's until it commits.
  virtual std::span<std::byte> stage(std::uint64_t offset, std::size_t size, int worker) = 0;
  // Errors: "device.call".
  virtual Result<> commit(int worker) = 0;
};

// Fresh pages of the host: what is staged is the pack.
class HostSink final : public WeightSink {
 public:
  explicit HostSink(std::byte* pack) : pack_(pack) {}
  std::span<std::byte> stage(std::uint64_t offset, std::size_t size, int /*worker*/) override {
    return {pack_ + offset, size};
  }
  Result<> commit(int /*worker*/) override { return Ok{}; }

 private:
  std::byte* pack_;
};

// Calls `write(i, worker)`, which stages and commits, for each i below `count` on the sink's workers. Errors: those of
// `write`, the lowest i's first.
Result<> on_workers(const WeightSink& sink, ThreadPool& pool, std::int64_t count,
                    FunctionRef<Result<>(std::int64_t, int)> write);

// Writes `count` blocks of `bytes` each, one behind the other; `write(i, block, worker)` fills block i, on the threads
// of the pool. Errors: those of `write` and commit(), the lowest block's first.
Result<> write_blocks(WeightSink& sink, ThreadPool& pool, std::int64_t count, std::uint64_t bytes,
                      FunctionRef<Result<>(std::int64_t, std::span<std::byte>, int)> write);

}  // namespace moracle
