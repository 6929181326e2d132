#include "api/edge/pool.h"

#include <fmt/format.h>
#include <sched.h>

#include "api/edge/call.h"
#include "machine/machine.h"

namespace moracle::api {

namespace {

constexpr int kMaxThreads = 1024;

Result<int> check_threads(std::int32_t threads, std::string_view name, int least) {
  if (threads >= least && threads <= kMaxThreads) return threads;
  return wrong_argument("range", name, fmt::format("{} to {}", least, kMaxThreads), std::to_string(threads));
}

Result<std::vector<int>> read_cpus(const moracle_pool_options& options) {
  std::vector<int> cpus;
  if (options.cpus == nullptr) return cpus;
  if (options.cpu_count == 0 || options.cpu_count > kMaxThreads) {
    return wrong_argument("range", "options.cpu_count", fmt::format("1 to {}", kMaxThreads),
                          std::to_string(options.cpu_count));
  }
  cpu_set_t usable;
  CPU_ZERO(&usable);
  const bool known = sched_getaffinity(0, sizeof usable, &usable) == 0;
  for (std::uint64_t i = 0; i < options.cpu_count; ++i) {
    const std::int32_t cpu = options.cpus[i];
    if (cpu < 0 || cpu >= CPU_SETSIZE || (known && !CPU_ISSET(static_cast<std::size_t>(cpu), &usable))) {
      return wrong_argument("range", "options.cpus", "CPUs that this process may use", std::to_string(cpu));
    }
    cpus.push_back(cpu);
  }
  return cpus;
}

Result<std::shared_ptr<Pool>> open_pool(const moracle_pool_options* given) {
  MORACLE_ASSIGN(const auto options, read_struct(given, "options"));
  if (options.executor != nullptr) {
    MORACLE_ASSIGN(const moracle_executor executor, read_struct(options.executor, "executor"));
    HostThreads host;
    MORACLE_ASSIGN(host.threads, check_threads(executor.threads, "executor.threads", 1));
    if (executor.parallel_for == nullptr) return null_argument("executor.parallel_for");
    host.run = [executor](std::int64_t count, FunctionRef<void(std::int64_t)> task) {
      const moracle_task run = [](void* work, int64_t index) {
        (*static_cast<const FunctionRef<void(std::int64_t)>*>(work))(index);
      };
      executor.parallel_for(executor.context, count, run, &task);
    };
    return std::make_shared<Pool>(std::move(host));
  }
  MORACLE_ASSIGN(const std::vector<int> cpus, read_cpus(options));
  MORACLE_ASSIGN(int threads, check_threads(options.threads, "options.threads", 0));
  if (threads == 0) threads = cpus.empty() ? probe_machine().cores : static_cast<int>(cpus.size());
  return std::make_shared<Pool>(threads, cpus);
}

}  // namespace

Result<std::span<std::byte>> Pool::workspace(std::size_t bytes) {
  if (bytes > workspace_.size()) {
    MORACLE_ASSIGN(workspace_, PageBuffer::allocate(bytes));
  }
  return std::span(workspace_.data(), workspace_.size());
}

}  // namespace moracle::api

using namespace moracle;  // NOLINT(google-build-using-namespace): the C interface has no namespace of its own

extern "C" {

moracle_status moracle_pool_open(const moracle_pool_options* options, moracle_pool** pool, moracle_error** error) {
  return api::call(error, "start the threads", [&]() -> Result<> {
    MORACLE_TRY(api::check_not_null(pool, "pool"));
    *pool = nullptr;
    MORACLE_ASSIGN(auto opened, api::open_pool(options));
    *pool = static_cast<moracle_pool*>(api::add_handle(api::Kind::pool, std::move(opened)));
    return Ok{};
  });
}

moracle_status moracle_pool_close(moracle_pool* pool) {
  return api::close(api::Kind::pool, pool);
}

}  // extern "C"
