#include "support/published_matrices.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <functional>
#include <numeric>

namespace moracle::test {

namespace {

using Tensor = MutableCheckpoint::Tensor;

std::size_t product(const Shape& shape) {
  return static_cast<std::size_t>(std::accumulate(shape.begin(), shape.end(), std::int64_t{1}, std::multiplies<>()));
}

std::uint32_t below(Random& random, std::uint32_t end) {
  return static_cast<std::uint32_t>(random() % end);
}

Scale draw_scale(Random& random, int lowest) {
  return {.exponent = lowest + static_cast<int>(below(random, 3)), .quarter = below(random, 4)};
}

// A float of `exponent` and `mantissa` bits below a sign, without infinities.
float small_float(std::uint32_t code, int exponent, int mantissa, int bias) {
  const std::uint32_t e = code >> static_cast<unsigned>(mantissa) & ((1U << static_cast<unsigned>(exponent)) - 1U);
  const std::uint32_t m = code & ((1U << static_cast<unsigned>(mantissa)) - 1U);
  const float fraction = std::ldexp(static_cast<float>(m), -mantissa);
  const float magnitude =
      e == 0 ? std::ldexp(fraction, 1 - bias) : std::ldexp(1.0F + fraction, static_cast<int>(e) - bias);
  return (code >> static_cast<unsigned>(exponent + mantissa) & 1U) != 0 ? -magnitude : magnitude;
}

const CodeElement kInt4{[](Random& random) { return below(random, 16); },  // two's complement
                        [](std::uint32_t code) { return static_cast<float>(code) - (code > 7U ? 16.0F : 0.0F); }};

// Codes of words, less their zero points.
const CodeElement kNibble{[](Random& random) { return below(random, 16); },
                          [](std::uint32_t code) { return static_cast<float>(code); }};
const CodeElement kByte{[](Random& random) { return below(random, 256); },
                        [](std::uint32_t code) { return static_cast<float>(code); }};

// Codes under scales of blocks, any of which may be as large as the matrix.
struct Matrix {
  std::int64_t out = 0, in = 0, height = 0, width = 0;
  std::vector<std::uint32_t> codes{};   // [out, in]
  std::vector<Scale> scales{};          // [rows of blocks, columns of blocks]
  std::vector<std::uint32_t> zeros{};   // likewise, empty where there are none
  std::vector<std::uint32_t> groups{};  // the column of blocks of each column of codes

