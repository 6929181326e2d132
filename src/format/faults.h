// Wrong readings that once gave garbage in the field, to be switched on on purpose, so that the tests are seen to
// notice. Only a build with MORACLE_FAULTS has them (tests/CMakeLists.txt, target test_faults); elsewhere a fault is a
// constant false and leaves nothing behind.
#pragma once

#include <cstdint>

#ifdef MORACLE_FAULTS
#include <array>
#include <cstdlib>
#include <string_view>
#endif

namespace moracle {

enum class Fault : std::uint8_t {
  channel_scales_along_input,  // [N] scales of a channel-wise weight multiplied along K
  one_scale_for_all,           // the first scale of a tensor for every row and group
  scales_ignored,              // every scale is 1
  shared_expert_as_int8,       // a BF16 shared expert copied into int8: everything between -1 and 1 becomes 0
  gate_and_up_swapped,
  interleaved_read_as_split,
  zero_points_v1_read_as_v2,
  reciprocal_not_inverted,  // a global scale that divides, multiplied
  activations_not_quantized,
  exclude_misses_fused  // exclude lists compared with a module's own name alone
};

#ifdef MORACLE_FAULTS
// The one that the environment variable MORACLE_FAULT names.
[[nodiscard]] inline bool fault(Fault asked) {
  constexpr std::array<std::string_view, 10> kNames{
      "channel_scales_along_input", "one_scale_for_all",       "scales_ignored",
      "shared_expert_as_int8",      "gate_and_up_swapped",     "interleaved_read_as_split",
      "zero_points_v1_read_as_v2",  "reciprocal_not_inverted", "activations_not_quantized",
      "exclude_misses_fused"};
  static const char* const kNamed = std::getenv("MORACLE_FAULT");
  return kNamed != nullptr && kNames[static_cast<std::size_t>(asked)] == kNamed;
}
#else
[[nodiscard]] constexpr bool fault(Fault /*asked*/) {
  return false;
}
#endif

}  // namespace moracle
