// Faults of kernels to be switched on on purpose, so that the tests are seen to notice. Only a build with
// MORACLE_FAULTS has them (tests/CMakeLists.txt, target test_kernel_faults); elsewhere a fault is a constant false.
#pragma once

#include <cstdint>

#ifdef MORACLE_FAULTS
#include <array>
#include <cstdlib>
#include <string_view>
#endif

namespace moracle::cpu {

enum class KernelFault : std::uint8_t {
  zero_point_ignored,          // every zero point is the middle code
  last_group_lost,             // the last group of a row adds nothing
  second_level_scale_dropped,  // of w2
  up_used_for_gate,
  padded_rows_leaked,     // rows of the hidden without the padding they are stored with
  w2_input_scale_of_w13,  // the static scale of another projection
};

#ifdef MORACLE_FAULTS
// The one that the environment variable MORACLE_FAULT names.
[[nodiscard]] inline bool fault(KernelFault asked) {
  constexpr std::array<std::string_view, 6> kNames{"zero_point_ignored",         "last_group_lost",
                                                   "second_level_scale_dropped", "up_used_for_gate",
                                                   "padded_rows_leaked",         "w2_input_scale_of_w13"};
  static const char* const kNamed = std::getenv("MORACLE_FAULT");
  return kNamed != nullptr && kNames[static_cast<std::size_t>(asked)] == kNamed;
}
#else
[[nodiscard]] constexpr bool fault(KernelFault /*asked*/) {
  return false;
}
#endif

}  // namespace moracle::cpu
