// What every struct of this folder keeps to: CPU operations, CUDA kernels and the C boundary between them share it.
//
// Pointers belong to the device of the stream. Whoever takes such a struct enqueues, never blocks and never allocates;
// it may be captured in a graph.
#pragma once

#include <type_traits>

namespace moracle {

template <class Args>
inline constexpr bool kPlain = std::is_trivially_copyable_v<Args> && std::is_standard_layout_v<Args>;

}  // namespace moracle
