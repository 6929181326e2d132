// Packing of panels for NEON.
//
// Compiled on aarch64 with -march=armv8.2-a
#include <arm_neon.h>

#include "kernels/cpu/weights/bf16x12-inl.h"

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

bool pack_lines(const LineArgs& args) {
  return pack_lines_on<V>(args);
}
bool pack_word_lines(const WordLineArgs& args) {
  return pack_word_lines_on<V>(args);
}
bool pack_scale_columns(const ScaleColumnArgs& args) {
  return pack_scale_columns_on<V>(args);
}
void pack_scale_column(ScaleCode form, const float* scales, std::int64_t stride, std::byte* out) {
  pack_scale_column_on<V>(form, scales, stride, out);
}
bool pack_bf16x12(const std::byte* plain, std::int64_t steps, std::byte* out) {
  return pack_bf16x12_on<V>(plain, steps, out);
}

}  // namespace moracle::cpu
