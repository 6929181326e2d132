// Packed panels byte by byte against the layout that kernels/cpu/weights/panel.h describes, written down once more
// without vectors.
#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <memory>
#include <optional>
#include <random>
#include <span>
#include <string>
#include <vector>

#include "base/memory.h"
#include "kernels/cpu/weights/pack/pack.h"
#include "scheme/codes.h"
#include "support/cpu_targets.h"
#include "support/random_experts.h"

namespace moracle {
namespace {

using cpu::PanelFormat;
using cpu::ScaleCode;
using cpu::WeightCode;
using test::MatrixRecipe;

template <class T>
void put(std::vector<std::byte>& out, T value) {
  const auto* bytes = reinterpret_cast<const std::byte*>(&value);
  out.insert(out.end(), bytes, bytes + sizeof value);
}

// One matrix, its codes or values by packed position.
struct Reference {
  const PanelFormat& format;
  const std::vector<std::int32_t>& order;
  MatrixPanel all;

  std::uint32_t code(std::int64_t row, std::int64_t p) const {
    if (row >= format.rows || p >= format.cols)
      return format.code == WeightCode::int8 && row >= format.rows ? 0x80U : 0U;
    const std::int64_t column = order.empty() ? p : order[static_cast<std::size_t>(p)];
    const std::uint8_t stored = all.codes[static_cast<std::size_t>(row * format.cols + column)];
    return format.recode == nullptr ? stored : format.recode[stored];
  }
  float value(std::int64_t row, std::int64_t p) const {
    return row < format.rows && p < format.cols ? all.values[static_cast<std::size_t>(row * format.cols + p)] : 0.0F;
  }

  std::uint32_t nibbles(std::int64_t row, std::int64_t p) const {
    std::uint32_t lane = 0;
    for (int i = 0; i < 4; ++i) {
      lane |= code(row, p + 2 * i) << 4 * i | code(row, p + 2 * i + 1) << (16 + 4 * i);
    }
    return lane;
  }
  std::uint32_t bytes(std::int64_t row, std::int64_t p) const {
    std::uint32_t lane = 0;
    for (int i = 0; i < 4; ++i) {
      const bool twos = format.code == WeightCode::int8;
      const int place = twos || i % 3 == 0 ? i : 3 - i;
      lane |= (code(row, p + i) ^ (twos ? 0x80U : 0U)) << 8 * place;
    }
    return lane;
  }
  std::uint32_t halves(std::int64_t row, std::int64_t p) const {
    const auto encode = format.code == WeightCode::f16 ? encode_f16 : encode_bf16;
    return encode(value(row, p)) | static_cast<std::uint32_t>(encode(value(row, p + 1))) << 16;
  }

  void step(std::int64_t first, std::int64_t p, std::vector<std::byte>& out) const {
    const auto line = [&](auto lane) {
      for (std::int64_t row = first; row < first + 32; ++row) put(out, lane(row));
    };
    switch (format.code) {
      case WeightCode::int4:
      case WeightCode::e2m1:
        return line([&](std::int64_t row) { return nibbles(row, p); });
      case WeightCode::int8:
      case WeightCode::e4m3:
        for (int i = 0; i < 8; i += 4) line([&](std::int64_t row) { return bytes(row, p + i); });
        return;
      case WeightCode::bf16:
      case WeightCode::f16:
        for (int i = 0; i < 8; i += 2) line([&](std::int64_t row) { return halves(row, p + i); });
        return;
      case WeightCode::f32:
        for (int i = 0; i < 8; ++i) line([&](std::int64_t row) { return value(row, p + i); });
        return;
      case WeightCode::bf16x12:  // has tests of its own
        return;
    }
  }

  void tail(std::int64_t first, std::int64_t g, std::vector<std::byte>& out) const {
    const std::int64_t stored = g * format.group_cols / format.stored_group_cols;
    const auto at = [&](std::int64_t row) { return static_cast<std::size_t>(row * format.stored_groups() + stored); };
    for (std::int64_t row = first; row < first + 32; ++row) {
      const float scale = row < format.rows ? all.scales[at(row)] : 0.0F;
      if (format.scale == ScaleCode::f32) put(out, scale);
      if (format.scale == ScaleCode::f16) put(out, encode_f16(scale));
      if (format.scale == ScaleCode::bf16) put(out, encode_bf16(scale));
      if (format.scale == ScaleCode::e4m3) put(out, encode_e4m3(scale));
      if (format.scale == ScaleCode::e8m0) put(out, encode_e8m0(scale));
    }
    if (!format.zeros) return;
    for (std::int64_t row = first; row < first + 32; ++row)
      put(out, row < format.rows ? all.zeros[at(row)] : std::uint8_t{0});
  }

