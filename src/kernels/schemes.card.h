// The schemes of the tables, as the (weight, activation) pairs that cards accept. One list a table; what a kernel
// serves of it is the kernel's own statement, made in its card.
#pragma once

#include <array>

#include "oracle/card.h"

namespace moracle::schemes {

constexpr SchemeRule integer(Element element, Granularity::Kind kind) {
  return {.element = element, .scale = ScaleType::f32, .granularity = kind, .allow_asymmetric = true};
}
inline constexpr std::array kWna16{
    integer(Element::int4, Granularity::Kind::group), integer(Element::int4, Granularity::Kind::channel),
    integer(Element::int8, Granularity::Kind::group), integer(Element::int8, Granularity::Kind::channel)};
inline constexpr std::array kWna16Groups{integer(Element::int4, Granularity::Kind::group),
                                         integer(Element::int8, Granularity::Kind::group)};

inline constexpr std::array kUnquantized{SchemeRule{.element = Element::bf16}, SchemeRule{.element = Element::f16},
                                         SchemeRule{.element = Element::f32}};

// Activation keys.
inline constexpr QuantKey kInt8Token{
    .element = Element::int8, .scale = ScaleType::f32, .granularity = Granularity::token(), .dynamic = true};
inline constexpr QuantKey kInt8Tensor{
    .element = Element::int8, .scale = ScaleType::f32, .granularity = Granularity::tensor()};
inline constexpr QuantKey kFp8Token{
    .element = Element::e4m3, .scale = ScaleType::f32, .granularity = Granularity::token(), .dynamic = true};
inline constexpr QuantKey kFp8Group128{
    .element = Element::e4m3, .scale = ScaleType::f32, .granularity = Granularity::group(128), .dynamic = true};
inline constexpr QuantKey kFp8Tensor{
    .element = Element::e4m3, .scale = ScaleType::f32, .granularity = Granularity::tensor()};
constexpr QuantKey mx_group(Element element) {
  return {.element = element, .scale = ScaleType::e8m0, .granularity = Granularity::group(32), .dynamic = true};
}
inline constexpr QuantKey kMxfp4Group = mx_group(Element::e2m1);
inline constexpr QuantKey kMxfp6E2m3Group = mx_group(Element::e2m3);
inline constexpr QuantKey kMxfp6E3m2Group = mx_group(Element::e3m2);
inline constexpr QuantKey kMxfp8Group = mx_group(Element::e4m3);
inline constexpr QuantKey kNvfp4Group{.element = Element::e2m1,
                                      .scale = ScaleType::e4m3,
                                      .granularity = Granularity::group(16),
                                      .dynamic = true,
                                      .second_level = true};

constexpr SchemeRule with(SchemeRule weight, const QuantKey& activation) {
  weight.activation = true;
  weight.activation_key = activation;
  return weight;
}
constexpr SchemeRule plain(Element element, Granularity::Kind kind) {
  return {.element = element, .scale = ScaleType::f32, .granularity = kind};
}

// A non-zero zero point of an int8 weight is applied, so asymmetric weights are served.
inline constexpr SchemeRule kInt8Channel = integer(Element::int8, Granularity::Kind::channel);
inline constexpr SchemeRule kInt8PerTensor = integer(Element::int8, Granularity::Kind::tensor);
inline constexpr std::array kInt8{with(kInt8Channel, kInt8Token), with(kInt8Channel, kInt8Tensor),
                                  with(kInt8PerTensor, kInt8Token), with(kInt8PerTensor, kInt8Tensor)};

inline constexpr SchemeRule kInt4Group = integer(Element::int4, Granularity::Kind::group);
inline constexpr SchemeRule kInt4Channel = integer(Element::int4, Granularity::Kind::channel);
inline constexpr std::array kInt4A16{kInt4Group, kInt4Channel};
// int4 codes of FP8 codes: channel scales under the scale of the tensor.
inline constexpr SchemeRule kInt4OfFp8{
    .element = Element::int4, .scale = ScaleType::f32, .granularity = Granularity::Kind::channel, .second_level = true};
inline constexpr std::array kW4A8{with(kInt4Group, kInt8Token), with(kInt4Channel, kInt8Token),
                                  with(kInt4Group, kFp8Token),  with(kInt4Channel, kFp8Token),
                                  with(kInt4OfFp8, kFp8Token),  with(kInt4OfFp8, kFp8Tensor)};

inline constexpr std::array kW4A8Int8{with(kInt4Group, kInt8Token), with(kInt4Channel, kInt8Token)};

inline constexpr SchemeRule kFp8WeightTensor = plain(Element::e4m3, Granularity::Kind::tensor);
inline constexpr SchemeRule kFp8WeightChannel = plain(Element::e4m3, Granularity::Kind::channel);
inline constexpr SchemeRule kFp8WeightBlock = plain(Element::e4m3, Granularity::Kind::block);
// Blocks under powers of two.
inline constexpr SchemeRule kFp8WeightBlockE8m0{
    .element = Element::e4m3, .scale = ScaleType::e8m0, .granularity = Granularity::Kind::block};
inline constexpr std::array kFp8{kFp8WeightTensor,
                                 kFp8WeightChannel,
                                 kFp8WeightBlock,
                                 with(kFp8WeightTensor, kFp8Tensor),
                                 with(kFp8WeightTensor, kFp8Token),
                                 with(kFp8WeightChannel, kFp8Token),
                                 with(kFp8WeightChannel, kFp8Tensor),
                                 with(kFp8WeightBlock, kFp8Group128),
                                 kFp8WeightBlockE8m0,
                                 with(kFp8WeightBlockE8m0, kFp8Group128)};

constexpr SchemeRule mx_weight(Element element) {
  return {.element = element, .scale = ScaleType::e8m0, .granularity = Granularity::Kind::group, .cols = 32};
}
inline constexpr SchemeRule kMxfp4Weight = mx_weight(Element::e2m1);
inline constexpr std::array kMxfp4A16{kMxfp4Weight};
inline constexpr std::array kMxfp4{kMxfp4Weight,
                                   with(kMxfp4Weight, kFp8Tensor),
                                   with(kMxfp4Weight, kFp8Token),
                                   with(kMxfp4Weight, kFp8Group128),
                                   with(kMxfp4Weight, kMxfp4Group),
                                   with(kMxfp4Weight, kMxfp6E2m3Group),
                                   with(kMxfp4Weight, kMxfp6E3m2Group),
                                   with(kMxfp4Weight, kMxfp8Group)};

inline constexpr SchemeRule kMxfp6E2m3Weight = mx_weight(Element::e2m3);
inline constexpr SchemeRule kMxfp6E3m2Weight = mx_weight(Element::e3m2);
inline constexpr std::array kMxfp6{kMxfp6E2m3Weight,
                                   with(kMxfp6E2m3Weight, kMxfp6E2m3Group),
                                   with(kMxfp6E2m3Weight, kFp8Tensor),
                                   with(kMxfp6E2m3Weight, kFp8Token),
                                   kMxfp6E3m2Weight,
                                   with(kMxfp6E3m2Weight, kMxfp6E3m2Group),
                                   with(kMxfp6E3m2Weight, kFp8Tensor),
                                   with(kMxfp6E3m2Weight, kFp8Token)};

inline constexpr SchemeRule kMxfp8Weight = mx_weight(Element::e4m3);
inline constexpr std::array kMxfp8{kMxfp8Weight, with(kMxfp8Weight, kMxfp8Group)};

inline constexpr SchemeRule kNvfp4Weight{.element = Element::e2m1,
                                         .scale = ScaleType::e4m3,
                                         .granularity = Granularity::Kind::group,
                                         .cols = 16,
                                         .second_level = true};
inline constexpr std::array kNvfp4A16{kNvfp4Weight};
inline constexpr std::array kNvfp4{kNvfp4Weight, with(kNvfp4Weight, kNvfp4Group)};

}  // namespace moracle::schemes
