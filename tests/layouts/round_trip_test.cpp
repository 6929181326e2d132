// unpack(pack(x)) == x for every layout on random matrices, ragged sizes included; what a layout cannot hold is
// refused.
#include <gtest/gtest.h>

#include <bit>
#include <random>

#include "kernels/layouts/mapped_layouts.h"
#include "kernels/layouts/marlin.h"
#include "kernels/layouts/value_pack.h"
#include "support/random_experts.h"

namespace moracle {
namespace {

using namespace layout;

QuantKey integer_key(Element element, ScaleType scale, Granularity granularity, bool symmetric) {
  return {.element = element, .scale = scale, .granularity = granularity, .symmetric = symmetric};
}
constexpr QuantKey kMxfp4{.element = Element::e2m1, .scale = ScaleType::e8m0, .granularity = Granularity::group(32)};
constexpr QuantKey kMxfp8{.element = Element::e4m3, .scale = ScaleType::e8m0, .granularity = Granularity::group(32)};
constexpr QuantKey kNvfp4{
    .element = Element::e2m1, .scale = ScaleType::e4m3, .granularity = Granularity::group(16), .second_level = true};

struct Shape {
  std::int64_t hidden, intermediate;
};

// w13 or w2 of one random expert, with a bias.
LayoutMatrix random_matrix(const QuantKey& key, const Shape& shape, Role role, bool act_order, std::mt19937& rng) {
  const CanonicalExperts experts = test::random_experts({.key = key,
                                                         .experts = 1,
                                                         .hidden = shape.hidden,
                                                         .intermediate = shape.intermediate,
                                                         .act_order = act_order,
                                                         .shared_gate_up_order = true,
                                                         .bias = true},
                                                        rng);
  auto matrix = role == Role::w13 ? w13_matrix(experts.experts[0]) : w2_matrix(experts.experts[0]);
  EXPECT_TRUE(matrix.ok()) << matrix.error().message();
  return std::move(matrix).value();
}

// Sizes are multiples of `step`, drawn between one and about 400.
std::vector<Shape> shapes(std::int64_t hidden_step, std::int64_t intermediate_step, std::mt19937& rng) {
  const auto draw = [&](std::int64_t step) {
    return step * std::uniform_int_distribution<std::int64_t>(1, std::max<std::int64_t>(2, 400 / step))(rng);
  };
  std::vector<Shape> drawn{{hidden_step, intermediate_step}};
  for (int i = 0; i < 2; ++i) drawn.push_back({draw(hidden_step), draw(intermediate_step)});
  return drawn;
}

template <class PackMatrix>
void expect_round_trip(const QuantKey& key, const Shape& shape, bool act_order, bool bias, const PackMatrix& pack,
                       std::mt19937& rng) {
  for (const Role role : {Role::w13, Role::w2}) {
    LayoutMatrix matrix = random_matrix(key, shape, role, act_order, rng);
    if (!bias) matrix.bias.clear();
    const auto packed = pack(matrix, role);
    ASSERT_TRUE(packed.ok()) << packed.error().message();
    EXPECT_TRUE(same(unpack(*packed), matrix)) << to_string(key) << " " << shape.hidden << " x " << shape.intermediate;
  }
}

// One matrix, of any size.
template <class PackMatrix>
void expect_linear_round_trip(const QuantKey& key, bool act_order, const PackMatrix& pack, std::mt19937& rng) {
  for (const Shape& shape : shapes(1, 1, rng)) {
    const CanonicalLinear linear =
        test::random_linear({key, std::nullopt, shape.intermediate, shape.hidden, act_order, true}, rng);
    const std::array parts{&linear};
    const auto matrix = whole_matrix(parts);
    ASSERT_TRUE(matrix.ok());
    const auto packed = pack(*matrix, Role::linear);
    ASSERT_TRUE(packed.ok()) << packed.error().message();
    EXPECT_TRUE(same(unpack(*packed), *matrix))
        << to_string(key) << " " << shape.hidden << " -> " << shape.intermediate;
  }
}

TEST(LayoutRoundTrip, MarlinLinears) {
  std::mt19937 rng(11);
  const auto wna16 = [](const LayoutMatrix& matrix, Role role) { return pack_marlin_wna16(matrix, role); };
  const auto fp8 = [](const LayoutMatrix& matrix, Role role) { return pack_marlin_fp8(matrix, role); };
  const auto mx = [](const LayoutMatrix& matrix, Role role) { return pack_marlin_mx(matrix, role); };
  const auto nvfp4 = [](const LayoutMatrix& matrix, Role role) {
    const float largest = *std::max_element(matrix.panel.scales.begin(), matrix.panel.scales.end());
    return pack_marlin_nvfp4(matrix, role, marlin_nvfp4_factor(largest, ScaleType::bf16));
  };
  for (const Element element : {Element::int4, Element::int8})
    for (const bool symmetric : {true, false})
      for (const Granularity granularity : {Granularity::channel(), Granularity::group(32), Granularity::group(128)}) {
        const QuantKey key = integer_key(element, ScaleType::bf16, granularity, symmetric);
        expect_linear_round_trip(key, false, wna16, rng);
        if (granularity.kind == Granularity::Kind::group) expect_linear_round_trip(key, true, wna16, rng);
      }
  for (const Granularity granularity : {Granularity::tensor(), Granularity::channel(), Granularity::block(128, 128)}) {
    const QuantKey key{.element = Element::e4m3, .scale = ScaleType::bf16, .granularity = granularity};
    expect_linear_round_trip(key, false, fp8, rng);
  }
  expect_linear_round_trip(kMxfp4, false, mx, rng);
  expect_linear_round_trip(kMxfp8, false, mx, rng);
  expect_linear_round_trip(kNvfp4, false, nvfp4, rng);
}

// The tiles that store less, of 64 x 128 and 128 x 64; inputs to whole groups.
TEST(LayoutRoundTrip, MarlinLinearsArePaddedToTheSmallerTiles) {
  const auto part = [](std::int64_t out, std::int64_t in, Granularity granularity) {
    const QuantKey key = integer_key(Element::int4, ScaleType::f16, granularity, true);
    const bool grouped = granularity.kind == Granularity::Kind::group;
    const std::int64_t width = grouped ? granularity.cols : in;
    return marlin_linear_part({.name = "linear",
                               .key = key,
                               .rows = out,
                               .cols = in,
                               .parts = 1,
                               .group_cols = width,
                               .groups = (in + width - 1) / width})
        .value();
  };
  EXPECT_EQ(part(64, 128, Granularity::channel()), (Grid{64, 128}));
  EXPECT_EQ(part(128, 64, Granularity::channel()), (Grid{128, 64}));
  EXPECT_EQ(part(65, 64, Granularity::channel()), (Grid{128, 64}));
  EXPECT_EQ(part(64, 65, Granularity::channel()), (Grid{64, 128}));
  EXPECT_EQ(part(1, 1, Granularity::channel()), (Grid{64, 128})) << "equal: 64 outputs";
  EXPECT_EQ(part(128, 64, Granularity::group(128)), (Grid{128, 128}));
  EXPECT_EQ(part(100, 200, Granularity::group(96)), (Grid{128, 384}));
}

TEST(LayoutRoundTrip, MarlinIntegers) {
  std::mt19937 rng(1);
  const auto pack = [](MarlinActivations activations) {
    return [activations](const LayoutMatrix& matrix, Role role) {
      return pack_marlin_wna16(matrix, role, {.activations = activations});
    };
  };
  for (const Element element : {Element::int4, Element::int8})
    for (const ScaleType scale : {ScaleType::f16, ScaleType::bf16})
      for (const bool symmetric : {true, false})
        for (const Granularity granularity : {Granularity::channel(), Granularity::group(32), Granularity::group(64),
                                              Granularity::group(128), Granularity::group(48)})
          for (const Shape& shape : shapes(128, 1, rng)) {
            const QuantKey key = integer_key(element, scale, granularity, symmetric);
            const bool grouped = granularity.kind == Granularity::Kind::group;
            expect_round_trip(key, shape, false, true, pack(MarlinActivations::bits16), rng);
            if (grouped) expect_round_trip(key, shape, true, true, pack(MarlinActivations::bits16), rng);
            if (element == Element::int4)
              expect_round_trip(key, shape, grouped, true, pack(MarlinActivations::fp8), rng);
            // Integer scales of several groups are rounded; one group keeps its scales.
            if (!grouped) expect_round_trip(key, shape, false, true, pack(MarlinActivations::int8), rng);
          }
}

TEST(LayoutRoundTrip, MarlinFloats) {
  std::mt19937 rng(2);
  for (const Shape& shape : shapes(128, 1, rng)) {
    for (const Granularity granularity :
         {Granularity::tensor(), Granularity::channel(), Granularity::block(128, 128), Granularity::block(64, 32)}) {
      const QuantKey key{.element = Element::e4m3, .scale = ScaleType::bf16, .granularity = granularity};
      expect_round_trip(
          key, shape, false, true, [](const LayoutMatrix& matrix, Role role) { return pack_marlin_fp8(matrix, role); },
          rng);
    }
    expect_round_trip(
        kMxfp8, shape, false, true, [](const LayoutMatrix& matrix, Role role) { return pack_marlin_mx(matrix, role); },
        rng);
  }
  for (const Shape& shape : shapes(1, 1, rng))
    for (const MarlinActivations activations : {MarlinActivations::bits16, MarlinActivations::fp8})
      expect_round_trip(
          kMxfp4, shape, false, true,
          [&](const LayoutMatrix& matrix, Role role) {
            return pack_marlin_mx(matrix, role, {.activations = activations});
          },
          rng);
  for (const Shape& shape : shapes(64, 1, rng))
    for (const ScaleType dtype : {ScaleType::f16, ScaleType::bf16})
      expect_round_trip(
          kNvfp4, shape, false, true,
          [&](const LayoutMatrix& matrix, Role role) {
            const float largest = *std::max_element(matrix.panel.scales.begin(), matrix.panel.scales.end());
            return pack_marlin_nvfp4(matrix, role, marlin_nvfp4_factor(largest, dtype), {.dtype = dtype});
          },
          rng);
}

// What the form rounds, it rounds once: packing what was unpacked changes no byte.
TEST(LayoutRoundTrip, RoundedScalesAreAFixedPoint) {
  std::mt19937 rng(3);
  const QuantKey key = integer_key(Element::int4, ScaleType::f32, Granularity::group(32), true);
  const LayoutMatrix matrix = random_matrix(key, {128, 72}, Role::w13, false, rng);
  const auto once = pack_marlin_wna16(matrix, Role::w13);
  ASSERT_TRUE(once.ok());
  const auto twice = pack_marlin_wna16(unpack(*once), Role::w13);
  ASSERT_TRUE(twice.ok());
  EXPECT_FALSE(same(unpack(*once), matrix)) << "f32 scales do not fit 16 bits";
  EXPECT_TRUE(same(unpack(*once), unpack(*twice)));
}

template <const MappedLayout& Layout>
void expect_mapped(const std::vector<QuantKey>& keys, std::mt19937& rng) {
  const std::int64_t hidden = Layout.sizes.hidden.pads ? 1 : Layout.sizes.hidden.of;
  const std::int64_t intermediate = Layout.sizes.intermediate.pads ? 1 : Layout.sizes.intermediate.of;
  for (const QuantKey& key : keys)
    for (const Shape& shape : shapes(hidden, intermediate, rng)) {
      SCOPED_TRACE(Layout.name);
      expect_round_trip(key, shape, false, Layout.bias, pack_mapped<Layout>, rng);
    }
}

TEST(LayoutRoundTrip, MappedLayouts) {
  std::mt19937 rng(4);
  std::vector<QuantKey> symmetric;
  std::vector<QuantKey> integers;
  for (const ScaleType scale : {ScaleType::f16, ScaleType::bf16, ScaleType::f32})
    for (const Granularity granularity : {Granularity::channel(), Granularity::group(32), Granularity::group(128)}) {
      symmetric.push_back(integer_key(Element::int4, scale, granularity, true));
      for (const Element element : {Element::int4, Element::int8})
        for (const bool plain : {true, false}) integers.push_back(integer_key(element, scale, granularity, plain));
    }
  expect_mapped<kTritonWna16>(integers, rng);
  expect_mapped<kXpuInt4>(symmetric, rng);
  expect_mapped<kTrtLlmMxint4>({integer_key(Element::int4, ScaleType::bf16, Granularity::group(32), true)}, rng);
  expect_mapped<kInt8Rows>({integer_key(Element::int8, ScaleType::f32, Granularity::channel(), true)}, rng);
  std::vector<QuantKey> fp8;
  for (const Granularity granularity : {Granularity::tensor(), Granularity::channel(), Granularity::block(128, 128)})
    fp8.push_back({.element = Element::e4m3, .scale = ScaleType::f32, .granularity = granularity});
  expect_mapped<kFp8Rows>(fp8, rng);
  expect_mapped<kAiterFp8>(fp8, rng);
  expect_mapped<kTrtLlmMxfp4>({kMxfp4}, rng);
  expect_mapped<kCutlassFp4>({kMxfp4, kNvfp4}, rng);
  expect_mapped<kFlashInferFp4>({kMxfp4, kNvfp4}, rng);
  expect_mapped<kAiterMxfp4>({kMxfp4}, rng);
  expect_mapped<kAiterMxfp4Gated>({kMxfp4}, rng);
  expect_mapped<kTrtLlmNvfp4>({kNvfp4}, rng);
  expect_mapped<kCuteDslNvfp4>({kNvfp4}, rng);
  expect_mapped<kB12xNvfp4>({kNvfp4}, rng);
  expect_mapped<kB12xNvfp4Gated>({kNvfp4}, rng);
  expect_mapped<kTrtLlmFp8Tensor>({fp8[0]}, rng);
  expect_mapped<kTrtLlmFp8Block>({fp8[2]}, rng);
  expect_mapped<kFlashInferFp8Tensor>({fp8[0]}, rng);
  expect_mapped<kFlashInferFp8Block>({fp8[2]}, rng);
  expect_mapped<kTrtLlmMxfp8>({kMxfp8}, rng);
}

template <const MappedLayout& Layout>
void expect_values(std::initializer_list<Element> elements, std::mt19937& rng) {
  for (const Element element : elements)
    for (const Shape& shape : shapes(Layout.sizes.hidden.of, Layout.sizes.intermediate.of, rng)) {
      SCOPED_TRACE(Layout.name);
      expect_round_trip({.element = element}, shape, false, Layout.bias, pack_values<Layout>, rng);
    }
}

TEST(LayoutRoundTrip, UnquantizedLayouts) {
  std::mt19937 rng(12);
  expect_values<kTritonValues>({Element::bf16, Element::f16, Element::f32}, rng);
  expect_values<kFlashInferValues>({Element::bf16, Element::f16}, rng);
  expect_values<kTrtLlmValues>({Element::bf16}, rng);
  expect_values<kAiterValues>({Element::bf16, Element::f16}, rng);
}

template <class T>
std::string refusal(const Result<T>& result) {
  return result.ok() ? "packed" : result.error().code;
}

// Rows of one block that differ, as rows do that were interleaved on disk.
TEST(LayoutRoundTrip, BlocksWhoseRowsDiffer) {
  std::mt19937 rng(10);
  for (const Granularity granularity : {Granularity::tensor(), Granularity::block(128, 128)}) {
    const QuantKey key{.element = Element::e4m3, .scale = ScaleType::f32, .granularity = granularity};
    LayoutMatrix matrix = random_matrix(key, {256, 256}, Role::w13, false, rng);
    const auto shared = pack_mapped<kFp8Rows>(matrix, Role::w13);
    ASSERT_TRUE(shared.ok());
    EXPECT_EQ(shared->rows_per_scale, granularity.kind == Granularity::Kind::tensor ? 256 : 128);
    matrix.panel.scales[static_cast<std::size_t>(3 * matrix.head.groups)] *= 2.0F;
    const auto apart = pack_mapped<kFp8Rows>(matrix, Role::w13);
    ASSERT_TRUE(apart.ok());
    EXPECT_EQ(apart->rows_per_scale, 1);
    EXPECT_TRUE(same(unpack(*apart), matrix));
    matrix.bias.clear();
    const bool tensor = granularity.kind == Granularity::Kind::tensor;
    const auto kernel = tensor ? refusal(pack_mapped<kTrtLlmFp8Tensor>(matrix, Role::w13))
                               : refusal(pack_mapped<kFlashInferFp8Block>(matrix, Role::w13));
    EXPECT_EQ(kernel, "layout.scale") << "one scale a block is all that these kernels read";
  }
}

TEST(LayoutRefusals, SizesWithoutTiles) {
  std::mt19937 rng(5);
  const QuantKey int4 = integer_key(Element::int4, ScaleType::bf16, Granularity::group(32), true);
  EXPECT_EQ(refusal(pack_marlin_wna16(random_matrix(int4, {96, 64}, Role::w13, false, rng), Role::w13)),
            "layout.shape");
  EXPECT_EQ(refusal(pack_marlin_nvfp4(random_matrix(kNvfp4, {96, 64}, Role::w2, false, rng), Role::w2, 1.0F)),
            "layout.shape");
  EXPECT_EQ(refusal(pack_mapped<kXpuInt4>(random_matrix(int4, {100, 64}, Role::w13, false, rng), Role::w13)),
            "layout.shape");
  LayoutMatrix half = random_matrix(int4, {256, 128}, Role::w2, false, rng);
  half.bias.clear();
  EXPECT_EQ(refusal(pack_mapped<kTrtLlmMxint4>(half, Role::w2)), "layout.shape");
}

TEST(LayoutRefusals, WhatALayoutHasNoRoomFor) {
  std::mt19937 rng(6);
  const Shape shape{256, 256};
  const auto matrix = [&](const QuantKey& key, bool act_order = false) {
    LayoutMatrix one = random_matrix(key, shape, Role::w13, act_order, rng);
    one.bias.clear();
    return one;
  };
  const QuantKey int4 = integer_key(Element::int4, ScaleType::bf16, Granularity::group(32), true);
  const QuantKey zeros = integer_key(Element::int4, ScaleType::bf16, Granularity::group(32), false);
  const QuantKey f16 = integer_key(Element::int4, ScaleType::f16, Granularity::group(32), true);
  EXPECT_EQ(refusal(pack_mapped<kXpuInt4>(matrix(zeros), Role::w13)), "layout.zero_points");
  EXPECT_EQ(refusal(pack_mapped<kXpuInt4>(matrix(int4, true), Role::w13)), "layout.act_order");
  EXPECT_EQ(refusal(pack_mapped<kTrtLlmMxint4>(matrix(f16), Role::w13)), "layout.scale_type");
  EXPECT_EQ(refusal(pack_mapped<kTrtLlmMxint4>(random_matrix(int4, shape, Role::w13, false, rng), Role::w13)),
            "layout.bias");
  EXPECT_EQ(refusal(pack_marlin_wna16(matrix(kMxfp4), Role::w13)), "layout.scheme");
  EXPECT_EQ(refusal(pack_marlin_fp8(matrix(kMxfp8), Role::w13)), "layout.scheme");
  EXPECT_EQ(refusal(pack_marlin_mx(matrix(kNvfp4), Role::w13)), "layout.scheme");
  EXPECT_EQ(refusal(pack_marlin_wna16(matrix(integer_key(Element::int8, ScaleType::f16, Granularity::channel(), true)),
                                      Role::w13, {.activations = MarlinActivations::fp8})),
            "layout.activations");
  LayoutMatrix negative = matrix(kNvfp4);
  negative.panel.scales[5] = -1.0F;
  EXPECT_EQ(refusal(pack_marlin_nvfp4(negative, Role::w13, 1.0F)), "layout.scale");
  LayoutMatrix large =
      matrix({.element = Element::e4m3, .scale = ScaleType::bf16, .granularity = Granularity::channel()});
  large.panel.scales[5] = 512.0F;  // times 2^120
  EXPECT_EQ(refusal(pack_marlin_fp8(large, Role::w13)), "layout.scale");
}

// Dead experts have block scales near 0, for which a kernel may give NaN; its loader raises them.
TEST(LayoutRoundTrip, BlockScalesHaveALeast) {
  std::mt19937 rng(13);
  const QuantKey key{.element = Element::e4m3, .scale = ScaleType::f32, .granularity = Granularity::block(128, 128)};
  LayoutMatrix matrix = random_matrix(key, {128, 128}, Role::w13, false, rng);
  matrix.bias.clear();
  std::fill(matrix.panel.scales.begin(), matrix.panel.scales.begin() + 128, 1e-23F);
  const auto packed = pack_mapped<kTrtLlmFp8Block>(matrix, Role::w13);
  ASSERT_TRUE(packed.ok());
  EXPECT_EQ(packed->scale(0, 0), 1e-10F);
  EXPECT_EQ(packed->scale(128, 0), matrix.scale(128, 0));
  std::fill(matrix.panel.scales.begin(), matrix.panel.scales.begin() + 128, -1.0F);
  EXPECT_EQ(refusal(pack_mapped<kTrtLlmFp8Block>(matrix, Role::w13)), "layout.scale");
}

TEST(LayoutRefusals, BigEndianHostsOfXpu) {
  EXPECT_TRUE(accepts_host(kXpuInt4, std::endian::little).ok());
  EXPECT_EQ(refusal(accepts_host(kXpuInt4, std::endian::big)), "layout.byte_order");
  EXPECT_TRUE(accepts_host(kTritonWna16, std::endian::big).ok());
}

TEST(LayoutRefusals, GateAndUpOfOtherGroupIndices) {
  std::mt19937 rng(7);
  const CanonicalExperts experts =
      test::random_experts({.key = integer_key(Element::int4, ScaleType::f16, Granularity::group(32), true),
                            .experts = 1,
                            .hidden = 128,
                            .intermediate = 64,
                            .act_order = true},
                           rng);
  EXPECT_EQ(refusal(w13_matrix(experts.experts[0])), "layout.group_index");
}

}  // namespace
}  // namespace moracle
