#include "support/fake_device.h"

#include <sys/mman.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <utility>

#include "base/memory.h"
#include "base/thread_pool.h"
#include "kernels/ops.h"
#include "support/host_kernels.h"

namespace moracle::test {

namespace {

constexpr int kInvalidValue = 1;
constexpr int kCaptureUnsupported = 900;
constexpr int kCaptureInvalidated = 901;

}  // namespace

// The functions of the table.
struct FakeDevice::Calls {
  static FakeDevice& of(void* self) { return *static_cast<FakeDevice*>(self); }

  static int probe(void* self, DeviceFacts* facts, int capacity, int* count) {
    FakeDevice& fake = of(self);
    *count = 0;
    if (fake.probe_error != 0) {
      facts[0].driver = fake.driver;
      return fake.probe_error;
    }
    for (int i = 0; i < fake.devices && i < capacity; ++i) {
      facts[i] = {.name = "Fake GPU",
                  .capability = fake.capability,
                  .multiprocessors = 132,
                  .memory_bytes = fake.most_bytes,
                  .l2_bytes = 50U << 20U,
                  .driver = fake.driver,
                  .runtime = 13000};
      *count = i + 1;
    }
    return 0;
  }
  static const char* error_text(void*, int error) {
    return error == kDeviceOutOfMemory ? "out of memory" : "an error of the test";
  }

  // Of a call that no graph can hold: it fails, and so does the end of the capture.
  static int break_capture(FakeDevice& fake) {
    if (fake.recording_ == nullptr) return 0;
    fake.capture_broken_ = true;
    return kCaptureUnsupported;
  }
  static int take(FakeDevice& fake, std::size_t bytes, void** out, bool guarded = false) {
    *out =
        guarded ? mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0) : std::malloc(bytes);
    if (*out == nullptr || *out == MAP_FAILED) return kDeviceOutOfMemory;
    std::memset(*out, 0xA5, bytes);  // memory of a device holds anything
    fake.memory_[*out] = bytes;
    if (!guarded) return 0;
    fake.guarded_[*out] = bytes;
    return mprotect(*out, bytes, PROT_NONE);
  }
  static int give_back(FakeDevice& fake, void* memory) {
    const std::size_t bytes = fake.memory_.at(memory);
    fake.memory_.erase(memory);
    if (fake.guarded_.erase(memory) > 0) return munmap(memory, bytes);
    std::free(memory);
    return 0;
  }
  static int allocate(void* self, int, std::size_t bytes, void** out) {
    FakeDevice& fake = of(self);
    if (const int error = fake.enter("allocate"); error != 0) return error;
    if (const int error = break_capture(fake); error != 0) return error;
    if (bytes > fake.most_bytes - fake.live_bytes_) return kDeviceOutOfMemory;
    const int error = take(fake, bytes, out, fake.guarded);
    if (error == 0) fake.live_bytes_ += bytes;
    fake.peak_bytes_ = std::max(fake.peak_bytes_, fake.live_bytes_);
    return error;
  }
  static int release(void* self, int, void* memory) {
    FakeDevice& fake = of(self);
    fake.live_bytes_ -= fake.memory_.at(memory);
    return give_back(fake, memory);
  }
  static int allocate_pinned(void* self, int, std::size_t bytes, void** out) {
    FakeDevice& fake = of(self);
    if (const int error = fake.enter("allocate_pinned"); error != 0) return error;
    if (const int error = break_capture(fake); error != 0) return error;
    const int error = take(fake, bytes, out);
    if (error == 0) fake.pinned_bytes_ += bytes;
    fake.peak_pinned_bytes_ = std::max(fake.peak_pinned_bytes_, fake.pinned_bytes_);
    return error;
  }
  static int release_pinned(void* self, void* memory) {
    FakeDevice& fake = of(self);
    fake.pinned_bytes_ -= fake.memory_.at(memory);
    return give_back(fake, memory);
  }
  static int free_memory(void* self, int, std::uint64_t* free_bytes) {
    *free_bytes = of(self).most_bytes - of(self).live_bytes_;
    return 0;
  }

