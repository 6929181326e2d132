// The mapped layouts against recorded tensors, bit for bit, and their inverses.
#include <gtest/gtest.h>

#include "kernels/layouts/mapped_layouts.h"
#include "layouts/golden_matrices.h"

namespace moracle {
namespace {

using namespace layout;
using test::Bytes;
using test::bytes_of;
using test::code_at;
using test::GoldenFile;

constexpr QuantKey kInt4G32{.element = Element::int4, .scale = ScaleType::f16, .granularity = Granularity::group(32)};
constexpr QuantKey kMxfp4{.element = Element::e2m1, .scale = ScaleType::e8m0, .granularity = Granularity::group(32)};
constexpr QuantKey kNvfp4{
    .element = Element::e2m1, .scale = ScaleType::e4m3, .granularity = Granularity::group(16), .second_level = true};

Bytes part_of(const GoldenFile& file, const std::string& name, std::int64_t expert) {
  const TensorView view = file.part(name, expert);
  Bytes bytes(view.bytes.size());
  std::memcpy(bytes.data(), view.bytes.data(), bytes.size());
  return bytes;
}

template <const MappedLayout& Layout>
MappedPack<Layout> packed(const LayoutMatrix& matrix, Role role) {
  auto pack = pack_mapped<Layout>(matrix, role);
  EXPECT_TRUE(pack.ok()) << pack.error().message();
  if (!pack.ok()) return {};
  EXPECT_TRUE(same(unpack(*pack), matrix)) << Layout.name;
  return std::move(pack).value();
}

// Rows that alternate gate and up become halves.
LayoutMatrix split_rows(const LayoutMatrix& interleaved) {
  LayoutMatrix matrix = interleaved;
  const std::int64_t half = matrix.head.part_rows();
  for (std::int64_t r = 0; r < matrix.head.rows; ++r) {
    const std::int64_t from = r < half ? 2 * r : 2 * (r - half) + 1;
    for (std::int64_t k = 0; k < matrix.head.cols; ++k)
      matrix.panel.codes[static_cast<std::size_t>(r * matrix.head.cols + k)] = interleaved.code(from, k);
    for (std::int64_t g = 0; g < matrix.head.groups; ++g)
      matrix.panel.scales[static_cast<std::size_t>(r * matrix.head.groups + g)] = interleaved.scale(from, g);
    if (!matrix.bias.empty())
      matrix.bias[static_cast<std::size_t>(r)] = interleaved.bias[static_cast<std::size_t>(from)];
  }
  return matrix;
}

// GPTQ words of one expert: [in / 8][out]; scales [groups][out].
LayoutMatrix gptq_matrix(const MatrixHead& head, const Bytes& words, const Bytes& scale_bytes) {
  LayoutMatrix matrix = blank_matrix(head);
  const auto scales = test::scales_of(scale_bytes, head.key.scale);
  for (std::int64_t n = 0; n < head.rows; ++n) {
    for (std::int64_t k = 0; k < head.cols; ++k)
      matrix.panel.codes[static_cast<std::size_t>(n * head.cols + k)] =
          code_at(words, (k / 8 * head.rows + n) * 8 + k % 8, 4);
    for (std::int64_t g = 0; g < head.groups; ++g)
      matrix.panel.scales[static_cast<std::size_t>(n * head.groups + g)] =
          scales[static_cast<std::size_t>(g * head.rows + n)];
  }
  return matrix;
}

TEST(MappedGolden, XpuInt4FromGptq) {
  const GoldenFile file("wna16_xpu_triton");
  for (const std::int64_t expert : {0, 1})
    for (const auto& [name, role, cols, parts] : {std::tuple{"w13", Role::w13, 128, 2}, {"w2", Role::w2, 64, 1}}) {
      const std::string matrix_name = name;
      const LayoutMatrix matrix =
          gptq_matrix(test::head_of(kInt4G32, 128, cols, parts), part_of(file, "gptq." + matrix_name, expert),
                      part_of(file, "gptq." + matrix_name + "_scales", expert));
      const auto pack = packed<kXpuInt4>(matrix, role);
      EXPECT_EQ(bytes_of(pack.weight.bytes()), part_of(file, "xpu." + matrix_name, expert));
      EXPECT_EQ(bytes_of(pack.weight.bytes()), part_of(file, "canonical." + matrix_name, expert));
      EXPECT_EQ(bytes_of(pack.scales.bytes()), part_of(file, "xpu." + matrix_name + "_scales", expert));
    }
}

TEST(MappedGolden, TritonFromCompressedTensorsWithZeroPoints) {
  const GoldenFile file("wna16_xpu_triton");
  QuantKey key = kInt4G32;
  key.symmetric = false;
  for (const std::int64_t expert : {0, 1})
    for (const auto& [name, role, cols, parts] : {std::tuple{"w13", Role::w13, 128, 2}, {"w2", Role::w2, 64, 1}}) {
      const std::string matrix_name = name;
      LayoutMatrix matrix =
          test::row_matrix(test::head_of(key, 128, cols, parts), part_of(file, "canonical." + matrix_name, expert),
                           part_of(file, "xpu." + matrix_name + "_scales", expert));
      // Words run along the outputs: [out / 8][groups].
      const Bytes words = part_of(file, "ct." + matrix_name + "_zero_point", expert);
      const std::int64_t groups = matrix.head.groups;
      matrix.panel.zeros.resize(matrix.panel.scales.size());
      for (std::int64_t n = 0; n < 128; ++n)
        for (std::int64_t g = 0; g < groups; ++g)
          matrix.panel.zeros[static_cast<std::size_t>(n * groups + g)] =
              code_at(words, (n / 8 * groups + g) * 8 + n % 8, 4);
      const auto pack = packed<kTritonWna16>(matrix, role);
      EXPECT_EQ(bytes_of(pack.weight.bytes()), part_of(file, "triton." + matrix_name, expert));
      EXPECT_EQ(bytes_of(std::get<StoredCodes>(pack.zeros).bytes()),
                part_of(file, "triton." + matrix_name + "_qzeros", expert));
    }
}

// Zero points of AWQ and of GPTQ, whose recorded zero points are the true ones.
TEST(MappedGolden, TritonFromAwqAndGptq) {
  const GoldenFile awq("marlin_awq");
  const GoldenFile gptq("gptq_asym");
  struct Case {
    const GoldenFile& file;
    std::string name;
    int group;
    bool wide_zeros;  // i32 instead of u8
  };
  for (const Case& c : {Case{awq, "g32", 32, false}, Case{awq, "g128", 128, false}, Case{gptq, "w4_g32", 32, true}}) {
    SCOPED_TRACE(c.name);
    QuantKey key = kInt4G32;
    key.granularity = Granularity::group(c.group);
    key.symmetric = false;
    LayoutMatrix matrix = test::row_matrix(test::head_of(key, 128, 256), bytes_of(c.file, c.name + ".triton_qweight"),
                                           bytes_of(c.file, c.name + ".triton_scales"));
    if (!c.wide_zeros) {  // [in][out], a code a byte
      const Bytes q = bytes_of(c.file, c.name + ".q");
      for (std::size_t n = 0; n < 128; ++n)
        for (std::size_t k = 0; k < 256; ++k) ASSERT_EQ(matrix.panel.codes[n * 256 + k], q[k * 128 + n]);
    }
    const Bytes zeros = bytes_of(c.file, c.name + ".zp");  // [groups][out]
    const auto groups = static_cast<std::size_t>(matrix.head.groups);
    matrix.panel.zeros.resize(128 * groups);
    for (std::size_t n = 0; n < 128; ++n)
      for (std::size_t g = 0; g < groups; ++g)
        matrix.panel.zeros[n * groups + g] = zeros[(g * 128 + n) * (c.wide_zeros ? 4 : 1)];
    const auto pack = packed<kTritonWna16>(matrix, Role::w2);
    EXPECT_EQ(bytes_of(pack.weight.bytes()), bytes_of(c.file, c.name + ".triton_qweight"));
    EXPECT_EQ(bytes_of(pack.scales.bytes()), bytes_of(c.file, c.name + ".triton_scales"));
    EXPECT_EQ(bytes_of(std::get<StoredCodes>(pack.zeros).bytes()), bytes_of(c.file, c.name + ".triton_qzeros"));
  }
}

TEST(MappedGolden, TrtLlmMxint4) {
  const GoldenFile file("mxint4_trtllm");
  QuantKey key = kInt4G32;
  key.scale = ScaleType::bf16;
  const LayoutMatrix w13 =
      test::row_matrix(test::head_of(key, 512, 256, 2), bytes_of(file, "in.w13"), bytes_of(file, "in.w13_scale"));
  const auto gemm1 = packed<kTrtLlmMxint4>(w13, Role::w13);
  EXPECT_EQ(bytes_of(gemm1.weight.bytes()), bytes_of(file, "out.gemm1_weights"));
  EXPECT_EQ(bytes_of(gemm1.scales.bytes()), bytes_of(file, "out.gemm1_scales"));
  const LayoutMatrix w2 =
      test::row_matrix(test::head_of(key, 256, 256), bytes_of(file, "in.w2"), bytes_of(file, "in.w2_scale"));
  const auto gemm2 = packed<kTrtLlmMxint4>(w2, Role::w2);
  EXPECT_EQ(bytes_of(gemm2.weight.bytes()), bytes_of(file, "out.gemm2_weights"));
  EXPECT_EQ(bytes_of(gemm2.scales.bytes()), bytes_of(file, "out.gemm2_scales"));
}

LayoutMatrix mxfp4_matrix(const GoldenFile& file, const std::string& name, std::int64_t cols, std::int64_t parts) {
  LayoutMatrix matrix = test::row_matrix(test::head_of(kMxfp4, 256, cols, parts), bytes_of(file, "in." + name),
                                         bytes_of(file, "in." + name + "_scale"));
  matrix.bias = file.bf16("in." + name + "_bias");
  return matrix;
}

template <const MappedLayout& Layout>
void expect_mxfp4(const GoldenFile& file, const LayoutMatrix& matrix, Role role, const std::string& name) {
  SCOPED_TRACE(name);
  const auto pack = packed<Layout>(matrix, role);
  EXPECT_EQ(bytes_of(pack.weight.bytes()), bytes_of(file, name));
  EXPECT_EQ(bytes_of(pack.scales.bytes()), bytes_of(file, name + "_scale"));
  const auto bias = std::get<StoredScales>(pack.bias).bytes();
  if (file.at(name + "_bias").bytes.size() == bias.size()) {
    EXPECT_EQ(bytes_of(bias), bytes_of(file, name + "_bias"));
  } else {  // recorded as bf16; biases are held as f32
    std::vector<float> values(bias.size() / 4);
    std::memcpy(values.data(), bias.data(), bias.size());
    EXPECT_EQ(values, file.bf16(name + "_bias"));
  }
}

TEST(MappedGolden, TrtLlmMxfp4FromBothRowOrders) {
  const GoldenFile file("mxfp4_trtllm");
  const LayoutMatrix w13 = mxfp4_matrix(file, "w13", 256, 2);
  expect_mxfp4<kTrtLlmMxfp4>(file, w13, Role::w13, "split_w1w3.trtllm.w13");
  expect_mxfp4<kTrtLlmMxfp4>(file, split_rows(w13), Role::w13, "gptoss_interleaved.trtllm.w13");
}

// 256 rows of w2 are what the layout pads to; its 128 columns as well.
TEST(MappedGolden, TrtLlmMxfp4Down) {
  const GoldenFile file("mxfp4_trtllm");
  const LayoutMatrix w2 = mxfp4_matrix(file, "w2", 128, 1);
  expect_mxfp4<kTrtLlmMxfp4>(file, w2, Role::w2, "split_w1w3.trtllm.w2");
  expect_mxfp4<kTrtLlmMxfp4>(file, w2, Role::w2, "gptoss_interleaved.trtllm.w2");
}

TEST(MappedGolden, FlashInferCutlassMxfp4) {
  const GoldenFile file("mxfp4_trtllm");
  expect_mxfp4<kFlashInferFp4>(file, mxfp4_matrix(file, "w13", 256, 2), Role::w13, "split_w1w3.fi_cutlass_mxfp8.w13");
  expect_mxfp4<kFlashInferFp4>(file, mxfp4_matrix(file, "w2", 128, 1), Role::w2, "split_w1w3.fi_cutlass_mxfp8.w2");
}

// The published tables gather: stored row j is row perm[j].
TEST(MappedGolden, RowPermutationsAgainstTheirTables) {
  const GoldenFile file("mxfp4_trtllm");
  const auto expect_table = [&](const std::string& name, std::span<const RowPermutation> permutations) {
    const auto table = file.values<std::int64_t>("perm." + name);
    for (std::int64_t row = 0; row < 256; ++row) {
      std::int64_t at = row;
      for (const RowPermutation permutation : permutations) at = permutation(256, at);
      EXPECT_EQ(table[static_cast<std::size_t>(at)], row) << name;
    }
  };
  expect_table("a_rows_M256", kTrtLlmPlain);
  constexpr std::array<RowPermutation, 1> kInterleave{interleave_halves<1>};
  expect_table("gated_reorder_M256", kInterleave);
  constexpr std::array<RowPermutation, 2> kChained{interleave_halves<1>, shuffle_32};
  expect_table("w3w1_chained_M256", kChained);
  const Bytes in = bytes_of(file, "interleave.in");
  const Bytes out = bytes_of(file, "interleave.out");
  for (std::int64_t r = 0; r < 256; ++r)
    for (std::int64_t c = 0; c < 8; ++c)
      EXPECT_EQ(out[static_cast<std::size_t>(swizzle_128x4({256, 8}, r, c))], in[static_cast<std::size_t>(r * 8 + c)]);
}

TEST(MappedGolden, ScaleSwizzlePadsRaggedSizes) {
  const GoldenFile file("nvfp4");
  const auto swizzled = [&](const std::string& name, std::int64_t rows, std::int64_t cols, const Grid& stored) {
    const Bytes in = bytes_of(file, name);
    auto scales = StoredScales::zeroed(
        {.part_rows = rows, .padded_part_rows = rows, .permuted_rows = rows, .stored = stored, .map = swizzle_128x4},
        ScaleType::e4m3);
    for (std::int64_t r = 0; r < rows; ++r)
      for (std::int64_t c = 0; c < cols; ++c) scales->put_bits(r, c, in[static_cast<std::size_t>(r * cols + c)]);
    return bytes_of(scales->bytes());
  };
  EXPECT_EQ(swizzled("modelopt.weight_scale", 128, 16, {128, 16}), bytes_of(file, "weight_scale_swizzled"));
  EXPECT_EQ(swizzled("odd.scale", 130, 6, {256, 8}), bytes_of(file, "odd.swizzled"));
}

TEST(MappedGolden, Nvfp4Layouts) {
  const GoldenFile file("nvfp4_moe_layouts");
  const auto matrix = [&](const std::string& name, std::int64_t cols, std::int64_t parts) {
    return test::row_matrix(test::head_of(kNvfp4, 256, cols, parts), bytes_of(file, "in." + name),
                            bytes_of(file, "in." + name + "_scale"));
  };
  const auto expect = [&] < const MappedLayout & Layout > (const std::string& layout, const std::string& weights) {
    SCOPED_TRACE(layout);
    for (const auto& [name, role, cols, parts] : {std::tuple{"w13", Role::w13, 256, 2}, {"w2", Role::w2, 128, 1}}) {
      const std::string matrix_name = name;
      const auto pack = packed<Layout>(matrix(matrix_name, cols, parts), role);
      EXPECT_EQ(bytes_of(pack.weight.bytes()), bytes_of(file, weights + "." + matrix_name));
      EXPECT_EQ(bytes_of(pack.scales.bytes()), bytes_of(file, layout + "." + matrix_name + "_scale"));
    }
  };
  expect.operator()<kTrtLlmNvfp4>("trtllm", "trtllm");
  expect.operator()<kCutlassFp4>("cutlass", "in");
  expect.operator()<kB12xNvfp4>("b12x_a16", "b12x_a16");
}

// Weights unmoved, in two's complement; scales of rank 1 and of rank 2 on disk are the same bytes.
TEST(MappedGolden, Int8FromQuarkAndCompressedTensors) {
  const GoldenFile file("moe_w8a8_int8_channel_token");
  const QuantKey key{.element = Element::int8, .scale = ScaleType::f32, .granularity = Granularity::channel()};
  for (const auto& [name, role, cols, parts] : {std::tuple{"w13", Role::w13, 256, 2}, {"w2", Role::w2, 128, 1}}) {
    const std::string matrix_name = name;
    LayoutMatrix matrix = blank_matrix(test::head_of(key, 256, cols, parts));
    const Bytes weight = part_of(file, matrix_name + ".weight", 3);
    for (std::size_t i = 0; i < weight.size(); ++i)
      matrix.panel.codes[i] = static_cast<std::uint8_t>(weight[i] ^ 0x80U);
    const Bytes quark = part_of(file, matrix_name + ".weight_scale_quark_1d", 3);
    std::memcpy(matrix.panel.scales.data(), quark.data(), quark.size());
    const auto pack = packed<kInt8Rows>(matrix, role);
    EXPECT_EQ(bytes_of(pack.weight.bytes()), weight);
    EXPECT_EQ(bytes_of(pack.scales.bytes()), part_of(file, matrix_name + ".weight_scale_ct", 3));
    EXPECT_EQ(pack.scales.grid(), (Grid{256, 1}));
  }
}

// The published AITER shuffles as they are written: a row-major array seen with more dimensions, the dimensions
// permuted. Returns where element `index` goes.
std::int64_t permuted(std::int64_t index, const std::vector<std::int64_t>& dims,
                      const std::vector<std::size_t>& order) {
  std::vector<std::int64_t> at(dims.size());
  for (std::size_t d = dims.size(); d-- > 0; index /= dims[d]) at[d] = index % dims[d];
  std::int64_t to = 0;
  for (const std::size_t d : order) to = to * dims[d] + at[d];
  return to;
}

TEST(MappedGolden, AiterPlacesAreThePublishedShuffles) {
  constexpr std::int64_t kRows = 96;
  constexpr std::int64_t kCols = 256;
  for (std::int64_t row = 0; row < kRows; ++row)
    for (std::int64_t col = 0; col < kCols; ++col) {
      const std::int64_t index = row * kCols + col;
      // shuffle_weight with layout (16, 16) of bytes: view(-1, n / 16, 16, k / 32, 2, 16), permute(0, 1, 3, 4, 2, 5).
      EXPECT_EQ((tiles_of_16_rows<16>({kRows, kCols}, row, col)),
                permuted(index, {kRows / 16, 16, kCols / 32, 2, 16}, {0, 2, 3, 1, 4}));
      // shuffle_scale: view(m / 32, 2, 16, n / 8, 2, 4), permute(0, 3, 5, 2, 4, 1).
      EXPECT_EQ(tiles_32x8({kRows, kCols}, row, col),
                permuted(index, {kRows / 32, 2, 16, kCols / 8, 2, 4}, {0, 3, 5, 2, 4, 1}));
      // shuffle_weight_a16w4(16, gate_up): view(E, 2, n / 16, 16, k / 64, 4, 16), permute(0, 2, 1, 4, 5, 3, 6).
      const std::int64_t block = interleave_halves<16>(kRows, row);
      EXPECT_EQ((tiles_of_16_rows<16>({kRows, kCols}, block, col)),
                permuted(index, {2, kRows / 32, 16, kCols / 64, 4, 16}, {1, 0, 3, 4, 2, 5}));
      // shuffle_scale_a16w4(gate_up): view(E, 2, n / 32, 16, k / 8, 2, 4), permute(0, 2, 4, 6, 3, 5, 1).
      EXPECT_EQ(tiles_32x8({kRows, kCols}, block, col),
                permuted(index, {2, kRows / 32, 16, kCols / 8, 2, 4}, {1, 3, 5, 2, 4, 0}));
    }
  // Nibbles: 16 bytes are 32 of them.
  for (std::int64_t byte = 0; byte < 16 * kCols; ++byte)
    EXPECT_EQ((tiles_of_16_rows<32>({16, 2 * kCols}, byte / kCols, byte % kCols * 2)),
              (2 * tiles_of_16_rows<16>({16, kCols}, byte / kCols, byte % kCols)));
}

}  // namespace
}  // namespace moracle
