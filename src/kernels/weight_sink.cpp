#include "kernels/weight_sink.h"

#include "base/first_error.h"

namespace moracle {

Result<> write_blocks(WeightSink& sink, ThreadPool& pool, std::int64_t count, std::uint64_t bytes,
                      FunctionRef<Result<>(std::int64_t, std::span<std::byte>, int)> write) {
  FirstError failed;
  pool.parallel_for(count, [&](std::int64_t block, int worker) {
    if (failed.failed()) return;
    const std::span<std::byte> staged = sink.stage(static_cast<std::uint64_t>(block) * bytes, bytes, worker);
    Result<> written = write(block, staged, worker);
    failed.keep(block, written.ok() ? sink.commit(worker) : std::move(written));
  });
  return failed.take();
}

}  // namespace moracle
