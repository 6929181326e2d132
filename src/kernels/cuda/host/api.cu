// The tables that the object exports, over the CUDA runtime.
#include <cuda_runtime.h>

#include <cstdlib>
#include <cstring>

#include "device/driver_api.h"
#include "kernels/cuda/common/launch.h"
#include "kernels/cuda/host/capability.h"
#include "kernels/kernel_api.h"

namespace moracle::cuda {

namespace {

// A stream knows its device: the runtime has a current device for each thread.
struct DeviceStream {
  int device = 0;
  cudaStream_t stream = nullptr;
};
struct DeviceGraph {
  cudaGraphExec_t executable = nullptr;
};

DeviceStream& of(void* stream) {
  return *static_cast<DeviceStream*>(stream);
}
cudaEvent_t event_of(void* event) {
  return static_cast<cudaEvent_t>(event);
}

int probe(void*, DeviceFacts* facts, int capacity, int* count) {
  *count = 0;
  DeviceFacts shared{};
  cudaDriverGetVersion(&shared.driver);
  cudaRuntimeGetVersion(&shared.runtime);
  int found = 0;
  if (const cudaError_t error = cudaGetDeviceCount(&found); error != cudaSuccess) {
    if (capacity > 0) facts[0] = shared;
    return error;
  }
  for (int device = 0; device < found && device < capacity; ++device) {
    cudaDeviceProp properties{};
    if (const cudaError_t error = cudaGetDeviceProperties(&properties, device); error != cudaSuccess) return error;
    DeviceFacts& to = facts[device];
    to = shared;
    std::strncpy(to.name, properties.name, sizeof to.name - 1);
    to.capability = capability_of(properties.major, properties.minor);
    to.multiprocessors = properties.multiProcessorCount;
    to.memory_bytes = properties.totalGlobalMem;
    to.l2_bytes = static_cast<std::uint64_t>(properties.l2CacheSize);
    *count = device + 1;
  }
  return cudaSuccess;
}

const char* error_text(void*, int error) {
  return cudaGetErrorString(static_cast<cudaError_t>(error));
}

// The error of a call that failed for itself must not be found by the next launch.
int taken(cudaError_t error) {
  if (error != cudaSuccess) cudaGetLastError();
  return error;
}

int allocate(void*, int device, std::size_t bytes, void** out) {
  if (const cudaError_t error = cudaSetDevice(device); error != cudaSuccess) return taken(error);
  return taken(cudaMalloc(out, bytes));
}
int release(void*, int device, void* memory) {
  if (const cudaError_t error = cudaSetDevice(device); error != cudaSuccess) return taken(error);
  return taken(cudaFree(memory));
}
int allocate_pinned(void*, int device, std::size_t bytes, void** out) {
  if (const cudaError_t error = cudaSetDevice(device); error != cudaSuccess) return taken(error);
  return taken(cudaHostAlloc(out, bytes, cudaHostAllocDefault));
}
int release_pinned(void*, void* memory) {
  return taken(cudaFreeHost(memory));
}
int free_memory(void*, int device, std::uint64_t* free_bytes) {
  if (const cudaError_t error = cudaSetDevice(device); error != cudaSuccess) return taken(error);
  std::size_t free = 0;
  std::size_t total = 0;
  const cudaError_t error = cudaMemGetInfo(&free, &total);
  *free_bytes = free;
  return taken(error);
}

int make_stream(void*, int device, void** out) {
  if (const cudaError_t error = cudaSetDevice(device); error != cudaSuccess) return taken(error);
  cudaStream_t stream = nullptr;
  if (const cudaError_t error = cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking); error != cudaSuccess)
    return taken(error);
  *out = new DeviceStream{device, stream};
  return cudaSuccess;
}
int drop_stream(void*, void* stream) {
  const int error = taken(cudaStreamDestroy(of(stream).stream));
  delete &of(stream);
  return error;
}
int copy(void*, void* stream, void* to, const void* from, std::size_t bytes, CopyKind kind) {
  const cudaMemcpyKind direction = kind == CopyKind::to_device ? cudaMemcpyHostToDevice
                                   : kind == CopyKind::to_host ? cudaMemcpyDeviceToHost
                                                               : cudaMemcpyDeviceToDevice;
  return taken(cudaMemcpyAsync(to, from, bytes, direction, of(stream).stream));
}
int fill(void*, void* stream, void* to, int byte, std::size_t bytes) {
  return taken(cudaMemsetAsync(to, byte, bytes, of(stream).stream));
}
int wait(void*, void* stream) {
  return taken(cudaStreamSynchronize(of(stream).stream));
}

int make_event(void*, int device, void** out) {
  if (const cudaError_t error = cudaSetDevice(device); error != cudaSuccess) return taken(error);
  cudaEvent_t event = nullptr;
  const cudaError_t error = cudaEventCreate(&event);
  *out = event;
  return taken(error);
}
int drop_event(void*, void* event) {
  return taken(cudaEventDestroy(event_of(event)));
}
int record(void*, void* event, void* stream) {
  return taken(cudaEventRecord(event_of(event), of(stream).stream));
}
int after(void*, void* event, void* stream) {
  return taken(cudaStreamWaitEvent(of(stream).stream, event_of(event), 0));
}
int elapsed(void*, void* from, void* to, float* milliseconds) {
  return taken(cudaEventElapsedTime(milliseconds, event_of(from), event_of(to)));
}

int begin_capture(void*, void* stream) {
  return taken(cudaStreamBeginCapture(of(stream).stream, cudaStreamCaptureModeThreadLocal));
}
int end_capture(void*, void* stream, void** out) {
  cudaGraph_t graph = nullptr;
  if (const cudaError_t error = cudaStreamEndCapture(of(stream).stream, &graph); error != cudaSuccess)
    return taken(error);
  cudaGraphExec_t executable = nullptr;
  const cudaError_t error = cudaGraphInstantiate(&executable, graph, 0);
  cudaGraphDestroy(graph);
  if (error != cudaSuccess) return taken(error);
  *out = new DeviceGraph{executable};
  return cudaSuccess;
}
int launch_graph(void*, void* graph, void* stream) {
  return taken(cudaGraphLaunch(static_cast<DeviceGraph*>(graph)->executable, of(stream).stream));
}
int drop_graph(void*, void* graph) {
  const int error = taken(cudaGraphExecDestroy(static_cast<DeviceGraph*>(graph)->executable));
  delete static_cast<DeviceGraph*>(graph);
  return error;
}

template <class Args>
int enqueue(void*, void* stream, const Args* args) {
  if (const cudaError_t error = cudaSetDevice(of(stream).device); error != cudaSuccess) return taken(error);
  return launch(*args, of(stream).stream);
}
template <class Args>
int operate(void*, void* stream, const Args* args, std::byte* workspace) {
  if (const cudaError_t error = cudaSetDevice(of(stream).device); error != cudaSuccess) return taken(error);
  return launch(*args, workspace, of(stream).stream);
}

constexpr KernelApi kKernels{.version = kKernelApiVersion,
                             .bytes = sizeof(KernelApi),
                             .experts = enqueue<ExpertsArgs>,
                             .streamed_experts = enqueue<StreamedExpertsArgs>,
                             .linear = enqueue<LinearArgs>,
#define MORACLE_OPERATION(name, Args) .name = operate<Args>,
                             MORACLE_OPERATIONS(MORACLE_OPERATION)
#undef MORACLE_OPERATION
};

const void* table(void*, const char* name) {
  return std::strcmp(name, kKernelApiName) == 0 ? &kKernels : nullptr;
}

constexpr DriverApi kApi{.version = kDriverApiVersion,
                         .bytes = sizeof(DriverApi),
                         .self = nullptr,
                         .probe = probe,
                         .error_text = error_text,
                         .allocate = allocate,
                         .release = release,
                         .allocate_pinned = allocate_pinned,
                         .release_pinned = release_pinned,
                         .free_memory = free_memory,
                         .make_stream = make_stream,
                         .drop_stream = drop_stream,
                         .copy = copy,
                         .fill = fill,
                         .wait = wait,
                         .make_event = make_event,
                         .drop_event = drop_event,
                         .record = record,
                         .after = after,
                         .elapsed = elapsed,
                         .begin_capture = begin_capture,
                         .end_capture = end_capture,
                         .launch_graph = launch_graph,
                         .drop_graph = drop_graph,
                         .table = table};

}  // namespace

}  // namespace moracle::cuda

extern "C" __attribute__((visibility("default"))) const moracle::DriverApi* moracle_device_api() {
  // Machine code for another capability would be no proof of what such a GPU runs. The driver reads this once.
  if (moracle::cuda::forced_capability() > 0) setenv("CUDA_FORCE_PTX_JIT", "1", 1);
  return &moracle::cuda::kApi;
}
