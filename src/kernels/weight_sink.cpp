#include "kernels/weight_sink.h"

#include <atomic>

#include "base/first_error.h"

namespace moracle {

Result<> write_blocks(WeightSink& sink, ThreadPool& pool, std::int64_t count, std::uint64_t bytes,
                      FunctionRef<Result<>(std::int64_t, std::span<std::byte>, int)> write) {
  FirstError failed;
  std::atomic<std::int64_t> next{0};
  pool.parallel_for(sink.workers(pool.threads()), [&](std::int64_t place, int) {
    const int worker = static_cast<int>(place);
    for (std::int64_t block = next++; block < count && !failed.failed(); block = next++) {
      const std::span<std::byte> staged = sink.stage(static_cast<std::uint64_t>(block) * bytes, bytes, worker);
      Result<> written = write(block, staged, worker);
      failed.keep(block, written.ok() ? sink.commit(worker) : std::move(written));
    }
  });
  return failed.take();
}

}  // namespace moracle
