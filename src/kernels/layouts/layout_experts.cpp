#include "kernels/layouts/layout_experts.h"

#include <algorithm>

#include "kernels/layouts/marlin.h"

namespace moracle::layout {
namespace {

constexpr auto kPackWna16 = [](const LayoutMatrix& matrix, Role role) { return pack_marlin_wna16(matrix, role); };
constexpr auto kPackFp8 = [](const LayoutMatrix& matrix, Role role) { return pack_marlin_fp8(matrix, role); };
constexpr auto kPackMx = [](const LayoutMatrix& matrix, Role role) { return pack_marlin_mx(matrix, role); };

// The largest block scales of all experts' w13 and w2.
struct LargestScales {
  float w13 = 0.0F;
  float w2 = 0.0F;
};

Result<float> largest_scale(const CanonicalLinear& linear) {
  MatrixPanel panel;
  MORACLE_TRY(linear.weight->read(0, linear.weight->spec().rows, panel));
  float largest = 0.0F;
  for (const float scale : panel.scales) largest = std::max(largest, scale);
  return largest;
}

Result<LargestScales> largest_scales(const CanonicalExperts& experts) {
  LargestScales largest;
  for (const CanonicalExperts::Expert& expert : experts.experts) {
    for (const CanonicalLinear* linear : {&expert.gate, &expert.up}) {
      MORACLE_ASSIGN(const float scale, largest_scale(*linear));
      largest.w13 = std::max(largest.w13, scale);
    }
    MORACLE_ASSIGN(const float scale, largest_scale(expert.down));
    largest.w2 = std::max(largest.w2, scale);
  }
  return largest;
}

}  // namespace

Result<std::unique_ptr<PackedExperts>> b12x_experts(const CanonicalExperts& experts, const PackOptions& options) {
  return experts.scheme.activation ? mapped_experts<kB12xNvfp4Gated>(experts, options)
                                   : b12x_layer_experts<kB12xNvfp4>(experts, options);
}

Result<std::unique_ptr<PackedExperts>> aiter_mxfp4_experts(const CanonicalExperts& experts,
                                                           const PackOptions& options) {
  return experts.scheme.activation ? mapped_experts<kAiterMxfp4>(experts, options)
                                   : mapped_experts<kAiterMxfp4Gated>(experts, options);
}

Result<std::unique_ptr<PackedExperts>> marlin_wna16_experts(const CanonicalExperts& experts,
                                                            const PackOptions& options) {
  MORACLE_ASSIGN(const auto packs, pack_layer<MarlinWna16Pack>(experts, options, kPackWna16));
  return executor(experts, options, packs);
}
Result<std::unique_ptr<PackedLinear>> marlin_wna16_linear(const CanonicalLinear& linear, const PackOptions& options) {
  return linear_executor<MarlinWna16Pack>(linear, options, kPackWna16);
}

Result<std::unique_ptr<PackedExperts>> marlin_fp8_experts(const CanonicalExperts& experts, const PackOptions& options) {
  MORACLE_ASSIGN(const auto packs, pack_layer<MarlinFp8Pack>(experts, options, kPackFp8));
  return executor(experts, options, packs);
}
Result<std::unique_ptr<PackedLinear>> marlin_fp8_linear(const CanonicalLinear& linear, const PackOptions& options) {
  return linear_executor<MarlinFp8Pack>(linear, options, kPackFp8);
}

Result<std::unique_ptr<PackedExperts>> marlin_mx_experts(const CanonicalExperts& experts, const PackOptions& options) {
  MORACLE_ASSIGN(const auto packs, pack_layer<MarlinMxPack>(experts, options, kPackMx));
  return executor(experts, options, packs);
}
Result<std::unique_ptr<PackedLinear>> marlin_mx_linear(const CanonicalLinear& linear, const PackOptions& options) {
  return linear_executor<MarlinMxPack>(linear, options, kPackMx);
}

Result<std::unique_ptr<PackedExperts>> marlin_nvfp4_experts(const CanonicalExperts& experts,
                                                            const PackOptions& options) {
  MORACLE_ASSIGN(const LargestScales largest, largest_scales(experts));
  const auto pack = [&](const LayoutMatrix& matrix, Role role) {
    const float scale = role == Role::w13 ? largest.w13 : largest.w2;
    return pack_marlin_nvfp4(matrix, role, marlin_nvfp4_factor(scale, ScaleType::bf16));
  };
  MORACLE_ASSIGN(const auto packs, pack_layer<MarlinNvfp4Pack>(experts, options, pack));
  return executor(experts, options, packs);
}

Result<std::unique_ptr<PackedLinear>> marlin_nvfp4_linear(const CanonicalLinear& linear, const PackOptions& options) {
  return linear_executor<MarlinNvfp4Pack>(linear, options, [](const LayoutMatrix& matrix, Role role) {
    const std::vector<float>& scales = matrix.panel.scales;
    const float largest = scales.empty() ? 0.0F : *std::max_element(scales.begin(), scales.end());
    return pack_marlin_nvfp4(matrix, role, marlin_nvfp4_factor(largest, ScaleType::bf16));
  });
}

}  // namespace moracle::layout