  static int make(void* self, const char* call, void** out) {
    FakeDevice& fake = of(self);
    if (const int error = fake.enter(call); error != 0) return error;
    ++fake.objects_;
    *out = std::malloc(1);
    return 0;
  }
  static int drop(void* self, void* object) {
    --of(self).objects_;
    std::free(object);
    return 0;
  }
  static int make_stream(void* self, int, void** out) { return make(self, "make_stream", out); }
  static int make_event(void* self, int, void** out) { return make(self, "make_event", out); }

  // Now, when the stream is waited for, or whenever the graph is launched that is being recorded.
  static int enqueue(void* self, void* stream, const char* call, std::function<void()> work) {
    FakeDevice& fake = of(self);
    if (const int error = fake.enter(call); error != 0) return error;
    if (fake.recording_ != nullptr) {
      fake.recording_->push_back(std::move(work));
    } else if (fake.late_work) {
      fake.late_[stream].push_back(std::move(work));
    } else {
      work();
    }
    return 0;
  }
  static int copy(void* self, void* stream, void* to, const void* from, std::size_t bytes, CopyKind) {
    FakeDevice& fake = of(self);
    const std::lock_guard lock(fake.mutex_);
    if (fake.late_copies) {
      fake.late_[stream].push_back([=] { std::memcpy(to, from, bytes); });
      return fake.enter("copy");
    }
    return enqueue(self, stream, "copy", [=] { std::memcpy(to, from, bytes); });
  }
  static int fill(void* self, void* stream, void* to, int byte, std::size_t bytes) {
    return enqueue(self, stream, "fill", [=] { std::memset(to, byte, bytes); });
  }
  static int wait(void* self, void* stream) {
    FakeDevice& fake = of(self);
    const std::lock_guard lock(fake.mutex_);
    if (stream == fake.captured_) {
      if (const int error = break_capture(fake); error != 0) return error;
    }
    fake.run_late(stream);
    if (const int error = fake.enter("wait"); error != 0) return error;
    return std::exchange(fake.pending_, 0);
  }
  static int record(void* self, void*, void*) { return of(self).enter("record"); }
  static int after(void* self, void*, void*) { return of(self).enter("after"); }
  static int elapsed(void* self, void*, void*, float* milliseconds) {
    *milliseconds = 1.0F;
    return of(self).enter("elapsed");
  }

  using Recording = std::vector<std::function<void()>>;
  static int begin_capture(void* self, void* stream) {
    FakeDevice& fake = of(self);
    if (const int error = fake.enter("begin_capture"); error != 0) return error;
    if (fake.recording_ != nullptr) return kInvalidValue;
    fake.recording_ = new Recording;
    fake.captured_ = stream;
    fake.capture_broken_ = false;
    return 0;
  }
  static int end_capture(void* self, void*, void** graph) {
    FakeDevice& fake = of(self);
    Recording* const recorded = std::exchange(fake.recording_, nullptr);
    int error = fake.enter("end_capture");
    if (error == 0 && recorded == nullptr) error = kInvalidValue;
    if (error == 0 && fake.capture_broken_) error = kCaptureInvalidated;
    if (error != 0) {
      delete recorded;
      return error;
    }
    ++fake.objects_;
    *graph = recorded;
    return 0;
  }
  static int launch_graph(void* self, void* graph, void* stream) {
    return enqueue(self, stream, "launch_graph", [graph] {
      for (const auto& work : *static_cast<Recording*>(graph)) work();
    });
  }
  static int drop_graph(void* self, void* graph) {
    --of(self).objects_;
    delete static_cast<Recording*>(graph);
    return 0;
  }

