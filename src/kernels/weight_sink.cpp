#include "kernels/weight_sink.h"

#include <atomic>

#include "base/first_error.h"

namespace moracle {

Result<> on_workers(const WeightSink& sink, ThreadPool& pool, std::int64_t count,
                    FunctionRef<Result<>(std::int64_t, int)> write) {
  FirstError failed;
  std::atomic<std::int64_t> next{0};
  pool.parallel_for(sink.workers(pool.threads()), [&](std::int64_t place, int) {
    for (std::int64_t i = next++; i < count && !failed.failed(); i = next++) {
      failed.keep(i, write(i, static_cast<int>(place)));
    }
  });
  return failed.take();
}

Result<> write_blocks(WeightSink& sink, ThreadPool& pool, std::int64_t count, std::uint64_t bytes,
                      FunctionRef<Result<>(std::int64_t, std::span<std::byte>, int)> write) {
  return on_workers(sink, pool, count, [&](std::int64_t block, int worker) -> Result<> {
    MORACLE_TRY(write(block, sink.stage(static_cast<std::uint64_t>(block) * bytes, bytes, worker), worker));
    return sink.commit(worker);
  });
}

}  // namespace moracle