  std::vector<std::byte> pack() const {
    std::vector<std::byte> out;
    for (std::int64_t panel = 0; panel < format.panels; ++panel) {
      for (std::int64_t g = 0; g < format.groups; ++g) {
        const std::int64_t steps = g + 1 == format.groups ? format.last_steps : format.steps;
        for (std::int64_t s = 0; s < steps; ++s) step(panel * 32, g * format.group_cols + s * 8, out);
        if (format.code <= WeightCode::e4m3) tail(panel * 32, g, out);
      }
    }
    return out;
  }
};

int bits_stored(Element element) {
  return element == Element::f32 ? 32 : bits_of(element);
}

std::uint32_t encoded(ScaleType type, float scale) {
  if (type == ScaleType::f32) return std::bit_cast<std::uint32_t>(scale);
  if (type == ScaleType::f16) return encode_f16(scale);
  if (type == ScaleType::bf16) return encode_bf16(scale);
  return type == ScaleType::e4m3 ? encode_e4m3(scale) : encode_e8m0(scale);
}

// The same matrix as a file might hold it, in whole words, row by row or the words of all rows side by side, and its
// scales likewise. It does not decode codes: whoever asks for rows gets an error; whoever asks for scales is counted.
class StoredMatrix final : public MatrixSource {
 public:
  StoredMatrix(std::shared_ptr<const MatrixSource> whole, bool by_rows, std::uint8_t flip)
      : MatrixSource(whole->spec()),
        whole_(std::move(whole)),
        by_rows_(by_rows),
        flip_(flip),
        scale_width_(
            spec_.key.quantized() ? static_cast<std::size_t>(cpu::scale_bytes(cpu::scale_code(spec_.key.scale))) : 0) {
    MatrixPanel all;
    EXPECT_TRUE(whole_->read(0, spec_.rows, all).ok());
    const int bits = bits_stored(spec_.key.element);
    words_ = spec_.cols * bits / 32;
    bytes_.assign(static_cast<std::size_t>(spec_.rows * words_ * 4 + kOffset), std::byte{0});
    for (std::int64_t row = 0; row < spec_.rows; ++row)
      for (std::int64_t k = 0; k < spec_.cols; ++k)
        set(row, k, element_of(all, static_cast<std::size_t>(row * spec_.cols + k)));
    scales_.resize(kOffset + static_cast<std::size_t>(spec_.rows * spec_.groups) * scale_width_);
    for (std::int64_t row = 0; row < spec_.rows; ++row)
      for (std::int64_t g = 0; g < spec_.groups; ++g)
        set_scale(row, g, encoded(spec_.key.scale, all.scales[static_cast<std::size_t>(row * spec_.groups + g)]));
  }

  void set_scale(std::int64_t row, std::int64_t group, std::uint32_t code) {
    const std::int64_t at = by_rows_ ? row * spec_.groups + group : group * spec_.rows + row;
    std::memcpy(scales_.data() + kOffset + static_cast<std::size_t>(at) * scale_width_, &code, scale_width_);
  }
  [[nodiscard]] int scales_decoded() const { return scales_decoded_; }

  void set(std::int64_t row, std::int64_t column, std::uint32_t element) {
    const int bits = bits_stored(spec_.key.element);
    const std::int64_t per_word = 32 / bits;
    const std::int64_t word = column / per_word;
    std::byte* const at = bytes_.data() + kOffset + 4 * (by_rows_ ? row * words_ + word : word * spec_.rows + row);
    std::uint32_t value = 0;
    std::memcpy(&value, at, sizeof value);
    value |= element << static_cast<int>(column % per_word) * bits;
    std::memcpy(at, &value, sizeof value);
  }

