// The table of a device over host memory, for tests where no GPU is: a limit on bytes, a counter of calls, a call that
// fails, and host versions of the kernels. Work runs when it is enqueued, or, as on a GPU, not before its stream is
// waited for. Errors of kernels are told as a GPU tells them: by the next wait, and no kernel runs until then. What a
// graph cannot hold ends its capture.
#pragma once

#include <cstddef>
#include <functional>
#include <map>
#include <mutex>
#include <string>
#include <vector>

#include "device/driver_api.h"
#include "kernels/kernel_api.h"

namespace moracle::test {

class FakeDevice {
 public:
  FakeDevice();
  FakeDevice(const FakeDevice&) = delete;
  FakeDevice& operator=(const FakeDevice&) = delete;
  ~FakeDevice();

  [[nodiscard]] const DriverApi& api() const { return api_; }
  [[nodiscard]] KernelApi& kernels() { return kernels_; }

  int devices = 1;
  std::size_t most_bytes = std::size_t{8} << 30U;  // of allocate, all live ones
  // The call of this name that fails, counted from 1; 0: none. `error` is what it returns.
  struct Failure {
    std::string call;
    int at = 0;
    int error = 0;
  } failure;
  bool late_copies = false;  // a copy reads its source when its stream is waited for
  bool late_work = false;    // the same of copies, fills, kernels and graphs
  // Memory of the device that is allocated from now on is out of the host's reach but for work that runs: another
  // access ends the process.
  bool guarded = false;
  int kernel_error = 0;  // of the next kernel, which the next wait returns
  int probe_error = 0;
  int driver = 13000;  // as DeviceFacts has it
  int capability = 90;

  [[nodiscard]] int calls(const std::string& name) const;
  [[nodiscard]] std::size_t live_bytes() const { return live_bytes_; }
  [[nodiscard]] std::size_t peak_bytes() const { return peak_bytes_; }  // the most that were live
  [[nodiscard]] std::size_t peak_pinned_bytes() const { return peak_pinned_bytes_; }
  // Work of a test that runs as a kernel does, by Stream::launch(name, enqueue_work, HostWork{&work}).
  struct HostWork {
    const std::function<void()>* work = nullptr;
  };
  static int enqueue_work(void* self, void* stream, const HostWork* work);
  // Copies that nobody has waited for, of late ones.
  [[nodiscard]] std::size_t waiting_copies() const;
  [[nodiscard]] std::size_t live_objects() const { return memory_.size() + objects_; }

 private:
  struct Calls;
  friend struct Calls;

  int enter(const char* call);
  // Late work of a stream.
  void run_late(void* stream);
  void guard(bool on);

  DriverApi api_{};
  KernelApi kernels_{};
  std::map<std::string, int> calls_;
  std::map<void*, std::size_t> memory_;
  std::map<void*, std::size_t> guarded_;  // of them, with pages of their own
  std::size_t live_bytes_ = 0;
  std::size_t peak_bytes_ = 0;
  std::size_t pinned_bytes_ = 0;
  std::size_t peak_pinned_bytes_ = 0;
  std::size_t objects_ = 0;  // streams, events, graphs
  std::vector<std::function<void()>>* recording_ = nullptr;
  void* captured_ = nullptr;  // stream of the last capture
  bool capture_broken_ = false;
  std::map<void*, std::vector<std::function<void()>>> late_;  // by stream
  int pending_ = 0;
  std::recursive_mutex mutex_;  // a pack's workers copy at once
};

}  // namespace moracle::test
