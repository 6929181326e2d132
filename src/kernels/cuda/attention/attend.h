// Attention to what append stored. They return the runtime's error of the launches.
#pragma once

#include "kernels/cuda/launch.h"
#include "kernels/cuda/layout.h"

namespace moracle::cuda {

// Of sequences of one token; the counters of the workspace are 0.
int attend_sections(const AttentionArgs& args, const SplitWork& work, std::byte* workspace, cudaStream_t stream);
// Of sequences of several tokens.
int attend_tiles(const AttentionArgs& args, cudaStream_t stream);

}  // namespace moracle::cuda
