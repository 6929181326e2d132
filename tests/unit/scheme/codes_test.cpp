#include "scheme/codes.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <limits>
#include <vector>

#include "scheme/activation_quant.h"
#include "scheme/canonical.h"

namespace moracle {
namespace {

struct Format {
  const char* name;
  int codes;
  float (*decode)(std::uint8_t);
  std::uint8_t (*encode)(float);
};

const Format kFormats[] = {{"e4m3", 256, decode_e4m3, encode_e4m3},
                           {"e5m2", 256, decode_e5m2, encode_e5m2},
                           {"e2m1", 16, decode_e2m1, encode_e2m1},
                           {"e2m3", 64, decode_e2m3, encode_e2m3},
                           {"e3m2", 64, decode_e3m2, encode_e3m2}};

TEST(Codes, EveryFiniteCodeSurvives) {
  for (const Format& format : kFormats)
    for (int code = 0; code < format.codes; ++code) {
      const float value = format.decode(static_cast<std::uint8_t>(code));
      if (!std::isfinite(value)) continue;
      EXPECT_EQ(format.encode(value), code) << format.name;
    }
}

// Against the definition: the nearest value, and of two the one with the even code.
TEST(Codes, RoundsToNearestEven) {
  for (const Format& format : kFormats) {
    const int half = format.codes / 2;
    for (int code = 0; code + 1 < half; ++code) {
      const float low = format.decode(static_cast<std::uint8_t>(code));
      const float high = format.decode(static_cast<std::uint8_t>(code + 1));
      if (!std::isfinite(high)) break;
      const float middle = (low + high) / 2.0F;  // exact: both have few bits
      const int even = code % 2 == 0 ? code : code + 1;
      EXPECT_EQ(format.encode(middle), even) << format.name << code;
      EXPECT_EQ(format.encode(std::nextafter(middle, 0.0F)), code) << format.name << code;
      EXPECT_EQ(format.encode(std::nextafter(middle, 1e9F)), code + 1) << format.name << code;
      EXPECT_EQ(format.encode(-middle), even + half) << format.name << code;
    }
  }
}

TEST(Codes, Saturates) {
  const float inf = std::numeric_limits<float>::infinity();
  for (const float big : {1e30F, inf}) {
    EXPECT_EQ(decode_e4m3(encode_e4m3(big)), 448.0F);
    EXPECT_EQ(decode_e4m3(encode_e4m3(-big)), -448.0F);
    EXPECT_EQ(decode_e5m2(encode_e5m2(big)), 57344.0F);
    EXPECT_EQ(decode_e2m1(encode_e2m1(big)), 6.0F);
    EXPECT_EQ(decode_e2m3(encode_e2m3(big)), 7.5F);
    EXPECT_EQ(decode_e3m2(encode_e3m2(big)), 28.0F);
  }
  EXPECT_EQ(decode_e4m3(encode_e4m3(460.0F)), 448.0F);
  EXPECT_TRUE(std::isnan(decode_e4m3(encode_e4m3(std::nanf("")))));
  EXPECT_TRUE(std::isnan(decode_e5m2(encode_e5m2(std::nanf("")))));
  EXPECT_TRUE(std::isnan(decode_e5m2(0x7D)));
  EXPECT_EQ(decode_e5m2(0x7C), inf);
  EXPECT_EQ(decode_e5m2(0xFC), -inf);
}

std::uint32_t bits(float value) {
  std::uint32_t result;
  std::memcpy(&result, &value, sizeof result);
  return result;
}

// All 65536 halves against the definition, and back.
TEST(Codes, HalfPrecision) {
  for (std::uint32_t code = 0; code < 0x10000; ++code) {
    const auto half = static_cast<std::uint16_t>(code);
    const bool special = (code & 0x7C00U) == 0x7C00U;
    const float value = decode_f16(half);
    if (special && (code & 0x3FFU) != 0) {
      EXPECT_TRUE(std::isnan(value)) << code;
      EXPECT_TRUE(std::isnan(decode_f16(encode_f16(value)))) << code;
      continue;
    }
    const int exponent = static_cast<int>(code >> 10 & 31U);
    const auto fraction = static_cast<float>(code & 0x3FFU);
    const float magnitude = special         ? std::numeric_limits<float>::infinity()
                            : exponent == 0 ? std::ldexp(fraction, -24)
                                            : std::ldexp(1024.0F + fraction, exponent - 25);
    EXPECT_EQ(bits(value), bits((code & 0x8000U) != 0 ? -magnitude : magnitude)) << code;
    EXPECT_EQ(encode_f16(value), half);
  }
  for (std::uint16_t code = 0; code < 0x7BFF; ++code) {
    const float middle = (decode_f16(code) + decode_f16(code + 1)) / 2.0F;  // exact
    EXPECT_EQ(encode_f16(middle), code + code % 2);
    EXPECT_EQ(encode_f16(-std::nextafter(middle, 0.0F)), code | 0x8000U);
    EXPECT_EQ(encode_f16(std::nextafter(middle, 1e9F)), code + 1);
  }
  EXPECT_EQ(encode_f16(65519.0F), 0x7BFF);
  EXPECT_EQ(encode_f16(65520.0F), 0x7C00);
  EXPECT_EQ(encode_f16(0x1p-25F), 0);  // tie to even
  EXPECT_EQ(encode_f16(std::nextafter(0x1p-25F, 1.0F)), 1);
  EXPECT_EQ(encode_f16(2049.0F), encode_f16(2048.0F));
  EXPECT_EQ(encode_f16(2051.0F), encode_f16(2052.0F));
}

TEST(Codes, Bfloat16RoundsToNearestEven) {
  for (std::uint32_t code = 0; code < 0x10000; ++code) {
    const float value = decode_bf16(static_cast<std::uint16_t>(code));
    if (std::isnan(value))
      EXPECT_TRUE(std::isnan(decode_bf16(encode_bf16(value))));
    else
      EXPECT_EQ(encode_bf16(value), code);
  }
  EXPECT_EQ(encode_bf16(1.0F + 0x1p-8F), 0x3F80);
  EXPECT_EQ(encode_bf16(1.0F + 0x1p-8F + 0x1p-20F), 0x3F81);
  EXPECT_EQ(encode_bf16(1.0F + 3 * 0x1p-8F), 0x3F82);
  EXPECT_TRUE(std::isnan(decode_bf16(encode_bf16(std::nanf("1")))));
}

TEST(Codes, PowersOfTwo) {
  EXPECT_TRUE(std::isnan(decode_e8m0(255)));
  EXPECT_EQ(decode_e8m0(0), 0x1p-127F);
  for (int code = 0; code < 255; ++code) {
    const auto byte = static_cast<std::uint8_t>(code);
    EXPECT_EQ(decode_e8m0(byte), std::ldexp(1.0F, code - 127));
    EXPECT_EQ(encode_e8m0(decode_e8m0(byte)), byte);
  }
  EXPECT_EQ(encode_e8m0(3.9F), 128);
  EXPECT_EQ(encode_e8m0(std::nanf("")), 255);
  EXPECT_EQ(encode_e8m0(std::numeric_limits<float>::infinity()), 254);
  EXPECT_EQ(encode_e8m0(0.0F), 0);
}

TEST(Codes, Integers) {
  for (int value = -8; value < 8; ++value) {
    EXPECT_EQ(decode_int4(encode_int4(value)), value);
    EXPECT_EQ(decode_uint4b8(static_cast<std::uint8_t>(value + 8)), value);
    // Two's complement to offset binary is one bit.
    EXPECT_EQ(decode_uint4b8(encode_int4(value) ^ 8U), value);
  }
  EXPECT_EQ(decode_uint8b128(0), -128);
}

TEST(ActivationQuant, EdgesHaveNoTraps) {
  const std::vector<float> zeros(32, 0.0F);
  EXPECT_EQ(int8_dynamic_scale(zeros), 1e-10F / 127.0F);
  EXPECT_EQ(fp8_dynamic_scale(zeros), 1.0F / (448.0F * 512.0F));
  const std::vector<float> odd{std::nanf(""), HUGE_VALF, -HUGE_VALF, 1.0F};
  std::vector<std::int8_t> q(4);
  quantize_int8(odd, 0.5F, q);
  EXPECT_EQ(q[1], 127);
  EXPECT_EQ(q[2], -127);
  EXPECT_EQ(q[3], 2);
  std::vector<std::uint8_t> codes(4);
  std::vector<std::uint8_t> scales(1);
  quantize_nvfp4(zeros, 1.0F, codes, scales);
  EXPECT_EQ(codes, std::vector<std::uint8_t>(4, 0));
  quantize_mxfp4(odd, Mxfp4Scale::even, codes, scales);
  quantize_nvfp4(odd, 1.0F, codes, scales);
}

TEST(QuantKey, Names) {
  const auto key = [](Element element, ScaleType scale, Granularity granularity) {
    return QuantKey{.element = element, .scale = scale, .granularity = granularity};
  };
  EXPECT_EQ(to_string(QuantKey{}), "bf16");
  QuantKey int4 = key(Element::int4, ScaleType::f16, Granularity::group(128));
  EXPECT_EQ(to_string(int4), "int4 g128 sym");
  int4.symmetric = false;
  EXPECT_EQ(to_string(int4), "int4 g128 asym");
  EXPECT_EQ(to_string(key(Element::int8, ScaleType::f32, Granularity::channel())), "int8 channel");
  EXPECT_EQ(to_string(key(Element::e4m3, ScaleType::f32, Granularity::block(128, 128))), "fp8 block 128x128");
  EXPECT_EQ(to_string(key(Element::e2m1, ScaleType::e8m0, Granularity::group(32))), "mxfp4");
  QuantKey nvfp4 = key(Element::e2m1, ScaleType::e4m3, Granularity::group(16));
  nvfp4.second_level = true;
  EXPECT_EQ(to_string(nvfp4), "nvfp4");
  QuantKey token = key(Element::int8, ScaleType::f32, Granularity::token());
  token.dynamic = true;
  const QuantKey channel = key(Element::int8, ScaleType::f32, Granularity::channel());
  EXPECT_EQ(to_string(Scheme{channel, token}), "W: int8 channel, A: int8 token dynamic");
  const QuantKey fixed = key(Element::e4m3, ScaleType::f32, Granularity::tensor());
  EXPECT_EQ(to_string(Scheme{fixed, fixed}), "W: fp8 tensor, A: fp8 tensor static");
  EXPECT_EQ(bits_of(Element::e2m3), 6);
}

TEST(Canonical, PanelsOfEveryKind) {
  MatrixSpec spec{.name = "m", .rows = 1, .cols = 4, .group_cols = 2, .groups = 2};
  spec.key = {.element = Element::int4, .scale = ScaleType::f32, .granularity = Granularity::group(2)};
  MatrixPanel panel{.rows = 1, .codes = {0, 15, 8, 9}, .scales = {2.0F, 3.0F}, .zeros = {}, .values = {}};
  std::vector<float> out(4);
  dequantize_panel(spec, panel, out);
  EXPECT_EQ(out, (std::vector<float>{-16.0F, 14.0F, 0.0F, 3.0F}));
  panel.zeros = {1, 9};
  dequantize_panel(spec, panel, out);
  EXPECT_EQ(out, (std::vector<float>{-2.0F, 28.0F, -3.0F, 0.0F}));
  spec.g_idx = {1, 0, 0, 1};
  dequantize_panel(spec, panel, out);
  EXPECT_EQ(out, (std::vector<float>{-27.0F, 28.0F, 14.0F, 0.0F}));
  spec.g_idx.clear();
  spec.key = {.element = Element::e2m1, .scale = ScaleType::e4m3, .granularity = Granularity::group(2)};
  spec.global_scale = 0.5F;
  panel.zeros.clear();
  panel.codes = {7, 15, 1, 8};
  dequantize_panel(spec, panel, out);
  EXPECT_EQ(out, (std::vector<float>{6.0F, -6.0F, 0.75F, -0.0F}));
}

}  // namespace
}  // namespace moracle