  [[nodiscard]] std::int64_t down() const { return (out + height - 1) / height; }
  [[nodiscard]] std::int64_t across() const { return (in + width - 1) / width; }
  [[nodiscard]] std::size_t block_of(std::int64_t row, std::int64_t col) const {
    return static_cast<std::size_t>(row / height * across() + groups[static_cast<std::size_t>(col)]);
  }
  [[nodiscard]] std::uint32_t code(std::int64_t row, std::int64_t col) const {
    return codes[static_cast<std::size_t>(row * in + col)];
  }
};

Matrix draw(Random& random, const CodeElement& element, std::int64_t out, std::int64_t in, std::int64_t height,
            std::int64_t width, int lowest_exponent) {
  Matrix m{.out = out, .in = in, .height = height == 0 ? out : height, .width = width == 0 ? in : width};
  for (std::int64_t i = 0; i < out * in; ++i) m.codes.push_back(element.draw(random));
  for (std::int64_t i = 0; i < m.down() * m.across(); ++i) m.scales.push_back(draw_scale(random, lowest_exponent));
  for (std::int64_t c = 0; c < in; ++c) m.groups.push_back(static_cast<std::uint32_t>(c / m.width));
  return m;
}

std::vector<float> values_of(const Matrix& m, const CodeElement& element, float global = 1.0F) {
  std::vector<float> values;
  for (std::int64_t r = 0; r < m.out; ++r)
    for (std::int64_t c = 0; c < m.in; ++c) {
      const std::size_t block = m.block_of(r, c);
      const float zero = m.zeros.empty() ? 0.0F : static_cast<float>(m.zeros[block]);
      values.push_back((element.value(m.code(r, c)) - zero) * (m.scales[block].value() * global));
    }
  return values;
}

// Codes of `bits` behind each other, the lowest first, in words of 32 bits; `at(i)` is the i-th.
Tensor words(const Shape& shape, unsigned bits, const std::function<std::uint32_t(std::size_t)>& at) {
  std::vector<std::uint32_t> all(product(shape));
  const std::size_t per_word = 32 / bits;
  for (std::size_t i = 0; i < all.size() * per_word; ++i)
    all[i / per_word] |= (at(i) & ((1U << bits) - 1U)) << (i % per_word * bits);
  return {.dtype = "I32", .shape = shape, .bytes = bytes_of(all)};
}

// One code a byte, or two, or four in three, along a row.
Tensor byte_codes(const std::string& dtype, const Matrix& m, unsigned bits) {
  Bytes bytes(m.codes.size() * bits / 8);
  for (std::size_t i = 0; i < m.codes.size(); ++i)
    for (unsigned b = 0; b < bits; ++b) {
      const std::size_t bit = i * bits + b;
      bytes[bit / 8] = static_cast<std::uint8_t>(bytes[bit / 8] | (m.codes[i] >> b & 1U) << (bit % 8));
    }
  return {.dtype = dtype, .shape = {m.out, m.in * bits / 8}, .bytes = std::move(bytes)};
}

// Powers of two, in a byte each.
Tensor byte_scales(Matrix& m) {
  Bytes bytes;
  for (Scale& scale : m.scales) {
    scale.quarter = 0;
    bytes.push_back(static_cast<std::uint8_t>(scale.exponent + 127));
  }
  return {.dtype = "U8", .shape = {m.down(), m.across()}, .bytes = std::move(bytes)};
}

// Where words run along the output, as AWQ and Quark have them, their halves take turns.
constexpr std::array<std::size_t, 8> kOrder{0, 2, 4, 6, 1, 3, 5, 7};

Tensor words_along_out(const Matrix& m) {
  const auto rows = static_cast<std::size_t>(m.out);
  return words({m.in, m.out / 8}, 4, [&](std::size_t i) {
    return m.code(static_cast<std::int64_t>(i % rows / 8 * 8 + kOrder[i % 8]), static_cast<std::int64_t>(i / rows));
  });
}

}  // namespace

Tensor scale_tensor(const std::string& dtype, const Shape& shape, const std::vector<Scale>& scales) {
  Bytes bytes;
  for (const Scale& scale : scales) {
    const auto put = [&](auto bits) {
      const Bytes one = bytes_of(std::vector{bits});
      bytes.insert(bytes.end(), one.begin(), one.end());
    };
    const auto biased = [&](int bias) { return static_cast<std::uint32_t>(scale.exponent + bias); };
    if (dtype == "F32") put(scale.value());
    if (dtype == "BF16") put(static_cast<std::uint16_t>(biased(127) << 7U | scale.quarter << 5U));
    if (dtype == "F16") put(static_cast<std::uint16_t>(biased(15) << 10U | scale.quarter << 8U));
    if (dtype == "F8_E4M3") put(static_cast<std::uint8_t>(biased(7) << 3U | scale.quarter << 1U));
  }
  EXPECT_EQ(product(shape), scales.size());
  return {.dtype = dtype, .shape = shape, .bytes = std::move(bytes)};
}

const CodeElement kE4m3{
    [](Random& random) { return below(random, 2) << 7U | (3U + below(random, 6)) << 3U | below(random, 8); },
    [](std::uint32_t code) { return small_float(code, 4, 3, 7); }};
const CodeElement kE2m1{[](Random& random) { return below(random, 16); },
                        [](std::uint32_t code) { return small_float(code, 2, 1, 1); }};
const CodeElement kE2m3{[](Random& random) { return below(random, 64); },
                        [](std::uint32_t code) { return small_float(code, 2, 3, 1); }};
const CodeElement kInt8{[](Random& random) { return (below(random, 255) + 129U) & 255U; },
                        [](std::uint32_t code) { return static_cast<float>(static_cast<std::int8_t>(code)); }};

PublishedMatrix gptq_words(Random& random, std::int64_t out, std::int64_t in, const Words& w) {
  const auto range = std::uint32_t{1} << w.bits;
  const CodeElement& element = w.bits == 4 ? kNibble : kByte;
  Matrix m = draw(random, element, out, in, 1, 32, w.bits == 4 ? -6 : -10);
  for (std::size_t i = 0; i < m.scales.size(); ++i)
    m.zeros.push_back(w.asymmetric ? 1U + below(random, range - 1U) : range / 2);
  if (w.reordered) std::shuffle(m.groups.begin(), m.groups.end(), random);
  PublishedMatrix matrix{.values = values_of(m, element)};
  const auto rows = static_cast<std::size_t>(out);
  const auto per_word = static_cast<std::size_t>(32 / w.bits);
  matrix.parts["qweight"] = words({in * w.bits / 32, out}, w.bits, [&](std::size_t i) {
    const std::size_t word = i / per_word;
    return m.code(static_cast<std::int64_t>(word % rows),
                  static_cast<std::int64_t>(word / rows * per_word + i % per_word));
  });
  // By groups, then outputs.
  const auto transposed = [&](std::size_t i) { return i % rows * static_cast<std::size_t>(m.across()) + i / rows; };
  matrix.parts["qzeros"] = words({m.across(), out * w.bits / 32}, w.bits,
                                 [&](std::size_t i) { return m.zeros[transposed(i)] - w.stored_less; });
  std::vector<Scale> scales;
  for (std::size_t i = 0; i < m.scales.size(); ++i) scales.push_back(m.scales[transposed(i)]);
  matrix.parts["scales"] = scale_tensor("F16", {m.across(), out}, scales);
  matrix.parts["g_idx"] = {.dtype = "I32", .shape = {in}, .bytes = bytes_of(m.groups)};
  return matrix;
}

PublishedMatrix awq_words(Random& random, std::int64_t out, std::int64_t in) {
  Matrix m = draw(random, kNibble, out, in, 1, 32, -6);
  for (std::size_t i = 0; i < m.scales.size(); ++i) m.zeros.push_back(1U + below(random, 15));
  PublishedMatrix matrix{.values = values_of(m, kNibble)};
  const auto rows = static_cast<std::size_t>(out);
  const auto groups = static_cast<std::size_t>(m.across());
  matrix.parts["qweight"] = words_along_out(m);
  matrix.parts["qzeros"] = words({m.across(), out / 8}, 4, [&](std::size_t i) {
    return m.zeros[(i % rows / 8 * 8 + kOrder[i % 8]) * groups + i / rows];
  });
  std::vector<Scale> scales;
  for (std::size_t i = 0; i < m.scales.size(); ++i) scales.push_back(m.scales[i % rows * groups + i / rows]);
  matrix.parts["scales"] = scale_tensor("F16", {m.across(), out}, scales);
  return matrix;
}

PublishedMatrix quark_words(Random& random, std::int64_t out, std::int64_t in) {
  const Matrix m = draw(random, kInt4, out, in, 1, 32, -6);
  PublishedMatrix matrix{.values = values_of(m, kInt4)};
  matrix.parts["weight"] = words_along_out(m);
  const auto rows = static_cast<std::size_t>(out);
  std::vector<Scale> scales;
  for (std::size_t i = 0; i < m.scales.size(); ++i)
    scales.push_back(m.scales[i % rows * static_cast<std::size_t>(m.across()) + i / rows]);
  matrix.parts["weight_scale"] = scale_tensor("BF16", {m.across(), out}, scales);
  return matrix;
}

PublishedMatrix ct_words(Random& random, std::int64_t out, std::int64_t in) {
  const Matrix m = draw(random, kInt4, out, in, 1, 32, -6);
  PublishedMatrix matrix{.values = values_of(m, kInt4)};
  matrix.parts["weight_packed"] = words({out, in / 8}, 4, [&](std::size_t i) { return m.codes[i] + 8U; });
  matrix.parts["weight_scale"] = scale_tensor("BF16", {out, m.across()}, m.scales);
  matrix.parts["weight_shape"] = {.dtype = "I64", .shape = {2}, .bytes = bytes_of(std::vector<std::int64_t>{out, in})};
  return matrix;
}

PublishedMatrix byte_matrix(Random& random, std::int64_t out, std::int64_t in, const ByteCodes& b) {
  const Matrix m = draw(random, *b.element, out, in, b.height, b.width, b.lowest_exponent);
  PublishedMatrix matrix{.values = values_of(m, *b.element)};
  matrix.parts["weight"] = byte_codes(b.codes, m, 8);
  matrix.parts[b.scale] = scale_tensor(b.dtype, b.shape({m.out, m.in, m.down(), m.across()}), m.scales);
  return matrix;
}

Shape no_dimension(const Grid& /*grid*/) {
  return {};
}
Shape one_a_row(const Grid& grid) {
  return {grid.out};
}
Shape one_a_row_of_one(const Grid& grid) {
  return {grid.out, 1};
}
Shape of_blocks(const Grid& grid) {
  return {grid.down, grid.across};
}
Shape of_blocks_apart(const Grid& grid) {
  return {grid.down, 1, grid.across, 1};
}

PublishedMatrix mx_matrix(Random& random, std::int64_t out, std::int64_t in, const CodeElement& element, unsigned bits,
                          const std::string& dtype, const std::string& codes) {
  Matrix m = draw(random, element, out, in, 1, 32, -6);
  PublishedMatrix matrix;
  matrix.parts["weight_scale"] = byte_scales(m);
  matrix.parts[codes] = byte_codes(dtype, m, bits);
  matrix.values = values_of(m, element);
  return matrix;
}

PublishedMatrix nvfp4_matrix(Random& random, std::int64_t out, std::int64_t in, const std::string& codes,
                             const std::string& global, bool divides, const Shape& global_shape) {
  const Matrix m = draw(random, kE2m1, out, in, 1, 16, -4);
  PublishedMatrix matrix{.values = values_of(m, kE2m1, 0.5F)};
  matrix.parts[codes] = byte_codes("U8", m, 4);
  matrix.parts["weight_scale"] = scale_tensor("F8_E4M3", {out, m.across()}, m.scales);
  matrix.parts[global] = scale_tensor("F32", global_shape, {Scale{.exponent = divides ? 1 : -1}});
  return matrix;
}

PublishedMatrix plain_matrix(Random& random, std::int64_t out, std::int64_t in, const std::string& dtype) {
  std::vector<Scale> values;
  PublishedMatrix matrix;
  for (std::int64_t i = 0; i < out * in; ++i) {
    values.push_back(draw_scale(random, -4));
    matrix.values.push_back(values.back().value());
  }
  matrix.parts["weight"] = scale_tensor(dtype, {out, in}, values);
  for (std::size_t i = 0; i < values.size(); i += 2) {  // every other is negative
    const std::size_t size = dtype_bytes(dtype);
    matrix.parts["weight"].bytes[(i + 1) * size - 1] ^= 0x80U;
    matrix.values[i] = -matrix.values[i];
  }
  return matrix;
}

}  // namespace moracle::test
