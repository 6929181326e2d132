// The C table that a device object exports through one function. The program and the object are built apart: version
// and size are compared before anything else is used.
#pragma once

#include <cstddef>
#include <cstdint>

namespace moracle {

inline constexpr std::uint32_t kDriverApiVersion = 5;

struct DeviceFacts {
  char name[96];
  std::int32_t capability;  // compute capability x 10
  std::int32_t multiprocessors;
  std::uint64_t memory_bytes;
  std::uint64_t l2_bytes;
  std::int32_t driver;   // CUDA version that the driver serves, 1000 * major + 10 * minor
  std::int32_t runtime;  // CUDA version of the object
};

enum class CopyKind : std::int32_t { to_device, to_host, on_device };

// A capability times ten, such as 80: a GPU that has more runs what one of that capability would, from the PTX that the
// driver compiles. The program refuses other values before it uses a device.
inline constexpr const char* kCapabilityVariable = "MORACLE_CUDA_ARCH";

// Errors that the program tells apart; others are the runtime's own numbers, 0 is success.
inline constexpr int kDeviceOutOfMemory = 2;
inline constexpr int kDeviceNoDriver = 35;
inline constexpr int kDeviceNone = 100;

struct DriverApi {
  std::uint32_t version;  // kDriverApiVersion
  std::uint32_t bytes;    // sizeof(DriverApi)
  void* self;             // first argument of every function

  // Without a driver, or with one that is too old, the first of `facts` has what the driver serves; 0: there is none.
  int (*probe)(void* self, DeviceFacts* facts, int capacity, int* count);
  const char* (*error_text)(void* self, int error);

  int (*allocate)(void* self, int device, std::size_t bytes, void** out);
  int (*release)(void* self, int device, void* memory);
  int (*allocate_pinned)(void* self, int device, std::size_t bytes, void** out);
  int (*release_pinned)(void* self, void* memory);
  int (*free_memory)(void* self, int device, std::uint64_t* free_bytes);

  int (*make_stream)(void* self, int device, void** out);
  int (*drop_stream)(void* self, void* stream);
  int (*copy)(void* self, void* stream, void* to, const void* from, std::size_t bytes, CopyKind kind);
  int (*fill)(void* self, void* stream, void* to, int byte, std::size_t bytes);
  int (*wait)(void* self, void* stream);

  int (*make_event)(void* self, int device, void** out);
  int (*drop_event)(void* self, void* event);
  int (*record)(void* self, void* event, void* stream);
  int (*after)(void* self, void* event, void* stream);  // what follows on the stream waits for the event
  int (*elapsed)(void* self, void* from, void* to, float* milliseconds);

  int (*begin_capture)(void* self, void* stream);
  int (*end_capture)(void* self, void* stream, void** graph);
  int (*launch_graph)(void* self, void* graph, void* stream);
  int (*drop_graph)(void* self, void* graph);

  // A further table of the object by its name, which begins with its version and size; null: the object has none.
  const void* (*table)(void* self, const char* name);
};

using DriverApiFunction = const DriverApi* (*)();
inline constexpr const char* kDriverApiSymbol = "moracle_device_api";

}  // namespace moracle