  [[nodiscard]] Result<> read(std::int64_t, std::int64_t, MatrixPanel&) const override {
    return Error{.code = "test.decoded"};
  }
  [[nodiscard]] Result<> read_scales(std::int64_t begin, std::int64_t end, MatrixPanel& out) const override {
    ++scales_decoded_;
    return whole_->read_scales(begin, end, out);
  }
  [[nodiscard]] std::optional<RawCodes> raw_codes() const override {
    return RawCodes{.first = bytes_.data() + kOffset,
                    .row_bytes = by_rows_ ? words_ * 4 : 4,
                    .word_bytes = by_rows_ ? 4 : spec_.rows * 4,
                    .bits = bits_stored(spec_.key.element),
                    .flip = flip_,
                    .tensor = std::span(bytes_).subspan(kOffset)};
  }
  [[nodiscard]] std::optional<RawScales> raw_scales() const override {
    if (!spec_.key.symmetric) return std::nullopt;
    const auto width = static_cast<std::int64_t>(scale_width_);
    return RawScales{.first = scales_.data() + kOffset,
                     .row_bytes = by_rows_ ? spec_.groups * width : width,
                     .group_bytes = by_rows_ ? width : spec_.rows * width,
                     .type = spec_.key.scale,
                     .tensor = std::span(scales_).subspan(kOffset)};
  }

 private:
  static constexpr std::int64_t kOffset = 1;  // files promise no alignment

  [[nodiscard]] std::uint32_t element_of(const MatrixPanel& all, std::size_t i) const {
    if (spec_.key.element == Element::bf16) return encode_bf16(all.values[i]);
    if (spec_.key.element == Element::f16) return encode_f16(all.values[i]);
    if (spec_.key.element == Element::f32) return std::bit_cast<std::uint32_t>(all.values[i]);
    return all.codes[i] ^ (flip_ & (bits_of(spec_.key.element) == 4 ? 0x0FU : 0xFFU));
  }

