// Activation keys as plain arguments, and back.
#include "kernels/input_quant.h"

#include <gtest/gtest.h>

#include "scheme/activation_codes.h"

namespace moracle {
namespace {

constexpr QuantKey key(Element element, ScaleType scale, Granularity granularity, bool dynamic = true,
                       bool second_level = false) {
  return {
      .element = element, .scale = scale, .granularity = granularity, .dynamic = dynamic, .second_level = second_level};
}

TEST(InputQuant, BringsBackEveryActivationKey) {
  const QuantKey keys[] = {key(Element::int8, ScaleType::f32, Granularity::token()),
                           key(Element::int8, ScaleType::f32, Granularity::tensor(), false),
                           key(Element::e4m3, ScaleType::f32, Granularity::token()),
                           key(Element::e4m3, ScaleType::f32, Granularity::group(128)),
                           key(Element::e4m3, ScaleType::f32, Granularity::group(64)),
                           key(Element::e4m3, ScaleType::f32, Granularity::tensor(), false),
                           key(Element::e2m1, ScaleType::e8m0, Granularity::group(32)),
                           key(Element::e2m3, ScaleType::e8m0, Granularity::group(32)),
                           key(Element::e3m2, ScaleType::e8m0, Granularity::group(32)),
                           key(Element::e4m3, ScaleType::e8m0, Granularity::group(32)),
                           key(Element::e2m1, ScaleType::e4m3, Granularity::group(16), true, true)};
  for (const QuantKey& key : keys) {
    ASSERT_TRUE(can_quantize_activation(key)) << to_string(key);
    const InputQuant input = input_quant(key, 0.5F);
    EXPECT_EQ(input.scale, 0.5F);
    const auto back = key_of(input);
    ASSERT_TRUE(back.has_value()) << to_string(key);
    EXPECT_EQ(*back, key) << to_string(*back) << ", not " << to_string(key);
  }
}

TEST(InputQuant, LeavesOtherNumbersAsTheyAre) {
  EXPECT_FALSE(key_of(InputQuant{}).has_value());
  EXPECT_EQ(input_quant(key(Element::e5m2, ScaleType::f32, Granularity::token()), {}).kind, InputKind::split);
  EXPECT_EQ(input_quant(key(Element::int8, ScaleType::f32, Granularity::token()), {}).scale, 1.0F);
}

}  // namespace
}  // namespace moracle
