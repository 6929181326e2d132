// What the CUDA kernels serve. Portable ones have one layout and one set of kernels for every scheme.
#pragma once

#include <array>

#include "kernels/args/experts.h"
#include "kernels/schemes.card.h"
#include "oracle/card.h"

namespace moracle {

inline constexpr std::array kPortableDevices{DeviceRule{.device = DeviceKind::cuda, .min_capability = 80}};
// Machine code of sm_90a runs on no other capability.
inline constexpr std::array kSm90Devices{
    DeviceRule{.device = DeviceKind::cuda, .min_capability = 90, .max_capability = 90}};
// A fold of sums meets a group's end at these widths.
inline constexpr std::array<std::int32_t, 6> kPortableGroups{16, 32, 64, 128, 256, 512};
inline constexpr std::array<std::int32_t, 1> kGroup128{128};
inline constexpr std::array kPortableActivations{ActivationFn::silu, ActivationFn::gelu_tanh, ActivationFn::swigluoai,
                                                 ActivationFn::swiglustep};

constexpr KernelCard portable_card(std::string_view id, std::span<const SchemeRule> schemes, std::string_view summary) {
  return {.id = id,
          .backend = "portable",
          .summary = summary,
          .device = DeviceKind::cuda,
          .devices = kPortableDevices,
          .schemes = schemes,
          .group_sizes = kPortableGroups,
          .zero_points = true,
          .bias = true,
          .activations = kPortableActivations,
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

inline constexpr KernelCard kCardPortableWna16 =
    with_act_order(portable_card("cuda.portable.wna16", schemes::kWna16, "integer weights, bf16 activations"));
inline constexpr KernelCard kCardPortableInt8 = with_act_order(
    portable_card("cuda.portable.int8", schemes::kInt8, "int8 weights and activations, multiplied as bf16"));
inline constexpr KernelCard kCardPortableW4A8 = with_act_order(
    portable_card("cuda.portable.w4a8", schemes::kW4A8, "int4 weights, 8-bit activations, multiplied as bf16"));
inline constexpr KernelCard kCardPortableFp8 =
    portable_card("cuda.portable.fp8", schemes::kFp8, "E4M3 weights, multiplied as bf16");
inline constexpr KernelCard kCardPortableMxfp4 =
    portable_card("cuda.portable.mxfp4", schemes::kMxfp4, "E2M1 weights under E8M0 scales, multiplied as bf16");
inline constexpr KernelCard kCardPortableMxfp6 =
    portable_card("cuda.portable.mxfp6", schemes::kMxfp6, "E2M3 and E3M2 weights under E8M0 scales, kept as E4M3");
inline constexpr KernelCard kCardPortableMxfp8 =
    portable_card("cuda.portable.mxfp8", schemes::kMxfp8, "E4M3 weights under E8M0 scales of 32, multiplied as bf16");
inline constexpr KernelCard kCardPortableNvfp4 =
    portable_card("cuda.portable.nvfp4", schemes::kNvfp4, "E2M1 weights under E4M3 scales, multiplied as bf16");
inline constexpr KernelCard kCardPortableDense = portable_card(
    "cuda.portable.dense", schemes::kUnquantized, "unquantized weights; f16 and f32 in three parts of bf16");

// Kernels that stream weights from records. Calls of few tokens take one launch where an instance has the sizes.
inline constexpr std::array kStreamedActivations{ActivationFn::silu, ActivationFn::swigluoai};
// Columns of a step of records: of a scale's 128, or else 64.
constexpr KernelCard sm90_stream_card(std::string_view id, std::span<const SchemeRule> schemes, std::int64_t step,
                                      std::string_view summary) {
  KernelCard card = portable_card(id, schemes, summary);
  card.backend = "sm90-stream";
  card.devices = kSm90Devices;
  card.group_sizes = kGroup128;
  card.hidden_multiple = step;
  card.intermediate_multiple = step;
  card.max_experts = kDecodeExperts;
  card.serves_linear = false;
  card.zero_points = false;
  card.activations = kStreamedActivations;
  card.rounds_weights = true;
  card.accumulation =
      "bf16 products, f32 sums; a token's choices in that of all experts, or where it must not depend on the batch, "
      "in their order";
  return card;
}
constexpr KernelCard without_bias(KernelCard card) {
  card.bias = false;
  return card;
}
namespace streamed {
constexpr SchemeRule int4(ScaleType scale) {
  return {.element = Element::int4, .scale = scale, .granularity = Granularity::Kind::group, .cols = 128};
}
constexpr SchemeRule int8(Granularity::Kind kind) {
  return {.element = Element::int8, .scale = ScaleType::f32, .granularity = kind};
}
constexpr SchemeRule fp8_block(ScaleType scale) {
  return {.element = Element::e4m3, .scale = scale, .granularity = Granularity::Kind::block, .cols = 128};
}
inline constexpr std::array kInt4{int4(ScaleType::bf16), int4(ScaleType::f16)};
inline constexpr std::array kInt8A16{int8(Granularity::Kind::group), int8(Granularity::Kind::channel)};
inline constexpr std::array kW4A8{
    schemes::with(int4(ScaleType::bf16), schemes::kInt8Token), schemes::with(int4(ScaleType::f16), schemes::kInt8Token),
    schemes::with(int4(ScaleType::bf16), schemes::kFp8Token), schemes::with(int4(ScaleType::f16), schemes::kFp8Token)};
inline constexpr std::array kInt8{schemes::with(int8(Granularity::Kind::channel), schemes::kInt8Token),
                                  schemes::with(int8(Granularity::Kind::channel), schemes::kInt8Tensor),
                                  schemes::with(int8(Granularity::Kind::tensor), schemes::kInt8Token),
                                  schemes::with(int8(Granularity::Kind::tensor), schemes::kInt8Tensor)};
inline constexpr std::array kFp8{schemes::kFp8WeightTensor,
                                 schemes::kFp8WeightChannel,
                                 schemes::with(schemes::kFp8WeightTensor, schemes::kFp8Tensor),
                                 schemes::with(schemes::kFp8WeightTensor, schemes::kFp8Token),
                                 schemes::with(schemes::kFp8WeightChannel, schemes::kFp8Token),
                                 schemes::with(schemes::kFp8WeightChannel, schemes::kFp8Tensor)};
inline constexpr std::array kFp8Block{fp8_block(ScaleType::f32), fp8_block(ScaleType::e8m0),
                                      schemes::with(fp8_block(ScaleType::f32), schemes::kFp8Group128),
                                      schemes::with(fp8_block(ScaleType::e8m0), schemes::kFp8Group128)};
inline constexpr std::array kBf16{SchemeRule{.element = Element::bf16}};
}  // namespace streamed

inline constexpr KernelCard kCardSm90StreamInt4 = without_bias(
    sm90_stream_card("cuda.sm90.stream-int4", streamed::kInt4, 128, "int4 weights streamed, bf16 activations"));
inline constexpr KernelCard kCardSm90StreamW4A8 = without_bias(
    sm90_stream_card("cuda.sm90.stream-w4a8", streamed::kW4A8, 128,
                     "int4 weights streamed, 8-bit activations, multiplied as bytes, of few tokens as bf16"));
inline constexpr KernelCard kCardSm90StreamInt8A16 =
    sm90_stream_card("cuda.sm90.stream-int8-a16", streamed::kInt8A16, 128, "int8 weights streamed, bf16 activations");
inline constexpr KernelCard kCardSm90StreamInt8 =
    sm90_stream_card("cuda.sm90.stream-int8", streamed::kInt8, 64,
                     "int8 weights streamed, int8 activations, multiplied as bytes, of few tokens as bf16");
inline constexpr KernelCard kCardSm90StreamFp8 = sm90_stream_card(
    "cuda.sm90.stream-fp8", streamed::kFp8, 64, "E4M3 weights streamed, multiplied as bf16 or as E4M3");
inline constexpr KernelCard kCardSm90StreamFp8Block =
    sm90_stream_card("cuda.sm90.stream-fp8-block", streamed::kFp8Block, 128,
                     "E4M3 weights under scales of 128 columns streamed, multiplied as bf16 or as E4M3");
inline constexpr KernelCard kCardSm90StreamMxfp4 =
    sm90_stream_card("cuda.sm90.stream-mxfp4", schemes::kMxfp4, 64,
                     "E2M1 weights under E8M0 scales streamed, multiplied as bf16 or as E4M3");
inline constexpr KernelCard kCardSm90StreamNvfp4 = sm90_stream_card(
    "cuda.sm90.stream-nvfp4", schemes::kNvfp4, 64, "E2M1 weights under E4M3 scales streamed, multiplied as bf16");
inline constexpr KernelCard kCardSm90StreamBf16 =
    sm90_stream_card("cuda.sm90.stream-bf16", streamed::kBf16, 64, "bf16 weights streamed");
inline constexpr std::array kSm90StreamCards{&kCardSm90StreamInt4,  &kCardSm90StreamW4A8,  &kCardSm90StreamInt8A16,
                                             &kCardSm90StreamInt8,  &kCardSm90StreamFp8,   &kCardSm90StreamFp8Block,
                                             &kCardSm90StreamMxfp4, &kCardSm90StreamNvfp4, &kCardSm90StreamBf16};

inline constexpr std::array kPortableCards{&kCardPortableWna16, &kCardPortableInt8,  &kCardPortableW4A8,
                                           &kCardPortableFp8,   &kCardPortableMxfp4, &kCardPortableMxfp6,
                                           &kCardPortableMxfp8, &kCardPortableNvfp4, &kCardPortableDense};

}  // namespace moracle