  std::shared_ptr<const MatrixSource> whole_;
  bool by_rows_;
  std::uint8_t flip_;
  std::size_t scale_width_;
  std::int64_t words_ = 0;
  std::vector<std::byte> bytes_;
  std::vector<std::byte> scales_;
  mutable int scales_decoded_ = 0;
};

void expect_packed(const MatrixSource& source, const PanelFormat& format, std::span<const std::int32_t> order,
                   const std::vector<std::byte>& wanted, const std::string& what) {
  constexpr std::size_t kGap = 96;  // between panels; must stay as it is
  const std::size_t stride = format.panel_bytes + kGap;
  std::vector<std::byte> found(static_cast<std::size_t>(format.panels) * stride, std::byte{0xA5});
  cpu::PackScratch scratch;
  const auto packed = cpu::pack_panels(source, format, order, 0, format.panels, found.data(), stride, scratch);
  ASSERT_TRUE(packed.ok()) << what << ": " << packed.error().code;
  for (std::size_t panel = 0; panel < static_cast<std::size_t>(format.panels); ++panel) {
    const std::byte* at = found.data() + panel * stride;
    const std::byte* to = wanted.data() + panel * format.panel_bytes;
    ASSERT_EQ(std::memcmp(at, to, format.panel_bytes), 0) << what << ", panel " << panel;
    for (std::size_t i = 0; i < kGap; ++i) ASSERT_EQ(at[format.panel_bytes + i], std::byte{0xA5});
  }
}

void check(const CanonicalLinear& linear, const MatrixRecipe& recipe) {
  const auto forms = cpu::packed_format(linear, test::least_cpu_target().target, Numerics::exact);
  ASSERT_TRUE(forms.ok());
  const cpu::PanelFormat* const format = &forms->layout();
  const std::vector<std::int32_t> order = columns_by_group(linear.weight->spec().g_idx);
  Reference reference{.format = *format, .order = order, .all = {}};
  ASSERT_TRUE(linear.weight->read(0, recipe.rows, reference.all).ok());
  const std::vector<std::byte> wanted = reference.pack();
  ASSERT_EQ(wanted.size(), format->bytes());
  const std::string what =
      to_string(linear.scheme()) + " [" + std::to_string(recipe.rows) + ", " + std::to_string(recipe.cols) + "]";
  expect_packed(*linear.weight, *format, order, wanted, what);
  const Element element = recipe.key.element;
  const bool sixes = element == Element::e2m3 || element == Element::e3m2;
  if (!order.empty() || sixes || recipe.cols * bits_stored(element) % 32 != 0) return;
  std::vector<std::uint8_t> flips = {0};
  if (element == Element::int4) flips.push_back(0x88);
  if (element == Element::int8) flips.push_back(0x80);
  for (const std::uint8_t flip : flips)
    for (const bool by_rows : {true, false}) {
      const StoredMatrix stored(linear.weight, by_rows, flip);
      expect_packed(stored, *format, order, wanted, what + (by_rows ? " stored by rows" : " stored by lines"));
      const bool whole = recipe.rows % 32 == 0 && recipe.key.symmetric;
      if (whole) {
        EXPECT_EQ(stored.scales_decoded(), 0) << what;
      }
    }
}

void check(const MatrixRecipe& recipe, std::mt19937& rng) {
  check(test::random_linear(recipe, rng), recipe);
}

QuantKey grouped(Element element, ScaleType scale, std::int32_t group, bool symmetric = true) {
  return {.element = element, .scale = scale, .granularity = Granularity::group(group), .symmetric = symmetric};
}

class PackPanels : public testing::Test {
 protected:
  void SetUp() override {
    if (!test::least_cpu_target().runs_here()) GTEST_SKIP() << "this CPU lacks what packing needs";
  }
  std::mt19937 rng{11};
};

constexpr std::int64_t kRows[] = {1, 8, 31, 32, 33, 64, 95};

TEST_F(PackPanels, EveryCodeAndScale) {
  const QuantKey keys[] = {
      grouped(Element::int4, ScaleType::f16, 128), grouped(Element::int4, ScaleType::bf16, 32, false),
      grouped(Element::int8, ScaleType::f32, 64),  grouped(Element::int8, ScaleType::f16, 32, false),
      grouped(Element::e2m1, ScaleType::e8m0, 32), grouped(Element::e2m1, ScaleType::e4m3, 16),
      grouped(Element::e4m3, ScaleType::e8m0, 32), grouped(Element::e2m3, ScaleType::e8m0, 32),
      grouped(Element::e3m2, ScaleType::e8m0, 32)};
  for (const QuantKey& key : keys)
    for (const std::int64_t rows : kRows)
      for (const std::int64_t groups : {1, 2, 3, 5}) {
        const std::int64_t cols = groups * key.granularity.cols;
        for (const std::int64_t less : {0, 8, 12}) check({.key = key, .rows = rows, .cols = cols - less}, rng);
      }
}

TEST_F(PackPanels, OneScaleARow) {
  for (const Element element : {Element::int4, Element::int8, Element::e4m3})
    for (const std::int64_t rows : kRows)
      for (const std::int64_t cols : {1, 7, 8, 31, 64, 100, 129})
        check({.key = {.element = element, .scale = ScaleType::f32, .granularity = Granularity::channel()},
               .rows = rows,
               .cols = cols},
              rng);
}

TEST_F(PackPanels, Unquantized) {
  for (const Element element : {Element::bf16, Element::f16, Element::f32})
    for (const std::int64_t rows : kRows)
      for (const std::int64_t cols : {1, 7, 8, 16, 31, 64, 100})
        check({.key = {.element = element}, .rows = rows, .cols = cols}, rng);
}

// What is fetched from the file at a time ends within a group, and holds some rows of a line or some panels.
TEST_F(PackPanels, InManyFetches) {
  check({.key = grouped(Element::int4, ScaleType::f16, 96, false), .rows = 200, .cols = 8256}, rng);
  check({.key = {.element = Element::int8, .scale = ScaleType::f32, .granularity = Granularity::channel()},
         .rows = 72,
         .cols = 4100},
        rng);
  check({.key = {.element = Element::bf16}, .rows = 4200, .cols = 72}, rng);
  check({.key = grouped(Element::e2m1, ScaleType::e8m0, 32), .rows = 4200, .cols = 256}, rng);
}

TEST_F(PackPanels, ColumnsInGroupOrder) {
  for (const Element element : {Element::int4, Element::int8})
    for (const std::int64_t rows : kRows)
      check({.key = grouped(element, ScaleType::f16, 32, false), .rows = rows, .cols = 160, .act_order = true}, rng);
}

// What is no number is left to the source, which finds it and says where.
TEST_F(PackPanels, StoredNumbersThatAreNone) {
  const std::pair<Element, std::uint32_t> cases[] = {
      {Element::e4m3, 0x7F},  {Element::e4m3, 0xFF},  {Element::bf16, 0x7F80},    {Element::bf16, 0xFFC0},
      {Element::f16, 0x7C00}, {Element::f16, 0xFE00}, {Element::f32, 0x7F800000}, {Element::f32, 0xFFC00000}};
  for (const auto& [element, none] : cases)
    for (const bool by_rows : {true, false})
      for (const auto& [row, column] : {std::pair<std::int64_t, std::int64_t>{0, 0}, {39, 63}, {31, 8}, {32, 17}}) {
        QuantKey key{.element = element};
        if (element == Element::e4m3)
          key = {.element = element, .scale = ScaleType::f32, .granularity = Granularity::channel()};
        const CanonicalLinear linear = test::random_linear({.key = key, .rows = 40, .cols = 64}, rng);
        const auto forms = cpu::packed_format(linear, test::least_cpu_target().target, Numerics::exact);
        ASSERT_TRUE(forms.ok());
        StoredMatrix source(linear.weight, by_rows, 0);
        source.set(row, column, none);
        std::vector<std::byte> out(forms->layout().bytes());
        cpu::PackScratch scratch;
        const auto packed = cpu::pack_panels(source, forms->layout(), {}, 0, forms->layout().panels, out.data(),
                                             forms->layout().panel_bytes, scratch);
        ASSERT_FALSE(packed.ok()) << to_string(linear.scheme()) << " row " << row << ", column " << column;
        EXPECT_EQ(packed.error().code, "test.decoded");
      }
}

// What may be wrong is looked at where it can be told.
TEST_F(PackPanels, StoredScalesThatAreUnusual) {
  const std::pair<ScaleType, std::uint32_t> cases[] = {
      {ScaleType::e8m0, 0x00},       {ScaleType::e8m0, 0xFF},       {ScaleType::e4m3, 0x00},
      {ScaleType::e4m3, 0x80},       {ScaleType::e4m3, 0x7F},       {ScaleType::e4m3, 0xFF},
      {ScaleType::f16, 0x0000},      {ScaleType::f16, 0x8000},      {ScaleType::f16, 0x7C00},
      {ScaleType::f16, 0xFE00},      {ScaleType::bf16, 0},          {ScaleType::bf16, 0x7F80},
      {ScaleType::bf16, 0xFFC0},     {ScaleType::f32, 0x00000000},  {ScaleType::f32, 0x80000000},
      {ScaleType::f32, 0x7F800000U}, {ScaleType::f32, 0xFFC00000U}, {ScaleType::f16, 0x0001},  // the last one is usual
  };
  for (const auto& [type, code] : cases)
    for (const bool by_rows : {true, false})
      for (const auto& [row, group] : {std::pair<std::int64_t, std::int64_t>{0, 0}, {63, 9}, {31, 4}, {32, 8}}) {
        const bool floats = type == ScaleType::e8m0 || type == ScaleType::e4m3;
        const MatrixRecipe recipe{
            .key = grouped(floats ? Element::e2m1 : Element::int4, type, 32), .rows = 64, .cols = 320};
        const CanonicalLinear linear = test::random_linear(recipe, rng);
        const auto packed = cpu::packed_format(linear, test::least_cpu_target().target, Numerics::exact);
        ASSERT_TRUE(packed.ok());
        cpu::PanelFormat format = packed->layout();
        format.scale = cpu::scale_code(type);
        StoredMatrix source(linear.weight, by_rows, 0);
        source.set_scale(row, group, code);
        std::vector<std::byte> out(format.bytes());
        cpu::PackScratch scratch;
        ASSERT_TRUE(
            cpu::pack_panels(source, format, {}, 0, format.panels, out.data(), format.panel_bytes, scratch).ok());
        EXPECT_EQ(source.scales_decoded() > 0, code != 1)
            << to_string(linear.scheme()) << ", code " << code << ", row " << row << ", group " << group;
      }
}

// Scales of the activations are finer than those of the weight.
TEST_F(PackPanels, GroupsOfTheActivations) {
  const QuantKey activation{.element = Element::e4m3, .granularity = Granularity::group(32), .dynamic = true};
  for (const std::int64_t rows : kRows)
    check({.key = grouped(Element::e4m3, ScaleType::f32, 128), .activation = activation, .rows = rows, .cols = 320},
          rng);
}

}  // namespace
}  // namespace moracle
