// Number codes, activation quantizers and activations against the golden files.
#include <gtest/gtest.h>

#include <cmath>

#include "scheme/activation_codes.h"
#include "scheme/activation_quant.h"
#include "scheme/codes.h"
#include "scheme/glu.h"
#include "support/safetensors_reader.h"

namespace moracle {
namespace {

using test::GoldenFile;
using test::same_bits;

std::vector<std::uint8_t> unpack_nibbles(const std::vector<std::uint8_t>& packed) {
  std::vector<std::uint8_t> codes;
  for (const std::uint8_t byte : packed) {
    codes.push_back(byte & 15U);
    codes.push_back(static_cast<std::uint8_t>(byte >> 4));
  }
  return codes;
}

TEST(CodesGolden, DecodeTables) {
  const GoldenFile file("fp8_act_quant");
  const auto e4m3 = file.values<float>("e4m3fn_table_f32");
  const auto e8m0 = file.values<float>("e8m0_table_f32");
  ASSERT_EQ(e4m3.size(), 256U);
  for (unsigned code = 0; code < 256; ++code) {
    const float value = decode_e4m3(static_cast<std::uint8_t>(code));
    EXPECT_EQ(std::isnan(value) ? 12345.0F : value, e4m3[code]) << code;
    const float scale = decode_e8m0(static_cast<std::uint8_t>(code));
    EXPECT_EQ(std::isnan(scale) ? 12345.0F : scale, e8m0[code]) << code;
  }
  const auto e2m1 = GoldenFile("mxfp4_dequant").values<float>("e2m1_table");
  for (unsigned code = 0; code < 16; ++code)
    EXPECT_EQ(std::bit_cast<std::uint32_t>(decode_e2m1(static_cast<std::uint8_t>(code))),
              std::bit_cast<std::uint32_t>(e2m1[code]));
}

TEST(CodesGolden, Mxfp4Dequantization) {
  const GoldenFile file("mxfp4_dequant");
  for (const auto& [bytes, scales, wanted] :
       {std::tuple{"bytes", "scales", "f32"}, std::tuple{"gptoss.blocks", "gptoss.scales", "gptoss.f32"}}) {
    const auto codes = unpack_nibbles(file.values<std::uint8_t>(bytes));
    const auto scale = file.values<std::uint8_t>(scales);
    std::vector<float> found;
    for (std::size_t i = 0; i < codes.size(); ++i) found.push_back(decode_e2m1(codes[i]) * decode_e8m0(scale[i / 32]));
    EXPECT_TRUE(same_bits(found, file.values<float>(wanted)));
  }
}

TEST(CodesGolden, Int8Activations) {
  const GoldenFile file("int8_act_quant");
  const auto x = file.values<float>("x_f32");
  const auto scales = file.values<float>("scale");
  const auto wanted = file.values<std::int8_t>("q_half_even");
  std::vector<std::int8_t> q(256);
  for (std::size_t row = 0; row < scales.size(); ++row) {
    const std::span<const float> token(x.data() + row * 256, 256);
    const float scale = int8_dynamic_scale(token);
    EXPECT_EQ(scale, scales[row]) << row;
    quantize_int8(token, scale, q);
    for (std::size_t i = 0; i < 256; ++i) EXPECT_EQ(q[i], wanted[row * 256 + i]) << row << " " << i;
  }
}

struct Fp8Case {
  const char* name;
  std::size_t width;  // elements that share a scale
  bool dynamic;
  bool by_reciprocal;  // the file multiplies by 1 / scale: its codes are compared where that rounds alike
};

// The file's per-token and per-tensor codes were made with a reciprocal; the definition here divides. The two
// arguments of the encoder are one rounding apart, so codes may only differ where they straddle a tie.
TEST(CodesGolden, Fp8Activations) {
  const GoldenFile file("fp8_act_quant");
  const auto x = file.bf16("x_bf16");
  for (const Fp8Case& c : {Fp8Case{"token", 256, true, true}, Fp8Case{"tensor_dyn", 33 * 256, true, true},
                           Fp8Case{"tensor_static", 33 * 256, false, true}, Fp8Case{"group128", 128, true, false}}) {
    const auto scales = file.values<float>(std::string(c.name) + ".scale");
    const auto wanted = file.values<std::uint8_t>(std::string(c.name) + ".q");
    std::vector<std::uint8_t> q(c.width);
    std::size_t by_reciprocal = 0;
    for (std::size_t block = 0; block < scales.size(); ++block) {
      const std::span<const float> part(x.data() + block * c.width, c.width);
      const float scale = c.dynamic ? fp8_dynamic_scale(part) : scales[block];
      EXPECT_EQ(scale, scales[block]) << c.name << block;
      quantize_fp8(part, scale, q);
      for (std::size_t i = 0; i < c.width; ++i) {
        const std::uint8_t code = wanted[block * c.width + i];
        if (q[i] == code) continue;
        ++by_reciprocal;
        EXPECT_TRUE(c.by_reciprocal) << c.name << " block " << block << " element " << i;
        EXPECT_EQ(encode_e4m3(part[i] * (1.0F / scale)), code) << c.name << " block " << block << " element " << i;
      }
    }
    EXPECT_LT(by_reciprocal, wanted.size() / 100) << c.name;
  }
}

TEST(CodesGolden, Mxfp4Activations) {
  const GoldenFile file("mxfp4_act_quant");
  const auto x = file.bf16("x_bf16");
  for (const auto& [name, rule] : {std::pair{"even", Mxfp4Scale::even}, std::pair{"floor", Mxfp4Scale::floor}}) {
    std::vector<std::uint8_t> codes(x.size());
    std::vector<std::uint8_t> scales(x.size() / 32);
    quantize_mxfp4(x, rule, codes, scales);
    EXPECT_EQ(scales, file.values<std::uint8_t>(std::string(name) + ".scale")) << name;
    const auto wanted = unpack_nibbles(file.values<std::uint8_t>(std::string(name) + ".packed"));
    ASSERT_EQ(codes.size(), wanted.size());
    for (std::size_t i = 0; i < codes.size(); ++i)
      EXPECT_EQ(codes[i], wanted[i]) << name << " row " << i / 256 << " column " << i % 256 << " x " << x[i];
    std::vector<float> values;
    for (std::size_t i = 0; i < codes.size(); ++i)
      values.push_back(decode_e2m1(codes[i]) * decode_e8m0(scales[i / 32]));
    EXPECT_TRUE(same_bits(values, file.values<float>(std::string(name) + ".dequant_f32"))) << name;
  }
}

TEST(CodesGolden, Nvfp4Activations) {
  const GoldenFile file("nvfp4");
  const auto x = file.bf16("x_bf16");
  const float global = file.values<float>("ct.input_global_scale")[0];
  std::vector<std::uint8_t> codes(x.size());
  std::vector<std::uint8_t> scales(x.size() / 16);
  quantize_nvfp4(x, global, codes, scales);
  EXPECT_EQ(scales, file.values<std::uint8_t>("x_block_scale"));
  EXPECT_EQ(codes, unpack_nibbles(file.values<std::uint8_t>("x_packed")));
  std::vector<float> values;
  for (std::size_t i = 0; i < codes.size(); ++i)
    values.push_back(decode_e2m1(codes[i]) * (decode_e4m3(scales[i / 16]) / global));
  EXPECT_TRUE(same_bits(values, file.values<float>("x_dequant_f32")));
}

TEST(CodesGolden, Nvfp4Weights) {
  const GoldenFile file("nvfp4");
  const auto codes = unpack_nibbles(file.values<std::uint8_t>("modelopt.weight"));
  const auto scales = file.values<std::uint8_t>("modelopt.weight_scale");
  const float global = file.values<float>("modelopt.weight_scale_2")[0];
  std::vector<float> values;
  for (std::size_t i = 0; i < codes.size(); ++i)
    values.push_back(decode_e2m1(codes[i]) * (decode_e4m3(scales[i / 16]) * global));
  EXPECT_TRUE(same_bits(values, file.values<float>("w_dequant_f32")));
}

struct ActivationCase {
  const char* name;
  ActivationSpec spec;
  bool interleaved = false;
  bool gated = true;
};

// exp, erf and tanh of two libraries differ by an ulp or two and four roundings follow: 8 ulp of the result, or of the
// product of gate and up where 1 + erf(g) and its like cancel.
TEST(CodesGolden, Activations) {
  const GoldenFile file("activations");
  const auto in = file.values<float>("in");
  const ActivationSpec silu_clamp{.fn = ActivationFn::silu, .limit = 7.0F};
  const ActivationSpec oai{.fn = ActivationFn::swigluoai, .alpha = 1.702F, .beta = 1.0F, .limit = 7.0F};
  const ActivationCase cases[] = {
      {"silu_and_mul", {.fn = ActivationFn::silu}},
      {"gelu_and_mul", {.fn = ActivationFn::gelu}},
      {"gelu_tanh_and_mul", {.fn = ActivationFn::gelu_tanh}},
      {"swigluoai_interleaved", oai, true},
      {"swigluoai_uninterleave_a1.702_b1_l7", oai},
      {"silu_with_clamp_l7", silu_clamp},
      {"swiglustep_l7", {.fn = ActivationFn::swiglustep, .limit = 7.0F}},
      {"relu2_no_mul", {.fn = ActivationFn::relu2_no_mul}, false, false},
      {"silu_no_mul", {.fn = ActivationFn::silu_no_mul}, false, false},
  };
  for (const ActivationCase& c : cases) {
    const auto wanted = file.values<float>(c.name);
    const std::size_t columns = c.gated ? 32 : 64;
    ASSERT_EQ(wanted.size(), 16 * columns) << c.name;
    for (std::size_t i = 0; i < wanted.size(); ++i) {
      const float* row = in.data() + i / columns * 64;
      const std::size_t j = i % columns;
      const float gate = c.interleaved ? row[2 * j] : row[j];
      const float up = !c.gated ? 0.0F : c.interleaved ? row[2 * j + 1] : row[j + 32];
      const float terms = std::fabs(gate) * (c.gated ? 1.0F + std::fabs(up) : 1.0F);
      const float tolerance = 8.0F * 0x1p-23F * std::max(terms, std::fabs(wanted[i]));
      EXPECT_NEAR(apply_activation(c.spec, gate, up), wanted[i], tolerance) << c.name << " " << i;
    }
  }
}

// MXFP8 and MXFP6 from the definitions, made by brute force; the file's scales, codes and values, bit by bit.
TEST(CodesGolden, MxActivations) {
  const GoldenFile file("mx_act_quant");
  const auto x = file.values<float>("x_f32");
  for (const auto& [name, element] :
       {std::pair{"e4m3", Element::e4m3}, std::pair{"e2m3", Element::e2m3}, std::pair{"e3m2", Element::e3m2}}) {
    SCOPED_TRACE(name);
    const std::string prefix = std::string(name) + ".";
    std::vector<std::uint8_t> codes(x.size());
    std::vector<std::uint8_t> scales(x.size() / 32);
    for (std::size_t row = 0; row < x.size(); row += 64)
      quantize_mx(element, std::span(x).subspan(row, 64), std::span(codes).subspan(row, 64),
                  std::span(scales).subspan(row / 32, 2));
    EXPECT_EQ(scales, file.values<std::uint8_t>(prefix + "scale_u8"));
    EXPECT_EQ(codes, file.values<std::uint8_t>(prefix + "codes_u8"));
    const QuantKey key{
        .element = element, .scale = ScaleType::e8m0, .granularity = Granularity::group(32), .dynamic = true};
    ASSERT_TRUE(can_quantize_activation(key));
    std::vector<float> values = x;
    for (std::size_t row = 0; row < x.size(); row += 64)
      quantize_dequantize_row(key, std::nullopt, std::span(values).subspan(row, 64));
    EXPECT_TRUE(same_bits(values, file.values<float>(prefix + "dequant_f32")));
  }
}

}  // namespace
}  // namespace moracle
