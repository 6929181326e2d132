// The kernels that a device object offers, as a table beside that of its driver. Each entry enqueues on a stream of the
// driver's table and returns the runtime's error of the launch; entries of operations may be null.
#pragma once

#include <cstddef>
#include <cstdint>

#include "kernels/args/experts.h"
#include "kernels/args/operations.h"

namespace moracle {

inline constexpr std::uint32_t kKernelApiVersion = 11;
inline constexpr const char* kKernelApiName = "kernels";

// An operation's entry of the table; null: the object lacks the operation.
template <class Args>
using KernelEntry = int (*)(void* self, void* stream, const Args* args, std::byte* workspace);

// Of what packs run; never null.
template <class Args>
using PackEntry = int (*)(void* self, void* stream, const Args* args);

struct KernelApi {
  std::uint32_t version;  // kKernelApiVersion
  std::uint32_t bytes;    // sizeof(KernelApi)

  PackEntry<ExpertsArgs> experts;
  PackEntry<StreamedExpertsArgs> streamed_experts;
  PackEntry<LinearArgs> linear;
#define MORACLE_OPERATION(name, Args) KernelEntry<Args> name;
  MORACLE_OPERATIONS(MORACLE_OPERATION)
#undef MORACLE_OPERATION
};

}  // namespace moracle
