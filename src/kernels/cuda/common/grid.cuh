// Launches that say more than a grid and its threads.
#pragma once

#include <cuda_runtime.h>

#include <cstddef>
#include <type_traits>

#include "kernels/cuda/common/launch.h"

namespace moracle::cuda {

struct GridShape {
  dim3 grid;
  unsigned threads;        // of a block
  std::size_t shared = 0;  // bytes of shared memory that the launch asks for
  dim3 cluster{0, 0, 0};   // blocks of a cluster; none: no clusters
  // On capability 9.0, starts while the grid before still runs, and waits for it (wait_for_last_grid).
  bool early = true;
};

// Returns the runtime's error of the launch.
template <class... Params>
cudaError_t launch_grid(void (*kernel)(Params...), const GridShape& shape, cudaStream_t stream,
                        std::type_identity_t<Params>... args) {
  cudaLaunchAttribute attributes[2]{};
  unsigned count = 0;
  if (shape.early && has_sm90()) {
    attributes[count].id = cudaLaunchAttributeProgrammaticStreamSerialization;
    attributes[count++].val.programmaticStreamSerializationAllowed = 1;
  }
  if (shape.cluster.x > 0) {
    attributes[count].id = cudaLaunchAttributeClusterDimension;
    attributes[count++].val.clusterDim = {shape.cluster.x, shape.cluster.y, shape.cluster.z};
  }
  const cudaLaunchConfig_t config{.gridDim = shape.grid,
                                  .blockDim = dim3(shape.threads),
                                  .dynamicSmemBytes = shape.shared,
                                  .stream = stream,
                                  .attrs = attributes,
                                  .numAttrs = count};
  return cudaLaunchKernelEx(&config, kernel, args...);
}

}  // namespace moracle::cuda
