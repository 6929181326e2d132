// What the CUDA kernels of compute capability 9.0 serve. One layout and one set of kernels for every scheme.
#pragma once

#include <array>

#include "device/launch_args.h"
#include "kernels/schemes.card.h"
#include "oracle/card.h"

namespace moracle {

// Machine code of sm_90a runs on no other capability.
inline constexpr std::array kSm90Devices{
    DeviceRule{.device = DeviceKind::cuda, .min_capability = 90, .max_capability = 90}};
// A fold of sums meets a group's end at these widths.
inline constexpr std::array<std::int32_t, 6> kSm90Groups{16, 32, 64, 128, 256, 512};
inline constexpr std::array kSm90Activations{ActivationFn::silu, ActivationFn::gelu_tanh, ActivationFn::swigluoai,
                                             ActivationFn::swiglustep};

constexpr KernelCard sm90_card(std::string_view id, std::span<const SchemeRule> schemes, std::string_view summary) {
  return {.id = id,
          .backend = "sm90",
          .summary = summary,
          .device = DeviceKind::cuda,
          .devices = kSm90Devices,
          .schemes = schemes,
          .group_sizes = kSm90Groups,
          .zero_points = true,
          .bias = true,
          .activations = kSm90Activations,
          .inputs = InputRounding::bf16,
          .batch_invariant = true,
          .accumulation = "bf16 products, f32 sums of up to 128 columns, added in the order of columns"};
}
// Schemes whose activations have no scale a group can have their columns reordered.
constexpr KernelCard with_act_order(KernelCard card) {
  card.act_order = true;
  card.own_up_order = true;
  return card;
}

inline constexpr KernelCard kCardSm90Wna16 =
    with_act_order(sm90_card("cuda.sm90.wna16", schemes::kWna16, "integer weights, bf16 activations"));
inline constexpr KernelCard kCardSm90Int8 =
    with_act_order(sm90_card("cuda.sm90.int8", schemes::kInt8, "int8 weights and activations, multiplied as bf16"));
inline constexpr KernelCard kCardSm90W4A8 =
    with_act_order(sm90_card("cuda.sm90.w4a8", schemes::kW4A8, "int4 weights, 8-bit activations, multiplied as bf16"));
inline constexpr KernelCard kCardSm90Fp8 =
    sm90_card("cuda.sm90.fp8", schemes::kFp8, "E4M3 weights, multiplied as bf16");
inline constexpr KernelCard kCardSm90Mxfp4 =
    sm90_card("cuda.sm90.mxfp4", schemes::kMxfp4, "E2M1 weights under E8M0 scales, multiplied as bf16");
inline constexpr KernelCard kCardSm90Mxfp6 =
    sm90_card("cuda.sm90.mxfp6", schemes::kMxfp6, "E2M3 and E3M2 weights under E8M0 scales, kept as E4M3");
inline constexpr KernelCard kCardSm90Mxfp8 =
    sm90_card("cuda.sm90.mxfp8", schemes::kMxfp8, "E4M3 weights under E8M0 scales of 32, multiplied as bf16");
inline constexpr KernelCard kCardSm90Nvfp4 =
    sm90_card("cuda.sm90.nvfp4", schemes::kNvfp4, "E2M1 weights under E4M3 scales, multiplied as bf16");
inline constexpr KernelCard kCardSm90Dense =
    sm90_card("cuda.sm90.dense", schemes::kUnquantized, "unquantized weights; f16 and f32 in three parts of bf16");

// Kernels that stream weights, in sizes they were compiled for. Larger calls take the steps of the other kernels on the
// same pack.
inline constexpr std::array kStreamedActivations{ActivationFn::silu, ActivationFn::swigluoai};
constexpr KernelCard sm90_stream_card(std::string_view id, std::span<const SchemeRule> schemes,
                                      std::span<const LayerSize> sizes, std::string_view summary) {
  KernelCard card = sm90_card(id, schemes, summary);
  card.backend = "sm90-stream";
  card.sizes = sizes;
  card.max_experts = kDecodeExperts;
  card.serves_linear = false;
  card.zero_points = false;
  card.activations = kStreamedActivations;
  card.batch_invariant = false;
  card.accumulation = "bf16 products, f32 sums of 32 or 64 columns; a token's choices in the order of all experts";
  return card;
}
inline constexpr std::array kStreamedInt4Sizes{LayerSize{2048, 768}};
inline constexpr std::array kStreamedInt4{
    SchemeRule{
        .element = Element::int4, .scale = ScaleType::bf16, .granularity = Granularity::Kind::group, .cols = 128},
    SchemeRule{
        .element = Element::int4, .scale = ScaleType::f16, .granularity = Granularity::Kind::group, .cols = 128}};
inline constexpr KernelCard kCardSm90StreamInt4 = [] {
  KernelCard card = sm90_stream_card("cuda.sm90.stream-int4", kStreamedInt4, kStreamedInt4Sizes,
                                     "int4 weights streamed once, up to 64 tokens in one launch");
  card.bias = false;
  return card;
}();
inline constexpr std::array kStreamedMxfp4Sizes{LayerSize{2880, 2880}};
inline constexpr KernelCard kCardSm90StreamMxfp4 =
    sm90_stream_card("cuda.sm90.stream-mxfp4", schemes::kMxfp4A16, kStreamedMxfp4Sizes,
                     "E2M1 weights streamed once, up to 64 tokens in one launch");
inline constexpr std::array kSm90StreamCards{&kCardSm90StreamInt4, &kCardSm90StreamMxfp4};

inline constexpr std::array kSm90Cards{&kCardSm90Wna16, &kCardSm90Int8,  &kCardSm90W4A8,
                                       &kCardSm90Fp8,   &kCardSm90Mxfp4, &kCardSm90Mxfp6,
                                       &kCardSm90Mxfp8, &kCardSm90Nvfp4, &kCardSm90Dense};

}  // namespace moracle
