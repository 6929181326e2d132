#include "api/edge/handles.h"

#include <pthread.h>

#include <atomic>
#include <mutex>
#include <unordered_map>
#include <vector>

namespace moracle::api {

namespace {

struct Entry {
  Kind kind{};
  std::uint64_t process = 0;  // forks before it
  std::shared_ptr<void> object;
};

struct Handles {
  std::mutex mutex;  // of a kind that a child may unlock: it has no owner
  std::unordered_map<std::uintptr_t, Entry> entries;
  std::vector<std::shared_ptr<void>> copies;  // of a parent's objects, which nothing may destroy here
  std::uintptr_t next = 1;                    // odd, so that no pointer to an object is taken for one
  std::uint64_t process = 0;                  // forks that led to this process

  Handles() {
    pthread_atfork([] { all().mutex.lock(); }, [] { all().mutex.unlock(); },
                   [] {
                     ++all().process;
                     all().mutex.unlock();
                   });
  }
  // Never destroyed: at the end of a program other threads may still call.
  static Handles& all() {
    static auto* const handles = new Handles;
    return *handles;
  }
};

std::uintptr_t number_of(const void* handle) {
  return reinterpret_cast<std::uintptr_t>(handle);
}

Error handle_error(std::string code, Kind kind, std::string found) {
  return Error{.code = std::move(code), .wanted = "an open " + std::string(to_string(kind)), .found = std::move(found)};
}

Result<Entry> entry_of(const Handles& handles, Kind kind, const void* handle) {
  if (handle == nullptr) return handle_error("handle.null", kind, "null");
  const auto at = handles.entries.find(number_of(handle));
  if (at == handles.entries.end()) return handle_error("handle.closed", kind, "a handle that is closed or foreign");
  if (at->second.kind != kind) {
    return handle_error("handle.kind", kind, "one of another kind (" + std::string(to_string(at->second.kind)) + ")");
  }
  return at->second;
}

}  // namespace

std::string_view to_string(Kind kind) {
  switch (kind) {
    case Kind::pool:
      return "moracle_pool";
    case Kind::checkpoint:
      return "moracle_checkpoint";
    case Kind::experts:
      return "moracle_experts";
    case Kind::dense:
      return "moracle_dense";
    case Kind::engine:
      return "moracle_engine";
    case Kind::scheduler:
      return "moracle_scheduler";
    case Kind::server:
      return "moracle_server";
  }
  return "handle";
}

void* add_handle(Kind kind, std::shared_ptr<void> object) {
  Handles& handles = Handles::all();
  const std::lock_guard lock(handles.mutex);
  const std::uintptr_t number = handles.next;
  handles.entries.emplace(number, Entry{kind, handles.process, std::move(object)});
  handles.next += 2;
  return reinterpret_cast<void*>(number);  // NOLINT(performance-no-int-to-ptr): a number that nobody follows
}

Result<std::shared_ptr<void>> find_handle(Kind kind, const void* handle) {
  Handles& handles = Handles::all();
  const std::lock_guard lock(handles.mutex);
  MORACLE_ASSIGN(Entry entry, entry_of(handles, kind, handle));
  if (entry.process == handles.process) return std::move(entry.object);
  Error error = handle_error("handle.forked", kind, "one of the process that this one was forked from");
  error.advice = "open it again in this process";
  return error;
}

Result<std::shared_ptr<void>> close_handle(Kind kind, const void* handle) {
  Handles& handles = Handles::all();
  const std::lock_guard lock(handles.mutex);
  MORACLE_ASSIGN(Entry entry, entry_of(handles, kind, handle));
  const bool forked = entry.process != handles.process;
  if (forked) handles.copies.push_back(entry.object);
  handles.entries.erase(number_of(handle));
  return std::move(entry.object);
}

}  // namespace moracle::api
