// The Marlin layouts against recorded tensors, bit for bit, and their inverses.
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <tuple>

#include "kernels/layouts/marlin.h"
#include "layouts/golden_matrices.h"

namespace moracle {
namespace {

using namespace layout;
using test::Bytes;
using test::bytes_of;
using test::code_at;
using test::GoldenFile;

constexpr std::int64_t kOut = 128;
constexpr std::int64_t kIn = 256;

template <class Pack>
void expect_same(const Pack& pack, const LayoutMatrix& matrix) {
  EXPECT_TRUE(same(unpack(pack), matrix));
}

// GPTQ words: [in / per_word][out], codes of a word along the inputs; scales [groups][out].
LayoutMatrix gptq_matrix(const GoldenFile& file, const std::string& name, int bits, std::int64_t group) {
  const Granularity granularity =
      group < 0 ? Granularity::channel() : Granularity::group(static_cast<std::int32_t>(group));
  LayoutMatrix matrix = blank_matrix(test::head_of(
      {.element = bits == 4 ? Element::int4 : Element::int8, .scale = ScaleType::f16, .granularity = granularity}, kOut,
      kIn));
  const auto words = bytes_of(file, name + ".qweight");
  const auto scales = test::scales_of(bytes_of(file, name + ".scales"), ScaleType::f16);
  const std::int64_t per_word = 32 / bits;
  const std::int64_t groups = matrix.head.groups;
  for (std::int64_t n = 0; n < kOut; ++n) {
    for (std::int64_t k = 0; k < kIn; ++k)
      matrix.panel.codes[static_cast<std::size_t>(n * kIn + k)] =
          code_at(words, (k / per_word * kOut + n) * per_word + k % per_word, bits);
    for (std::int64_t g = 0; g < groups; ++g)
      matrix.panel.scales[static_cast<std::size_t>(n * groups + g)] = scales[static_cast<std::size_t>(g * kOut + n)];
  }
  return matrix;
}

void set_zeros(LayoutMatrix& matrix, const std::vector<int>& zeros) {  // [groups][out]
  matrix.head.key.symmetric = false;
  matrix.panel.zeros.resize(matrix.panel.scales.size());
  for (std::int64_t n = 0; n < matrix.head.rows; ++n)
    for (std::int64_t g = 0; g < matrix.head.groups; ++g)
      matrix.panel.zeros[static_cast<std::size_t>(n * matrix.head.groups + g)] =
          static_cast<std::uint8_t>(zeros[static_cast<std::size_t>(g * matrix.head.rows + n)]);
}

Bytes stored(const MarlinWna16Pack& pack) {
  return bytes_of(std::get<StoredScales>(pack.scales).bytes());
}

TEST(MarlinGolden, GptqWeightsAndScalesOfEveryCase) {
  const GoldenFile file("marlin_gptq");
  for (const int bits : {4, 8})
    for (const int group : {-1, 32, 128})
      for (const auto& [act, role] :
           {std::pair{false, Role::w2}, {true, Role::w2}, {false, Role::linear}, {true, Role::linear}}) {
        if (act && group < 0) continue;
        const std::string name = "w" + std::to_string(bits) + "_g" + std::to_string(group) + "_act" + (act ? "1" : "0");
        SCOPED_TRACE(name);
        LayoutMatrix matrix = gptq_matrix(file, name, bits, group);
        if (act) matrix.g_idx = file.values<std::int32_t>(name + ".g_idx");
        const auto pack = pack_marlin_wna16(matrix, role);
        ASSERT_TRUE(pack.ok()) << pack.error().message();
        EXPECT_EQ(bytes_of(pack->weight.bytes()), bytes_of(file, name + ".marlin_qweight"));
        EXPECT_EQ(stored(*pack), bytes_of(file, name + ".marlin_scales"));
        if (act) {
          const auto& order = std::get<ActOrder>(pack->order);
          EXPECT_EQ(order.order, file.values<std::int32_t>(name + ".g_idx_sort_indices"));
          EXPECT_EQ(order.groups, file.values<std::int32_t>(name + ".g_idx_sorted"));
        } else {
          EXPECT_TRUE(std::holds_alternative<InOrder>(pack->order));
        }
        expect_same(*pack, matrix);
      }
}

TEST(MarlinGolden, TilesOfEightBitActivations) {
  const GoldenFile file("marlin_gptq");
  for (const int bits : {4, 8}) {
    const std::string name = "w" + std::to_string(bits) + "_g128_act0";
    const LayoutMatrix matrix = gptq_matrix(file, name, bits, 128);
    const auto pack = pack_marlin_wna16(matrix, Role::w2, {.activations = MarlinActivations::int8});
    ASSERT_TRUE(pack.ok());
    EXPECT_EQ(bytes_of(pack->weight.bytes()), bytes_of(file, name + ".marlin_qweight_a8bit"));
    EXPECT_EQ(unpack(*pack).panel.codes, matrix.panel.codes);
    // Scales alone, before they become i16.
    auto scales = StoredScales::zeroed({.part_rows = kOut,
                                        .padded_part_rows = kOut,
                                        .permuted_rows = kOut,
                                        .stored = {kOut, 2},
                                        .map = marlin_scale_map(MarlinScaleOrder::single)},
                                       ScaleType::f16);
    for (std::int64_t n = 0; n < kOut; ++n)
      for (std::int64_t g = 0; g < 2; ++g) ASSERT_TRUE(scales->put(n, g, matrix.scale(n, g)));
    EXPECT_EQ(bytes_of(scales->bytes()), bytes_of(file, name + ".marlin_scales_a8bit"));
  }
}

// The recorded words are the recoded ones before the tile; the pack holds them inside.
TEST(MarlinGolden, Fp8ActivationsRecodeInt4) {
  const GoldenFile file("marlin_gptq");
  const std::string name = "w4_g128_act0";
  const LayoutMatrix matrix = gptq_matrix(file, name, 4, 128);
  const auto pack = pack_marlin_wna16(matrix, Role::w2, {.activations = MarlinActivations::fp8});
  ASSERT_TRUE(pack.ok());
  const auto words = bytes_of(file, name + ".qweight_fp8pre");
  for (std::int64_t n = 0; n < kOut; ++n)
    for (std::int64_t k = 0; k < kIn; ++k)
      ASSERT_EQ(pack->weight.at(n, k), code_at(words, (k / 8 * kOut + n) * 8 + k % 8, 4)) << n << " " << k;
  const auto scales = test::scales_of(bytes_of(file, name + ".scales_fp8pre"), ScaleType::f16);
  for (std::int64_t n = 0; n < kOut; ++n)
    for (std::int64_t g = 0; g < 2; ++g)
      ASSERT_EQ(std::get<StoredScales>(pack->scales).at(n, g), scales[static_cast<std::size_t>(g * kOut + n)]);
  expect_same(*pack, matrix);
}

TEST(MarlinGolden, Fp8RecodeHasAnInverseForEveryZeroPoint) {
  for (int zero = 0; zero < 16; ++zero)
    for (int code = 0; code < 16; ++code) {
      const auto z = static_cast<std::uint8_t>(zero);
      const auto u = static_cast<std::uint8_t>(code);
      EXPECT_EQ(marlin_fp8_decode(marlin_fp8_recode(u, z), z), u);
    }
}

TEST(MarlinGolden, GptqZeroPoints) {
  const GoldenFile file("gptq_asym");
  for (const int bits : {4, 8}) {
    const std::string name = "w" + std::to_string(bits) + "_g32";
    SCOPED_TRACE(name);
    LayoutMatrix matrix = gptq_matrix(file, name, bits, 32);
    set_zeros(matrix, file.values<int>(name + ".zp"));
    const auto pack = pack_marlin_wna16(matrix, Role::w2);
    ASSERT_TRUE(pack.ok());
    EXPECT_EQ(bytes_of(pack->weight.bytes()), bytes_of(file, name + ".marlin_qweight"));
    EXPECT_EQ(stored(*pack), bytes_of(file, name + ".marlin_scales"));
    EXPECT_EQ(bytes_of(std::get<StoredCodes>(pack->zeros).bytes()), bytes_of(file, name + ".marlin_qzeros"));
    expect_same(*pack, matrix);
  }
}

// AWQ words run along the outputs, nibble i of word j holding column 8 j + {0, 2, 4, 6, 1, 3, 5, 7}[i].
TEST(MarlinGolden, AwqWithZeroPoints) {
  constexpr std::array<std::int64_t, 8> kOrder{0, 2, 4, 6, 1, 3, 5, 7};
  const GoldenFile file("marlin_awq");
  for (const int group : {32, 128}) {
    const std::string name = "g" + std::to_string(group);
    SCOPED_TRACE(name);
    LayoutMatrix matrix = blank_matrix(test::head_of(
        {.element = Element::int4, .scale = ScaleType::f16, .granularity = Granularity::group(group)}, kOut, kIn));
    const auto words = bytes_of(file, name + ".qweight");
    const auto zero_words = bytes_of(file, name + ".qzeros");
    const auto scales = test::scales_of(bytes_of(file, name + ".scales"), ScaleType::f16);
    std::vector<int> zeros(scales.size());
    for (std::int64_t word = 0; word < kOut / 8; ++word)
      for (std::int64_t i = 0; i < 8; ++i) {
        const std::int64_t n = 8 * word + kOrder[static_cast<std::size_t>(i)];
        for (std::int64_t k = 0; k < kIn; ++k)
          matrix.panel.codes[static_cast<std::size_t>(n * kIn + k)] = code_at(words, k * kOut + 8 * word + i, 4);
        for (std::int64_t g = 0; g < matrix.head.groups; ++g) {
          const auto at = static_cast<std::size_t>(g * kOut + n);
          zeros[at] = code_at(zero_words, g * kOut + 8 * word + i, 4);
          matrix.panel.scales[static_cast<std::size_t>(n * matrix.head.groups + g)] = scales[at];
        }
      }
    set_zeros(matrix, zeros);
    const auto pack = pack_marlin_wna16(matrix, Role::w2);
    ASSERT_TRUE(pack.ok());
    EXPECT_EQ(bytes_of(pack->weight.bytes()), bytes_of(file, name + ".marlin_qweight"));
    EXPECT_EQ(stored(*pack), bytes_of(file, name + ".marlin_scales"));
    EXPECT_EQ(bytes_of(std::get<StoredCodes>(pack->zeros).bytes()), bytes_of(file, name + ".marlin_qzeros"));
    expect_same(*pack, matrix);
  }
}

std::vector<float> permuted(const std::vector<float>& in, std::int64_t rows, ElementMap map) {  // [groups][rows]
  std::vector<float> out(in.size());
  const auto groups = static_cast<std::int64_t>(in.size()) / rows;
  for (std::int64_t g = 0; g < groups; ++g)
    for (std::int64_t n = 0; n < rows; ++n)
      out[static_cast<std::size_t>(map({rows, groups}, n, g))] = in[static_cast<std::size_t>(g * rows + n)];
  return out;
}

TEST(MarlinGolden, ScaleAndBiasPermutations) {
  const GoldenFile file("marlin_perms");
  for (const int group : {-1, 32, 128}) {
    const std::string name = "g" + std::to_string(group);
    SCOPED_TRACE(name);
    const Granularity granularity = group < 0 ? Granularity::channel() : Granularity::group(group);
    const MatrixHead head = test::head_of({.element = Element::int4, .granularity = granularity}, kOut, kIn);
    const auto in = file.values<float>(name + ".in");
    const auto map = [&](MarlinActivations activations) {
      return marlin_scale_map(marlin_scale_order(head, kIn, activations));
    };
    EXPECT_EQ(permuted(in, kOut, map(MarlinActivations::bits16)), file.values<float>(name + ".out"));
    EXPECT_EQ(permuted(in, kOut, map(MarlinActivations::int8)), file.values<float>(name + ".out_a8bit"));
    EXPECT_EQ(permuted(in, kOut, map(MarlinActivations::fp8)), file.values<float>(name + ".out_a8bit"));
  }
  EXPECT_EQ(permuted(file.values<float>("bias.in"), 256, marlin_scale_map(MarlinScaleOrder::single)),
            file.values<float>("bias.out"));
  // vLLM asks with the intermediate size, 128 here, and gets one group although there are two.
  const MatrixHead head = test::head_of({.element = Element::int4, .granularity = Granularity::group(128)}, kOut, kIn);
  const std::string trap = "trap_w13_sizek_is_intermediate";
  EXPECT_EQ(permuted(file.values<float>(trap + ".in"), kOut,
                     marlin_scale_map(marlin_scale_order(head, 128, MarlinActivations::bits16))),
            file.values<float>(trap + ".out"));
}

TEST(MarlinGolden, BiasesOfAPackArePermuted) {
  const GoldenFile file("marlin_perms");
  LayoutMatrix matrix = blank_matrix(test::head_of(
      {.element = Element::int4, .scale = ScaleType::f16, .granularity = Granularity::group(32)}, 256, 128));
  matrix.bias = file.values<float>("bias.in");
  const auto pack = pack_marlin_wna16(matrix, Role::w2);
  ASSERT_TRUE(pack.ok());
  EXPECT_EQ(bytes_of(std::get<StoredScales>(pack->bias).bytes()), bytes_of(file, "bias.out"));
  expect_same(*pack, matrix);
}

TEST(MarlinGolden, ZeroPointPermutations) {
  const GoldenFile file("marlin_perms");
  for (const int bits : {4, 8}) {
    const std::string name = "zp" + std::to_string(bits);
    const auto in = file.values<std::int32_t>(name + ".in");
    auto zeros = StoredCodes::zeroed({.part_rows = kOut,
                                      .padded_part_rows = kOut,
                                      .permuted_rows = kOut,
                                      .stored = {kOut, 4},
                                      .map = marlin_zero_map(bits, MarlinActivations::bits16)},
                                     bits);
    for (std::int64_t g = 0; g < 4; ++g)
      for (std::int64_t n = 0; n < kOut; ++n)
        zeros->put(n, g, static_cast<std::uint8_t>(in[static_cast<std::size_t>(g * kOut + n)]));
    EXPECT_EQ(bytes_of(zeros->bytes()), bytes_of(file, name + ".out"));
  }
}

// The published tables: slot s of a tile's stream holds element perm[s] of blocks [inputs][16 outputs].
TEST(MarlinGolden, WeightPermutationTables) {
  const GoldenFile file("marlin_perms");
  for (const int bits : {4, 8})
    for (const bool wide : {false, true}) {
      const auto perm = file.values<std::int64_t>("weight_perm_w" + std::to_string(bits) + "_a8" + (wide ? "1" : "0"));
      const std::int64_t inputs = wide ? 32 : 16;
      const ElementMap map = marlin_weight_map(bits, wide ? MarlinActivations::int8 : MarlinActivations::bits16);
      ASSERT_EQ(perm.size(), 1024U);
      for (std::size_t slot = 0; slot < perm.size(); ++slot) {
        const std::int64_t in_block = perm[slot] % (inputs * 16);
        const std::int64_t n = perm[slot] / (inputs * 16) * 16 + in_block % 16;
        EXPECT_EQ(map({1024 / inputs, inputs}, n, in_block / 16), static_cast<std::int64_t>(slot));
      }
    }
}

TEST(MarlinGolden, IntegerScalesOfInt8Activations) {
  const GoldenFile file("marlin_perms");
  LayoutMatrix matrix = blank_matrix(test::head_of(
      {.element = Element::int4, .scale = ScaleType::bf16, .granularity = Granularity::group(32)}, kOut, 128));
  const auto in = file.bf16("int8act.in");
  for (std::int64_t n = 0; n < kOut; ++n)
    for (std::int64_t g = 0; g < 4; ++g)
      matrix.panel.scales[static_cast<std::size_t>(n * 4 + g)] = in[static_cast<std::size_t>(g * kOut + n)];
  const auto pack = pack_marlin_wna16(matrix, Role::w2, {.activations = MarlinActivations::int8});
  ASSERT_TRUE(pack.ok());
  const auto& scales = std::get<MarlinInt8Scales>(pack->scales);
  const auto numbers = file.values<std::uint16_t>("int8act.out_i16bits");
  for (std::int64_t n = 0; n < kOut; ++n)
    for (std::int64_t g = 0; g < 4; ++g)
      ASSERT_EQ(scales.numbers.bits_at(n, g), numbers[static_cast<std::size_t>(g * kOut + n)]) << n << " " << g;
  EXPECT_EQ(scales.global, file.values<float>("int8act.global")[0]);
  // A number is half a step off at most, and the share was rounded to 8 significant bits.
  for (std::int64_t n = 0; n < kOut; ++n)
    for (std::int64_t g = 0; g < 4; ++g)
      EXPECT_NEAR(pack->scale(n, g), matrix.scale(n, g), 0.5F * scales.global + matrix.scale(n, g) / 256.0F);
}

TEST(MarlinGolden, Fp8WithChannelAndBlockScales) {
  const GoldenFile file("marlin_fp4_fp8");
  const auto matrix_of = [&](Granularity granularity, const std::string& name) {
    LayoutMatrix matrix = blank_matrix(
        test::head_of({.element = Element::e4m3, .scale = ScaleType::bf16, .granularity = granularity}, kOut, kIn));
    matrix.panel.codes = bytes_of(file, "fp8.weight_u8");
    const auto scales = file.bf16(name);
    for (std::int64_t n = 0; n < kOut; ++n)
      for (std::int64_t g = 0; g < matrix.head.groups; ++g)
        matrix.panel.scales[static_cast<std::size_t>(n * matrix.head.groups + g)] =
            scales[static_cast<std::size_t>(g * kOut + n)];
    return matrix;
  };
  for (const auto& [granularity, in, out] :
       {std::tuple{Granularity::channel(), "fp8.chan_scale", "fp8.chan_marlin_scale"},
        std::tuple{Granularity::block(128, 128), "fp8.block_scale_kxn", "fp8.block_marlin_scale"}}) {
    const LayoutMatrix matrix = matrix_of(granularity, in);
    const auto pack = pack_marlin_fp8(matrix, Role::w2);
    ASSERT_TRUE(pack.ok());
    EXPECT_EQ(bytes_of(pack->weight.bytes()), bytes_of(file, "fp8.marlin_qweight"));
    EXPECT_EQ(bytes_of(pack->scales.bytes()), bytes_of(file, out));
    expect_same(*pack, matrix);
  }
}

TEST(MarlinGolden, Mxfp4WithBothActivations) {
  const GoldenFile file("marlin_fp4_fp8");
  const LayoutMatrix matrix = test::row_matrix(
      test::head_of({.element = Element::e2m1, .scale = ScaleType::e8m0, .granularity = Granularity::group(32)}, kOut,
                    kIn),
      bytes_of(file, "mxfp4.weight"), bytes_of(file, "mxfp4.weight_scale"));
  for (const auto& [activations, name] : {std::pair{MarlinActivations::bits16, std::string("mxfp4")},
                                          std::pair{MarlinActivations::fp8, std::string("mxfp4.fp8act")}}) {
    // 128 outputs: the role of w2 would pad them to 256.
    const auto pack = pack_marlin_mx(matrix, Role::w13, {.activations = activations});
    ASSERT_TRUE(pack.ok()) << pack.error().message();
    EXPECT_EQ(bytes_of(pack->weight.bytes()), bytes_of(file, name + ".marlin_qweight"));
    EXPECT_EQ(bytes_of(pack->scales.bytes()), bytes_of(file, name + ".marlin_scales_u8"));
    expect_same(*pack, matrix);
  }
}

LayoutMatrix nvfp4_matrix(const GoldenFile& file, const std::string& scales) {
  LayoutMatrix matrix = test::row_matrix(test::head_of({.element = Element::e2m1,
                                                        .scale = ScaleType::e4m3,
                                                        .granularity = Granularity::group(16),
                                                        .second_level = true},
                                                       kOut, kIn),
                                         bytes_of(file, "nvfp4.qweight_in"), bytes_of(file, scales));
  matrix.head.global_scales = file.values<float>("nvfp4.weight_scale_2");
  return matrix;
}

float largest_scale(const LayoutMatrix& matrix) {
  return *std::max_element(matrix.panel.scales.begin(), matrix.panel.scales.end());
}

TEST(MarlinGolden, Nvfp4ForBothModelTypes) {
  const GoldenFile file("marlin_fp4_fp8");
  const LayoutMatrix matrix = nvfp4_matrix(file, "nvfp4.weight_scale");
  for (const auto& [dtype, name] :
       {std::pair{ScaleType::bf16, std::string("nvfp4.bf16")}, std::pair{ScaleType::f16, std::string("nvfp4.f16")}}) {
    SCOPED_TRACE(name);
    const float factor = marlin_nvfp4_factor(largest_scale(matrix), dtype);
    EXPECT_EQ(factor, file.values<float>(name + ".scale_factor")[0]);
    const auto pack = pack_marlin_nvfp4(matrix, Role::w2, factor, {.dtype = dtype});
    ASSERT_TRUE(pack.ok());
    EXPECT_EQ(bytes_of(pack->weight.bytes()), bytes_of(file, "nvfp4.marlin_qweight"));
    EXPECT_EQ(bytes_of(pack->scales.bytes()), bytes_of(file, name + ".marlin_scales_u8"));
    EXPECT_EQ(pack->globals, file.values<float>(name + ".global_scale"));
    expect_same(*pack, matrix);
  }
}

TEST(MarlinGolden, Nvfp4FactorLiftsSmallScales) {
  const GoldenFile file("marlin_fp4_fp8");
  const LayoutMatrix matrix = nvfp4_matrix(file, "nvfp4_small.weight_scale");
  const float factor = marlin_nvfp4_factor(largest_scale(matrix), ScaleType::bf16);
  EXPECT_EQ(factor, file.values<float>("nvfp4_small.scale_factor")[0]);
  const auto pack = pack_marlin_nvfp4(matrix, Role::w2, factor);
  ASSERT_TRUE(pack.ok());
  EXPECT_EQ(bytes_of(pack->scales.bytes()), bytes_of(file, "nvfp4_small.marlin_scales_u8"));
}

}  // namespace
}  // namespace moracle
