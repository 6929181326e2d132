#include "base/guarded.h"

#include <fmt/format.h>
#include <sys/resource.h>

#include <cerrno>
#include <exception>
#include <filesystem>
#include <new>
#include <stdexcept>
#include <string>
#include <system_error>

#include "base/files/file_error.h"

namespace moracle {

namespace {

Error out_of_memory(std::string_view doing) {
  struct rlimit limit{};
  const bool limited = getrlimit(RLIMIT_AS, &limit) == 0 && limit.rlim_cur != RLIM_INFINITY;
  constexpr double kGiB = 1024.0 * 1024.0 * 1024.0;
  return Error{.code = "memory.exhausted",
               .where = std::string(doing),
               .wanted = "memory to " + std::string(doing),
               .found = limited ? fmt::format("none left of the {:.1f} GiB of address space that this process may use",
                                              static_cast<double>(limit.rlim_cur) / kGiB)
                                : std::string("none left: the system refused it"),
               .advice = limited ? "raise the limit (ulimit -v), or choose a smaller model, context or batch"
                                 : "end other programs, or choose a smaller model, context or batch"};
}

Error of_system(std::string_view doing, const std::system_error& error) {
  const int reason = error.code().value();
  if (reason == ENOMEM) return out_of_memory(doing);
  if (reason == EAGAIN) {
    return Error{.code = "threads.start",
                 .where = std::string(doing),
                 .wanted = "a thread to " + std::string(doing),
                 .found = error.code().message(),
                 .advice = "raise the limit of threads (ulimit -u, TasksMax, pids.max), or ask for fewer (--threads)"};
  }
  return Error{.code = "system.failed",
               .where = std::string(doing),
               .wanted = "the system to let it " + std::string(doing),
               .found = error.what()};
}

}  // namespace

Error error_of_exception(std::string_view doing) {
  try {
    throw;
  } catch (const std::bad_alloc&) {
    return out_of_memory(doing);
  } catch (const std::length_error&) {  // more elements than any memory holds
    return out_of_memory(doing);
  } catch (const std::filesystem::filesystem_error& error) {
    return file_error("file.open", error.path1(), error.code().value());
  } catch (const std::system_error& error) {
    return of_system(doing, error);
  } catch (const std::exception& error) {
    return Error{.code = "internal.exception",
                 .where = std::string(doing),
                 .wanted = "to " + std::string(doing),
                 .found = error.what(),
                 .advice = "this is a fault of the program: report it with the command and the model's config.json"};
  } catch (...) {
    return Error{.code = "internal.exception", .where = std::string(doing), .found = "an exception of unknown type"};
  }
}

}  // namespace moracle
