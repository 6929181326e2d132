// The vector helpers of each instruction set against the scalar quantizers.
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <limits>
#include <numeric>
#include <random>
#include <vector>

#include "kernels/cpu/ops/activation_kernels.h"
#include "kernels/vector/vector_ops.h"
#include "scheme/activation_quant.h"
#include "scheme/codes.h"
#include "support/cpu_targets.h"

namespace moracle {
namespace {

class ActivationKernelsOf : public ::testing::TestWithParam<test::CpuTarget> {
 protected:
  void SetUp() override {
    if (!GetParam().runs_here()) GTEST_SKIP() << GetParam().facts.name << ": this CPU lacks its instruction set";
  }
  const cpu::ActivationKernels& ops() const { return *GetParam().target.activations; }
};

struct Format {
  const char* name;
  int mantissa, min_exponent;
  float most;
  std::uint8_t (*encode)(float);
  float (*decode)(std::uint8_t);
};
constexpr Format kFormats[] = {{"e2m1", 1, 0, 6.0F, encode_e2m1, decode_e2m1},
                               {"e2m3", 3, 0, 7.5F, encode_e2m3, decode_e2m3},
                               {"e3m2", 2, -2, 28.0F, encode_e3m2, decode_e3m2},
                               {"e4m3", 3, -6, 448.0F, encode_e4m3, decode_e4m3}};

// Every number of the format, what lies half way between two of them, and their neighbours.
std::vector<float> hard_values(const Format& format) {
  std::vector<float> values{0.0F, -0.0F, 1e-30F, 3e38F, -3e38F};
  const float step = std::ldexp(1.0F, format.min_exponent - format.mantissa);
  for (float value = step / 2; value <= 2 * format.most; value += step / 2) {
    for (const float near : {value, std::nextafter(value, 0.0F), std::nextafter(value, 1e30F)}) {
      values.push_back(near);
      values.push_back(-near);
    }
  }
  return values;
}

TEST_P(ActivationKernelsOf, RoundsToSmallFloatsAsTheCodesDo) {
  for (const Format& format : kFormats) {
    for (const float factor : {1.0F, 0.37F}) {
      for (const bool divide : {true, false}) {
        const std::vector<float> values = hard_values(format);
        std::vector<float> rounded = values;
        ops().round_numbers({.values = rounded.data(),
                             .count = static_cast<std::int64_t>(rounded.size()),
                             .factor = factor,
                             .divide = divide,
                             .mantissa = format.mantissa,
                             .min_exponent = format.min_exponent,
                             .most = format.most});
        for (std::size_t i = 0; i < values.size(); ++i) {
          const float scaled = divide ? values[i] / factor : values[i] * factor;
          ASSERT_EQ(rounded[i], format.decode(format.encode(scaled))) << format.name << " of " << scaled;
        }
      }
    }
  }
}

TEST_P(ActivationKernelsOf, LargestMagnitude) {
  std::mt19937 rng(1);
  std::normal_distribution<float> normal;
  for (const std::int64_t count : {1, 7, 8, 15, 16, 17, 128, 131}) {
    std::vector<float> values(static_cast<std::size_t>(count));
    for (float& value : values) value = normal(rng);
    float most = 0.0F;
    for (const float value : values) most = std::max(most, std::fabs(value));
    EXPECT_EQ(ops().absolute_max(values.data(), count), most) << count;
    for (const float bad : {std::numeric_limits<float>::quiet_NaN(), std::numeric_limits<float>::infinity()}) {
      std::vector<float> with = values;
      with[static_cast<std::size_t>(count / 2)] = bad;
      EXPECT_TRUE(std::isnan(ops().absolute_max(with.data(), count))) << count;
    }
  }
}

// A shared expert computes silu(gate) * up in one loop, a routed one in another.
TEST_P(ActivationKernelsOf, SiluOfRoutedAndSharedExpertsIsOneNumber) {
  const VectorOps& shared = GetParam().target.vector_ops();
  constexpr std::size_t kRows = 200;
  std::mt19937 rng(9);
  std::normal_distribution<float> normal;
  std::vector<float> gate(kRows * cpu::kPanelRows);
  std::vector<float> up(gate.size());
  for (std::size_t i = 0; i < gate.size(); ++i) {
    gate[i] = normal(rng) * std::ldexp(1.0F, static_cast<int>(i % 16) - 8);  // to beyond what exp() holds
    up[i] = normal(rng);
  }
  gate[0] = 0.0F;
  gate[1] = -0.0F;
  gate[2] = 200.0F;
  gate[3] = -200.0F;
  std::vector<float> routed(gate.size());
  ops().activate({.spec = {.fn = ActivationFn::silu},
                  .gate = gate.data(),
                  .up = up.data(),
                  .gate_bias = nullptr,
                  .up_bias = nullptr,
                  .out = routed.data(),
                  .rows = kRows,
                  .out_stride = cpu::kPanelRows});
  std::vector<float> own(gate.size());
  shared.silu_mul(gate.data(), up.data(), own.data(), static_cast<std::int64_t>(gate.size()));
  EXPECT_EQ(std::memcmp(routed.data(), own.data(), routed.size() * sizeof(float)), 0);
  for (std::size_t i = 0; i < gate.size(); ++i) {
    const double wanted =
        static_cast<double>(gate[i]) / (1.0 + std::exp(-static_cast<double>(gate[i]))) * static_cast<double>(up[i]);
    // Zero where e^-gate is more than f32 holds.
    const double least = std::fabs(static_cast<double>(gate[i]) * static_cast<double>(up[i])) /
                         static_cast<double>(std::numeric_limits<float>::max());
    ASSERT_NEAR(own[i], wanted, 3e-7 * std::fabs(wanted) + least) << gate[i];
  }
}

cpu::EncodeArgs to_bytes(const std::vector<float>& values, float scale, bool nibbles, std::int8_t* out,
                         std::int32_t& sum) {
  return {.x = values.data(),
          .groups = 1,
          .group_columns = 0,
          .last_columns = static_cast<std::int64_t>(values.size()),
          .scale = scale,
          .most = 127.0F,
          .nibbles = nibbles,
          .sum_factor = 1,
          .out = reinterpret_cast<std::byte*>(out),
          .sums = &sum,
          .pairs = nullptr,
          .pair_columns = 0,
          .pair_factor = 0,
          .plane = 0};
}

TEST_P(ActivationKernelsOf, IntegerCodesInTheOrderOfTheLanes) {
  constexpr std::size_t kNibbles[8] = {0, 4, 1, 5, 2, 6, 3, 7};
  constexpr std::size_t kPairs[4] = {0, 2, 1, 3};
  std::mt19937 rng(2);
  std::normal_distribution<float> normal;
  for (const std::int64_t count : {1, 8, 9, 16, 24, 32, 40, 128}) {
    std::vector<float> values(static_cast<std::size_t>(count));
    for (float& value : values) value = normal(rng);
    const float scale = int8_dynamic_scale(values);
    std::vector<std::int8_t> codes(values.size());
    quantize_int8(values, scale, codes);
    const std::size_t padded = (values.size() + 7) / 8 * 8;
    codes.resize(padded);
    for (const bool nibbles : {false, true}) {
      std::vector<std::int8_t> out(padded);
      std::int32_t sum = 0;
      cpu::EncodeArgs args = to_bytes(values, scale, nibbles, out.data(), sum);
      ops().encode8(args);
      std::vector<std::int16_t> words(padded);
      std::int32_t sum16 = 0;
      const float fine = scale * 127.0F / 32512.0F;
      args.scale = fine;
      args.most = 32512.0F;
      args.sum_factor = -3;
      args.out = reinterpret_cast<std::byte*>(words.data());
      args.sums = &sum16;
      const bool in_words = ops().encode16 != nullptr;
      if (in_words) ops().encode16(args);
      constexpr std::size_t kPlane = 192;
      std::vector<std::uint8_t> planes(kPlane + padded);
      std::int32_t sum_of_planes = 0;
      if (ops().encode_split != nullptr) {
        args.out = reinterpret_cast<std::byte*>(planes.data());
        args.sums = &sum_of_planes;
        args.plane = kPlane;
        ops().encode_split(args);
      }
      std::int32_t expected = 0;
      std::int32_t expected16 = 0;
      for (std::size_t i = 0; i < padded; ++i) {
        const std::size_t column = i / 8 * 8 + (nibbles ? kNibbles[i % 8] : i % 8);
        ASSERT_EQ(out[i], codes[column]) << count << " " << nibbles << " " << i;
        const std::size_t column16 = i / 4 * 4 + (nibbles ? i % 4 : kPairs[i % 4]);
        const float wanted = column16 < values.size() ? std::nearbyint(values[column16] / fine) : 0.0F;
        if (in_words) {
          ASSERT_EQ(static_cast<float>(words[i]), wanted) << count << " " << nibbles << " " << i;
        }
        if (ops().encode_split != nullptr) {
          const int code = static_cast<std::int8_t>(planes[i]) * 256 + static_cast<std::int8_t>(planes[kPlane + i]);
          const float in_bytes = column < values.size() ? std::nearbyint(values[column] / fine) : 0.0F;
          ASSERT_EQ(static_cast<float>(code), in_bytes) << count << " " << nibbles << " " << i;
        }
        expected += codes[column];
        expected16 += static_cast<int>(wanted);
      }
      EXPECT_EQ(sum, expected);
      if (in_words) {
        EXPECT_EQ(sum16, -3 * expected16);
      }
      if (ops().encode_split != nullptr) {
        EXPECT_EQ(sum_of_planes, -3 * expected16);
      }
    }
  }
}

// Groups in one call, as one call each.
TEST_P(ActivationKernelsOf, GroupsOneAfterTheOther) {
  constexpr std::int64_t kGroup = 48;
  constexpr std::int64_t kGroups = 3;
  constexpr std::int64_t kLast = 20;
  constexpr std::int64_t kPadded = (kGroups - 1) * kGroup + 24;
  std::mt19937 rng(3);
  std::normal_distribution<float> normal(0.0F, 40.0F);
  std::vector<float> values((kGroups - 1) * kGroup + kLast);
  for (float& value : values) value = normal(rng);
  struct Encoded {
    std::vector<std::byte> codes = std::vector<std::byte>(2 * kPadded);
    std::vector<std::int32_t> sums = std::vector<std::int32_t>(kGroups);
    std::vector<std::uint32_t> pairs = std::vector<std::uint32_t>(kGroups * 2);
  };
  const auto encode_with = [&](auto encode, std::int64_t width, std::int64_t together, bool pairs) {
    Encoded result;
    std::int8_t unused = 0;
    for (std::int64_t g = 0; g < kGroups; g += together) {
      cpu::EncodeArgs args = to_bytes(values, 1.0F, true, &unused, result.sums[static_cast<std::size_t>(g)]);
      args.x = values.data() + g * kGroup;
      args.groups = together;
      args.group_columns = kGroup;
      args.last_columns = g + together == kGroups ? kLast : kGroup;
      args.out = result.codes.data() + g * kGroup * width;
      args.pairs = pairs ? result.pairs.data() + g * 2 : nullptr;
      args.pair_columns = 32;  // two of them, the second shorter
      args.pair_factor = -8;
      args.plane = kPadded;
      encode(args);
    }
    return result;
  };
  const auto same = [&](auto encode, std::int64_t width, bool pairs) {
    const Encoded together = encode_with(encode, width, kGroups, pairs);
    const Encoded apart = encode_with(encode, width, 1, pairs);
    return together.codes == apart.codes && together.sums == apart.sums && together.pairs == apart.pairs;
  };
  EXPECT_TRUE(same(ops().encode8, 1, false));
  EXPECT_TRUE(same(ops().encode8, 1, ops().encode_split == nullptr));
  if (ops().encode16 != nullptr) {
    EXPECT_TRUE(same(ops().encode16, 2, false));
  }
  if (ops().encode_split != nullptr) {
    EXPECT_TRUE(same(ops().encode_split, 1, false));
  }
}

// A published scale may be smaller than a row's values ask for; 16 bits may hold codes of 8.
TEST_P(ActivationKernelsOf, CodesEndAtTheirLimit) {
  const std::vector<float> values{126.4F, 127.6F, -1e30F,  3e38F,  std::numeric_limits<float>::quiet_NaN(),
                                  5.5F,   -0.5F,  -127.0F, -128.0F};
  const std::vector<int> wanted{126, 127, -127, 127, -127, 6, 0, -127, -127};
  std::int8_t bytes[16];
  std::int16_t words[16];
  std::int32_t sum = 0;
  cpu::EncodeArgs args = to_bytes(values, 1.0F, false, bytes, sum);
  ops().encode8(args);
  EXPECT_EQ(sum, std::accumulate(wanted.begin(), wanted.end(), 0));
  for (std::size_t i = 0; i < values.size(); ++i) EXPECT_EQ(bytes[i], wanted[i]) << i;
  if (ops().encode16 == nullptr) return;
  args.out = reinterpret_cast<std::byte*>(words);
  args.nibbles = true;  // 16-bit codes in order
  ops().encode16(args);
  EXPECT_EQ(sum, std::accumulate(wanted.begin(), wanted.end(), 0));
  for (std::size_t i = 0; i < values.size(); ++i) EXPECT_EQ(words[i], wanted[i]) << i;
}

INSTANTIATE_TEST_SUITE_P(Targets, ActivationKernelsOf, ::testing::ValuesIn(test::cpu_targets()),
                         [](const auto& info) { return std::string(info.param.facts.name); });

}  // namespace
}  // namespace moracle
