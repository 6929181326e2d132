#include "kernels/cuda/host/described_gpu.h"

#include <cstring>
#include <utility>

#include "kernels/kernel_api.h"

namespace moracle {

namespace {

// cudaErrorNoDevice.
constexpr int kNotHere = kDeviceNone;

template <class... Args>
int refuse(Args...) {
  return kNotHere;
}
const char* error_text(void* /*self*/, int /*error*/) {
  return "this GPU is described, and not of this machine";
}

constexpr KernelApi kKernels{.version = kKernelApiVersion,
                             .bytes = sizeof(KernelApi),
                             .experts = refuse,
                             .streamed_experts = refuse,
                             .linear = refuse,
#define MORACLE_OPERATION(name, Args) .name = refuse,
                             MORACLE_OPERATIONS(MORACLE_OPERATION)
#undef MORACLE_OPERATION
};
const void* table(void* /*self*/, const char* name) {
  return std::strcmp(name, kKernelApiName) == 0 ? &kKernels : nullptr;
}

// What the device refers to, for as long as it is there.
struct Described {
  explicit Described(const Machine& machine) : memory(machine.memory_bytes) {}

  std::uint64_t memory;
  DriverApi api{.version = kDriverApiVersion,
                .bytes = sizeof(DriverApi),
                .self = this,
                .probe = refuse,
                .error_text = error_text,
                .allocate = refuse,
                .release = refuse,
                .allocate_pinned = refuse,
                .release_pinned = refuse,
                .free_memory =
                    [](void* self, int /*device*/, std::uint64_t* free_bytes) {
                      *free_bytes = static_cast<const Described*>(self)->memory;
                      return 0;
                    },
                .make_stream = refuse,
                .drop_stream = refuse,
                .copy = refuse,
                .fill = refuse,
                .wait = refuse,
                .make_event = refuse,
                .drop_event = refuse,
                .record = refuse,
                .after = refuse,
                .elapsed = refuse,
                .begin_capture = refuse,
                .end_capture = refuse,
                .launch_graph = refuse,
                .drop_graph = refuse,
                .table = table};
  std::shared_ptr<GpuDevice> device{};
};

}  // namespace

Result<std::shared_ptr<GpuDevice>> describe_gpu(const Machine& machine, std::uint64_t memory) {
  const auto described = std::make_shared<Described>(machine);
  MORACLE_ASSIGN(described->device, GpuDevice::describe(described->api, machine));
  MORACLE_TRY(described->device->limit_memory(memory));
  return std::shared_ptr<GpuDevice>(described, described->device.get());
}

}  // namespace moracle
