// The terms in which vLLM's experts classes are written: its quantization keys, devices and the lists that several
// classes share.
#pragma once

#include <array>
#include <cstdint>
#include <string_view>

#include "compat/vllm/experts_class.h"

namespace moracle::vllm {

// A group width that a key leaves open: vLLM's integer keys know group 32 and "some width".
inline constexpr std::int32_t kAnyGroup = -1;

inline constexpr QuantKey kInt4Static{Element::int4, ScaleType::f16, Granularity::group(kAnyGroup)};
inline constexpr QuantKey kInt4Static32{Element::int4, ScaleType::f16, Granularity::group(32)};
inline constexpr QuantKey kInt4StaticAsym{.element = Element::int4,
                                          .scale = ScaleType::f16,
                                          .granularity = Granularity::group(kAnyGroup),
                                          .symmetric = false};
inline constexpr QuantKey kInt4Static32Asym{
    .element = Element::int4, .scale = ScaleType::f16, .granularity = Granularity::group(32), .symmetric = false};
inline constexpr QuantKey kInt8Static{Element::int8, ScaleType::f16, Granularity::group(kAnyGroup)};
inline constexpr QuantKey kInt8StaticAsym{.element = Element::int8,
                                          .scale = ScaleType::f16,
                                          .granularity = Granularity::group(kAnyGroup),
                                          .symmetric = false};
inline constexpr QuantKey kInt8StaticChannelSym{Element::int8, ScaleType::f32, Granularity::channel()};
inline constexpr QuantKey kInt8StaticTensorSym{Element::int8, ScaleType::f32, Granularity::tensor()};
inline constexpr QuantKey kInt8DynamicTokenSym{
    .element = Element::int8, .scale = ScaleType::f32, .granularity = Granularity::token(), .dynamic = true};
inline constexpr QuantKey kInt8DynamicTokenAsym{.element = Element::int8,
                                                .scale = ScaleType::f32,
                                                .granularity = Granularity::token(),
                                                .dynamic = true,
                                                .symmetric = false};
inline constexpr QuantKey kInt8DynamicTensorSym{
    .element = Element::int8, .scale = ScaleType::f32, .granularity = Granularity::tensor(), .dynamic = true};
inline constexpr QuantKey kInt4W4A8StaticGroupSym{Element::int4, ScaleType::bf16, Granularity::group(kAnyGroup)};
inline constexpr QuantKey kInt4W4A8StaticGroup32Sym{Element::int4, ScaleType::bf16, Granularity::group(32)};
inline constexpr QuantKey kInt4W4A8StaticGroup64Sym{Element::int4, ScaleType::bf16, Granularity::group(64)};
inline constexpr QuantKey kInt4W4A8StaticGroup128Sym{Element::int4, ScaleType::bf16, Granularity::group(128)};

inline constexpr QuantKey kFp8StaticTensorSym{Element::e4m3, ScaleType::f32, Granularity::tensor()};
inline constexpr QuantKey kFp8StaticChannelSym{Element::e4m3, ScaleType::f32, Granularity::channel()};
inline constexpr QuantKey kFp8Static128BlockSym{Element::e4m3, ScaleType::f32, Granularity::block(128, 128)};
inline constexpr QuantKey kFp8Static128BlockE8M0Sym{Element::e4m3, ScaleType::e8m0, Granularity::block(128, 128)};
inline constexpr QuantKey kFp8DynamicTensorSym{
    .element = Element::e4m3, .scale = ScaleType::f32, .granularity = Granularity::tensor(), .dynamic = true};
inline constexpr QuantKey kFp8DynamicTokenSym{
    .element = Element::e4m3, .scale = ScaleType::f32, .granularity = Granularity::token(), .dynamic = true};
inline constexpr QuantKey kFp8Dynamic128Sym{
    .element = Element::e4m3, .scale = ScaleType::f32, .granularity = Granularity::group(128), .dynamic = true};

inline constexpr QuantKey kMxfp8Static{Element::e4m3, ScaleType::e8m0, Granularity::group(32)};
inline constexpr QuantKey kMxfp8Dynamic{
    .element = Element::e4m3, .scale = ScaleType::e8m0, .granularity = Granularity::group(32), .dynamic = true};
inline constexpr QuantKey kMxfp4Static{Element::e2m1, ScaleType::e8m0, Granularity::group(32)};
inline constexpr QuantKey kMxfp4Dynamic{
    .element = Element::e2m1, .scale = ScaleType::e8m0, .granularity = Granularity::group(32), .dynamic = true};
inline constexpr QuantKey kMxfp6E3M2Dynamic{
    .element = Element::e3m2, .scale = ScaleType::e8m0, .granularity = Granularity::group(32), .dynamic = true};
inline constexpr QuantKey kMxfp6E2M3Dynamic{
    .element = Element::e2m3, .scale = ScaleType::e8m0, .granularity = Granularity::group(32), .dynamic = true};
inline constexpr QuantKey kNvfp4Static{
    .element = Element::e2m1, .scale = ScaleType::e4m3, .granularity = Granularity::group(16), .second_level = true};
inline constexpr QuantKey kNvfp4Dynamic{.element = Element::e2m1,
                                        .scale = ScaleType::e4m3,
                                        .granularity = Granularity::group(16),
                                        .dynamic = true,
                                        .second_level = true};
inline constexpr QuantKey kNvfp4DynamicToken{.element = Element::e2m1,
                                             .scale = ScaleType::e4m3,
                                             .granularity = Granularity::group(16),
                                             .dynamic = true,
                                             .second_level = true,
                                             .second_level_per_token = true};

// Weights of this key, 16-bit activations.
constexpr KeyRule w(const QuantKey& weight) {
  return {.keys = {.element = weight.element,
                   .scale = weight.scale,
                   .granularity = weight.granularity.kind,
                   .allow_asymmetric = !weight.symmetric,
                   .rows = weight.granularity.rows,
                   .cols = weight.granularity.cols,
                   .second_level = weight.second_level}};
}
constexpr KeyRule w(const QuantKey& weight, const QuantKey& activation) {
  KeyRule rule = w(weight);
  rule.keys.activation = true;
  rule.keys.activation_key = activation;
  return rule;
}
// Whatever the activations are.
constexpr KeyRule any(const QuantKey& weight) {
  KeyRule rule = w(weight);
  rule.any_activation = true;
  return rule;
}
inline constexpr KeyRule kUnquantized{};
// Integer codes of 2, 3, 5, 6 or 7 bits, with or without zero points.
inline constexpr KeyRule kNarrowInt = [] {
  KeyRule rule = w(kInt8StaticAsym);
  rule.narrow_codes = true;
  return rule;
}();
inline constexpr KeyRule kFp8AnyBlock128{.keys = {.element = Element::e4m3,
                                                  .scale = ScaleType::f32,
                                                  .granularity = Granularity::Kind::block,
                                                  .activation = true,
                                                  .activation_key = kFp8Dynamic128Sym}};
// FP8 weights of any granularity, whatever the activations are.
inline constexpr Few<KeyRule, 4> kFp8Weights{
    any(kFp8StaticTensorSym), any(kFp8StaticChannelSym), any(kFp8Static128BlockE8M0Sym),
    KeyRule{.keys = {.element = Element::e4m3, .scale = ScaleType::f32, .granularity = Granularity::Kind::block},
            .any_activation = true}};

// Compute capabilities x 10.
constexpr DeviceRule cuda(int low = 0, int high = 9999) {
  return {.device = DeviceKind::cuda, .min_capability = low, .max_capability = high};
}
constexpr DeviceRule rocm(std::string_view arch = {}) {
  return {.device = DeviceKind::rocm, .arch = arch};
}
constexpr DeviceRule host(CpuFeatures features = 0) {
  return {.device = DeviceKind::cpu, .cpu_features = features};
}
constexpr DeviceRule host_arch(std::string_view arch) {
  return {.device = DeviceKind::cpu, .arch = arch};
}
inline constexpr DeviceRule kSm90 = cuda(90, 90);
inline constexpr DeviceRule kSm10x = cuda(100, 109);
inline constexpr DeviceRule kSm12x = cuda(120, 129);
inline constexpr DeviceRule kXpu{.device = DeviceKind::xpu};

// vLLM's names of activations and routings, in Moracle's terms:
//   swigluoai_uninterleave = swigluoai_split; Default = softmax_topk; RenormalizeNaive = softmax_topk_renorm;
//   Renormalize = topk_softmax; MiniMax2 = sigmoid_bias_renorm; DeepSeekV3 = grouped_sigmoid_bias;
//   DeepseekV4 = sqrtsoftplus_bias
using Fn = ActivationFn;
inline constexpr std::array kEveryActivation{
    Fn::silu, Fn::gelu,  Fn::gelu_tanh,   Fn::swigluoai,   Fn::swigluoai_split,  Fn::swiglustep,
    Fn::situ, Fn::relu2, Fn::silu_no_mul, Fn::gelu_no_mul, Fn::gelu_tanh_no_mul, Fn::relu2_no_mul};
inline constexpr std::array kAllButRelu2{
    Fn::silu, Fn::gelu,        Fn::gelu_tanh,   Fn::swigluoai,        Fn::swigluoai_split, Fn::swiglustep,
    Fn::situ, Fn::silu_no_mul, Fn::gelu_no_mul, Fn::gelu_tanh_no_mul, Fn::relu2_no_mul};
inline constexpr std::array kSilu{Fn::silu};
inline constexpr SetOf<Fn> kUngated{Fn::silu_no_mul, Fn::gelu_no_mul, Fn::gelu_tanh_no_mul, Fn::relu2_no_mul};

inline constexpr std::array kAllGpus{cuda(), rocm(), kXpu};
inline constexpr std::array<std::string_view, 1> kFlashInfer{"flashinfer"};
// Exchanges over NVLink; "flashinfer_all2allv" is an older name of the two-sided one.
inline constexpr std::array<std::string_view, 2> kTwoSided{"flashinfer_nvlink_two_sided", "flashinfer_all2allv"};
inline constexpr std::array<std::string_view, 3> kNvlink{"flashinfer_nvlink_two_sided", "flashinfer_all2allv",
                                                         "flashinfer_nvlink_one_sided"};
inline constexpr std::array<std::string_view, 1> kGatherScatter{"allgather_reducescatter"};

inline constexpr FactTest kAiterOn{"VLLM_ROCM_USE_AITER", "1"};
inline constexpr FactTest kAiterExpertsOn{"VLLM_ROCM_USE_AITER_MOE", "0", false};

}  // namespace moracle::vllm
