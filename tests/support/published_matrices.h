// Matrices of random codes as publishers' tools store them, with the numbers that they stand for.
#pragma once

#include <cmath>
#include <cstdint>
#include <cstring>
#include <map>
#include <random>
#include <string>
#include <vector>

#include "support/mutable_checkpoint.h"

namespace moracle::test {

using Bytes = std::vector<std::uint8_t>;
using Random = std::mt19937;
using Shape = std::vector<std::int64_t>;

// One matrix [out, in]: its tensors by part, and its values.
struct PublishedMatrix {
  std::map<std::string, MutableCheckpoint::Tensor> parts{};
  std::vector<float> values{};
};

template <class T>
Bytes bytes_of(const std::vector<T>& values) {
  Bytes bytes(values.size() * sizeof(T));
  if (!values.empty()) std::memcpy(bytes.data(), values.data(), bytes.size());
  return bytes;
}

// 2^exponent * (1 + quarter / 4): exact in every float type.
struct Scale {
  int exponent = 0;
  std::uint32_t quarter = 0;

  [[nodiscard]] float value() const { return std::ldexp(1.0F + 0.25F * static_cast<float>(quarter), exponent); }
};

// As F32, BF16, F16 or F8_E4M3.
[[nodiscard]] MutableCheckpoint::Tensor scale_tensor(const std::string& dtype, const Shape& shape,
                                                     const std::vector<Scale>& scales);

// A code of some element, and what it stands for.
struct CodeElement {
  std::uint32_t (*draw)(Random& random);
  float (*value)(std::uint32_t code);
};

extern const CodeElement kE4m3, kE2m1, kE2m3, kInt8;

// --- 32-bit words of codes -----------------------------------------------------------------------------------------

struct Words {
  unsigned bits = 4;
  bool asymmetric = false;
  std::uint32_t stored_less = 1;  // of zero points
  bool reordered = false;         // columns of a group lie anywhere
};

// GPTQ's layout: words along the input.
[[nodiscard]] PublishedMatrix gptq_words(Random& random, std::int64_t out, std::int64_t in, const Words& w);
// Words along the output: AWQ's, and those of Quark, which are signed.
[[nodiscard]] PublishedMatrix awq_words(Random& random, std::int64_t out, std::int64_t in);
[[nodiscard]] PublishedMatrix quark_words(Random& random, std::int64_t out, std::int64_t in);
// Words along the input, row by row, as compressed-tensors packs them.
[[nodiscard]] PublishedMatrix ct_words(Random& random, std::int64_t out, std::int64_t in);

// --- Codes in bytes ------------------------------------------------------------------------------------------------

// How many blocks of one scale there are, of what matrix.
struct Grid {
  std::int64_t out, in, down, across;
};
[[nodiscard]] Shape no_dimension(const Grid& grid);
[[nodiscard]] Shape one_a_row(const Grid& grid);
[[nodiscard]] Shape one_a_row_of_one(const Grid& grid);
[[nodiscard]] Shape of_blocks(const Grid& grid);
[[nodiscard]] Shape of_blocks_apart(const Grid& grid);

// One code a byte under scales of type `dtype` and shape `shape`, blocks of height x width.
struct ByteCodes {
  const CodeElement* element;
  std::string codes, dtype;
  std::int64_t height = 0, width = 0;
  Shape (*shape)(const Grid& grid);
  int lowest_exponent = -5;
  std::string scale = "weight_scale";
};

[[nodiscard]] PublishedMatrix byte_matrix(Random& random, std::int64_t out, std::int64_t in, const ByteCodes& b);
// Groups of 32 under a power of two.
[[nodiscard]] PublishedMatrix mx_matrix(Random& random, std::int64_t out, std::int64_t in, const CodeElement& element,
                                        unsigned bits, const std::string& dtype, const std::string& codes);
// The second level is 1/2, stored as such or as its reciprocal.
[[nodiscard]] PublishedMatrix nvfp4_matrix(Random& random, std::int64_t out, std::int64_t in, const std::string& codes,
                                           const std::string& global, bool divides, const Shape& global_shape);
[[nodiscard]] PublishedMatrix plain_matrix(Random& random, std::int64_t out, std::int64_t in, const std::string& dtype);

}  // namespace moracle::test
