// Layouts of which no recorded tensors exist, held against their published rule written out as what lies in each stored
// place: other loops than the maps of the packs, which say where each element goes.
#include <gtest/gtest.h>

#include <array>
#include <cstring>
#include <random>

#include "kernels/layouts/mapped_layouts.h"
#include "kernels/layouts/value_pack.h"
#include "scheme/codes.h"
#include "support/random_experts.h"

namespace moracle {
namespace {

using namespace layout;

constexpr std::int64_t kHidden = 256;
constexpr std::int64_t kInner = 128;

LayoutMatrix w13_of(const QuantKey& key) {
  std::mt19937 rng(21);
  const CanonicalExperts experts =
      test::random_experts({.key = key, .experts = 1, .hidden = kHidden, .intermediate = kInner}, rng);
  return w13_matrix(experts.experts[0]).value();
}

// TensorRT-LLM's order of 16 and of 32 rows: row i goes to map[i].
constexpr std::array<std::int64_t, 16> kRows16{0, 8, 1, 9, 2, 10, 3, 11, 4, 12, 5, 13, 6, 14, 7, 15};
constexpr std::array<std::int64_t, 32> kRows32{0, 8,  16, 24, 1, 9,  17, 25, 2, 10, 18, 26, 3, 11, 19, 27,
                                               4, 12, 20, 28, 5, 13, 21, 29, 6, 14, 22, 30, 7, 15, 23, 31};

// Which row of gate over up lies in each stored row.
std::vector<std::int64_t> up_first() {
  std::vector<std::int64_t> rows;
  for (std::int64_t i = 0; i < kInner; ++i) rows.push_back(kInner + i);
  for (std::int64_t i = 0; i < kInner; ++i) rows.push_back(i);
  return rows;
}
std::vector<std::int64_t> in_turns() {
  std::vector<std::int64_t> rows;
  for (std::int64_t i = 0; i < kInner; ++i) rows.insert(rows.end(), {kInner + i, i});
  return rows;
}
std::vector<std::int64_t> shuffled(const std::vector<std::int64_t>& rows, std::span<const std::int64_t> map) {
  std::vector<std::int64_t> out(rows.size());
  for (std::size_t i = 0; i < rows.size(); ++i)
    out[i / map.size() * map.size() + static_cast<std::size_t>(map[i % map.size()])] = rows[i];
  return out;
}

const QuantKey kBlockKey{
    .element = Element::e4m3, .scale = ScaleType::f32, .granularity = Granularity::block(128, 128)};
const QuantKey kTensorKey{.element = Element::e4m3, .scale = ScaleType::f32, .granularity = Granularity::tensor()};
const QuantKey kMxfp8Key{.element = Element::e4m3, .scale = ScaleType::e8m0, .granularity = Granularity::group(32)};

TEST(PublishedMaps, TrtLlmFp8OfOneScaleATensor) {
  const LayoutMatrix matrix = w13_of(kTensorKey);
  const auto pack = pack_mapped<kTrtLlmFp8Tensor>(matrix, Role::w13);
  ASSERT_TRUE(pack.ok());
  const auto rows = shuffled(in_turns(), kRows32);
  std::size_t at = 0;
  for (const std::int64_t row : rows)
    for (std::int64_t k = 0; k < kHidden; ++k) ASSERT_EQ(pack->weight.bytes()[at++], matrix.code(row, k));
  EXPECT_EQ(pack->scales.grid(), (Grid{2, 1}));
}

TEST(PublishedMaps, TrtLlmFp8Blocks) {
  const LayoutMatrix matrix = w13_of(kBlockKey);
  const auto pack = pack_mapped<kTrtLlmFp8Block>(matrix, Role::w13);
  ASSERT_TRUE(pack.ok());
  const auto rows = shuffled(up_first(), kRows16);
  std::size_t at = 0;
  for (std::int64_t block = 0; block < kHidden / 128; ++block)
    for (const std::int64_t row : rows)
      for (std::int64_t k = 0; k < 128; ++k) ASSERT_EQ(pack->weight.bytes()[at++], matrix.code(row, block * 128 + k));
  // [block rows, block columns], up's above gate's.
  ASSERT_EQ(pack->scales.grid(), (Grid{2, 2}));
  at = 0;
  for (const std::int64_t row : {kInner, std::int64_t{0}})
    for (std::int64_t g = 0; g < 2; ++g, at += 4) {
      float stored = 0.0F;
      std::memcpy(&stored, pack->scales.bytes().data() + at, sizeof(stored));
      EXPECT_EQ(stored, matrix.scale(row, g));
    }
}

TEST(PublishedMaps, TrtLlmMxfp8) {
  const LayoutMatrix matrix = w13_of(kMxfp8Key);
  const auto pack = pack_mapped<kTrtLlmMxfp8>(matrix, Role::w13);
  ASSERT_TRUE(pack.ok());
  const auto rows = shuffled(in_turns(), kRows32);
  std::size_t at = 0;
  for (const std::int64_t row : rows)
    for (std::int64_t k = 0; k < kHidden; ++k) ASSERT_EQ(pack->weight.bytes()[at++], matrix.code(row, k));
  // Tiles of 128 x 4: [row tile][column tile][32][4][4].
  at = 0;
  for (std::int64_t tile = 0; tile < 2 * kInner; tile += 128)
    for (std::int64_t col = 0; col < kHidden / 32; col += 4)
      for (std::int64_t r = 0; r < 32; ++r)
        for (std::int64_t quarter = 0; quarter < 4; ++quarter)
          for (std::int64_t c = 0; c < 4; ++c) {
            const std::int64_t row = rows[static_cast<std::size_t>(tile + quarter * 32 + r)];
            ASSERT_EQ(pack->scales.bytes()[at++], encode_e8m0(matrix.scale(row, col + c)));
          }
}

TEST(PublishedMaps, TrtLlmBf16) {
  const LayoutMatrix matrix = w13_of({.element = Element::bf16});
  const auto pack = pack_values<kTrtLlmValues>(matrix, Role::w13);
  ASSERT_TRUE(pack.ok());
  const auto rows = shuffled(in_turns(), kRows32);
  std::size_t at = 0;
  for (std::int64_t block = 0; block < kHidden / 64; ++block)
    for (const std::int64_t row : rows)
      for (std::int64_t k = 0; k < 64; ++k, at += 2) {
        const auto bits = static_cast<std::uint16_t>(pack->values.bytes()[at] | pack->values.bytes()[at + 1] << 8);
        ASSERT_EQ(decode_bf16(bits), matrix.panel.values[static_cast<std::size_t>(row * kHidden + block * 64 + k)]);
      }
}

// view(N / 16, 16, K / 32, 4, 8).permute(0, 2, 3, 1, 4)
TEST(PublishedMaps, AiterUnquantized) {
  for (const Element element : {Element::bf16, Element::f16}) {
    const LayoutMatrix matrix = w13_of({.element = element});
    const auto pack = pack_values<kAiterValues>(matrix, Role::w13);
    ASSERT_TRUE(pack.ok());
    std::size_t at = 0;
    for (std::int64_t n = 0; n < 2 * kInner; n += 16)
      for (std::int64_t k = 0; k < kHidden; k += 32)
        for (std::int64_t part = 0; part < 4; ++part)
          for (std::int64_t r = 0; r < 16; ++r)
            for (std::int64_t c = 0; c < 8; ++c, at += 2) {
              const auto bits =
                  static_cast<std::uint16_t>(pack->values.bytes()[at] | pack->values.bytes()[at + 1] << 8);
              const float stored = element == Element::bf16 ? decode_bf16(bits) : decode_f16(bits);
              ASSERT_EQ(stored, matrix.panel.values[static_cast<std::size_t>((n + r) * kHidden + k + part * 8 + c)]);
            }
  }
}

}  // namespace
}  // namespace moracle
