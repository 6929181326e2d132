// Packing of panels for NEON.
//
// Compiled on aarch64 with -march=armv8.2-a
#include <arm_neon.h>

#include "kernels/cpu/weights/pack/bf16x12-inl.h"

namespace moracle::cpu {
namespace {

struct V {
  static constexpr int kBytes = 16;
  static bool any(Words<V> words) { return vmaxvq_u32(words) != 0; }
  static Words<V> halves(const std::byte* at) {
    const auto half = [](const std::byte* from) {
      return vcvt_f16_f32(vld1q_f32(reinterpret_cast<const float*>(from)));
    };
    return vreinterpretq_u32_f16(vcombine_f16(half(at), half(at + kBytes)));
  }
};

}  // namespace

constinit const Packing kPacking = packing_on<V>();

}  // namespace moracle::cpu