  static int launch(void* self, void* stream, std::function<void()> body) {
    FakeDevice& fake = of(self);
    return enqueue(self, stream, "kernel", [&fake, body = std::move(body)] {
      const int error = std::exchange(fake.kernel_error, 0);
      if (fake.pending_ == 0) fake.pending_ = error;
      if (fake.pending_ == 0) body();
    });
  }
  template <class Args>
  static int kernel(void* self, void* stream, const Args* args) {
    return launch(self, stream, [copy = *args] { run_on_host(copy); });
  }
  // What host_kernels.h lacks are operations of the host: they lay out blocks and workspaces in their own way.
  template <class Args, void (Ops::*kOperation)(const RunContext&, const Args&) const>
  static int operation(void* self, void* stream, const Args* args, std::byte*) {
    if constexpr (requires { run_on_host(*args); }) return kernel(self, stream, args);
    return launch(self, stream, [copy = *args] {
      static ThreadPool pool(1);
      Stream host(pool);
      PageBuffer workspace;
      if constexpr (requires { ref_ops().workspace(copy, 1); }) {
        workspace = std::move(*PageBuffer::allocate(ref_ops().workspace(copy, 1)));
      }
      (ref_ops().*kOperation)({.stream = host, .workspace = {workspace.data(), workspace.size()}}, copy);
    });
  }
  static const void* table(void* self, const char* name) {
    return name == std::string_view(kKernelApiName) ? &of(self).kernels_ : nullptr;
  }
};

FakeDevice::FakeDevice() {
  api_ = {.version = kDriverApiVersion,
          .bytes = sizeof(DriverApi),
          .self = this,
          .probe = Calls::probe,
          .error_text = Calls::error_text,
          .allocate = Calls::allocate,
          .release = Calls::release,
          .allocate_pinned = Calls::allocate_pinned,
          .release_pinned = Calls::release_pinned,
          .free_memory = Calls::free_memory,
          .make_stream = Calls::make_stream,
          .drop_stream = Calls::drop,
          .copy = Calls::copy,
          .fill = Calls::fill,
          .wait = Calls::wait,
          .make_event = Calls::make_event,
          .drop_event = Calls::drop,
          .record = Calls::record,
          .after = Calls::after,
          .elapsed = Calls::elapsed,
          .begin_capture = Calls::begin_capture,
          .end_capture = Calls::end_capture,
          .launch_graph = Calls::launch_graph,
          .drop_graph = Calls::drop_graph,
          .table = Calls::table};
  kernels_ = {.version = kKernelApiVersion,
              .bytes = sizeof(KernelApi),
              .experts = Calls::kernel<ExpertsArgs>,
              .streamed_experts = Calls::kernel<StreamedExpertsArgs>,
              .linear = Calls::kernel<LinearArgs>,
#define MORACLE_OPERATION(name, Args) .name = Calls::operation<Args, &Ops::name>,
              MORACLE_OPERATIONS(MORACLE_OPERATION)
#undef MORACLE_OPERATION
  };
}

FakeDevice::~FakeDevice() {
  delete recording_;
}

int FakeDevice::enqueue_work(void* self, void* stream, const HostWork* work) {
  return Calls::launch(self, stream, *work->work);
}

void FakeDevice::run_late(void* stream) {
  guard(false);
  for (const auto& work : std::exchange(late_[stream], {})) work();
  guard(true);
}

void FakeDevice::guard(bool on) {
  for (const auto& [memory, bytes] : guarded_) mprotect(memory, bytes, on ? PROT_NONE : PROT_READ | PROT_WRITE);
}

int FakeDevice::calls(const std::string& name) const {
  const auto found = calls_.find(name);
  return found == calls_.end() ? 0 : found->second;
}

std::size_t FakeDevice::waiting_copies() const {
  std::size_t count = 0;
  for (const auto& [stream, copies] : late_) count += copies.size();
  return count;
}

int FakeDevice::enter(const char* call) {
  const std::lock_guard lock(mutex_);
  const int count = ++calls_[call];
  return failure.call == call && failure.at == count ? failure.error : 0;
}

}  // namespace moracle::test
