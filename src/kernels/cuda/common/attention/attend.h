// Attention by grouped queries. They return the runtime's error of the launches.
#pragma once

#include "kernels/cuda/common/launch.h"
#include "kernels/cuda/common/layout.h"

namespace moracle::cuda {

// Of sequences of one token, by clusters: it is prepared and appended.
int attend_sections(const AttentionArgs& args, cudaStream_t stream);
// The same of tokens that are appended already, by blocks that leave what they have summed in the workspace.
int attend_splits(const AttentionArgs& args, std::byte* workspace, cudaStream_t stream);
// Of sequences of several tokens, which are appended already.
int attend_tiles(const AttentionArgs& args, cudaStream_t stream);
// The same by warpgroup products, of the shapes that have them.
bool takes_products(const AttentionShape& shape);
int attend_products(const AttentionArgs& args, cudaStream_t stream);

}  // namespace moracle::cuda
