// The one description of quantized weights that every publisher's format decodes into and every kernel packs from.
//
// It is lazy: a MatrixSource is a cursor on the mapped checkpoint. A packer reads panels of rows, so that a load holds
// the packed copy and a few panels of scratch, never a second copy of the model.
#pragma once

#include <cstdint>
#include <cstring>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/generic/function_ref.h"
#include "base/result.h"
#include "scheme/quant_key.h"

namespace moracle {

// Rows [begin, end) of one weight matrix [out, in] in canonical form. The vectors are reused from panel to panel.
//
// Quantized elements: value(r, k) = decode(codes[r, k], zero(r, g)) * scales[r, g] * global_scale, with g = g_idx[k]
// where the matrix has a group index, else k / group_cols. Integer codes are offset-binary: decode = code - zero, zero
// = zeros[r, g] or 2^(bits-1) when symmetric. Float codes decode by their element type.
// Unquantized elements: value(r, k) = values[r, k].
struct MatrixPanel {
  std::int64_t rows = 0;
  std::vector<std::uint8_t> codes;  // [rows, cols], one code a byte; empty when unquantized
  std::vector<float> scales;        // [rows, groups], finite; whatever the granularity, expanded over rows
  std::vector<std::uint8_t> zeros;  // [rows, groups]; empty when symmetric
  std::vector<float> values;        // [rows, cols] when unquantized, else empty
};

// One row of the same, wherever it lies.
struct MatrixRow {
  const std::uint8_t* codes = nullptr;
  const float* scales = nullptr;
  const std::uint8_t* zeros = nullptr;  // null: symmetric
  const float* values = nullptr;        // null: quantized
};

// What is constant over one matrix.
struct MatrixSpec {
  std::string name;       // module path on disk, for messages
  std::int64_t rows = 0;  // out
  std::int64_t cols = 0;  // in
  QuantKey key{};
  std::int64_t group_cols = 0;  // columns that share a scale; cols for channel and tensor granularity; 0 unquantized
  std::int64_t groups = 0;      // ceil(cols / group_cols); 0 unquantized
  float global_scale = 1.0F;    // second level, multiplies; 1 where the scheme has none
  // Act-order: group of each input column, [cols]; empty when columns are in group order. Each group owns exactly
  // group_cols columns (the last may own fewer).
  std::vector<std::int32_t> g_idx{};
};

// Codes or values where they lie in the file, of a matrix whose rows are there in whole 32-bit words; to be fetched
// with MatrixSource::fetch. Nothing of them has been checked: a packer that takes them and meets a NaN or an infinity
// reads the rows, which says where it is.
struct RawCodes {
  const std::byte* first = nullptr;  // word of row 0; of no alignment; lives as long as the source
  std::int64_t row_bytes = 0;        // from row to row
  std::int64_t word_bytes = 4;       // from a row's word to its next
  int bits = 0;                      // of an element: 4, 8, 16 or 32; a word's lowest bits are its first column
  std::uint8_t flip = 0;             // bits of a byte in which stored codes differ from canonical ones
  // What may be fetched along with them, of the same tensor: between rows there may be those of another matrix.
  std::span<const std::byte> tensor{};
  [[nodiscard]] bool by_rows() const { return word_bytes == 4; }  // else words of neighbouring rows lie side by side
};

// Scales where they lie in the file, of a matrix that has one for each row and group; to be fetched and unchecked as
// RawCodes are, and where one is zero, rows are to be read as well, since that may be wrong. Either scales of a row
// or those of a group lie side by side.
struct RawScales {
  const std::byte* first = nullptr;  // of row 0 and group 0; of no alignment
  std::int64_t row_bytes = 0;        // from row to row
  std::int64_t group_bytes = 0;      // from group to group
  ScaleType type = ScaleType::none;
  std::span<const std::byte> tensor{};  // as of RawCodes
};

// Every E2M3 and E3M2 number is one of E4M3: its code there, by the 64 codes of such an element. Null: another element.
[[nodiscard]] const std::uint8_t* codes_as_e4m3(Element element);

// Act-order as kernels store it: the input column at each packed position, groups in order and the columns of a group
// in theirs. Empty: columns in order.
[[nodiscard]] std::vector<std::int32_t> columns_by_group(std::span<const std::int32_t> g_idx);

// Where the copy of some stored bytes lies.
using MoveBytes = FunctionRef<std::span<const std::byte>(std::span<const std::byte>)>;

class MatrixSource {
 public:
  virtual ~MatrixSource() = default;
  [[nodiscard]] const MatrixSpec& spec() const { return spec_; }
  // Decodes rows [begin, end) into `out`. Thread-safe. Errors: "value.nan" and its like, naming tensor and index.
  [[nodiscard]] virtual Result<> read(std::int64_t begin, std::int64_t end, MatrixPanel& out) const = 0;
  // The same of scales and zero points alone: codes and values come out empty.
  [[nodiscard]] virtual Result<> read_scales(std::int64_t begin, std::int64_t end, MatrixPanel& out) const;
  // What read() decodes, as it lies in the file; nothing where it lies otherwise. With a group index, columns come in
  // the order of the file.
  [[nodiscard]] virtual std::optional<RawCodes> raw_codes() const { return std::nullopt; }
  // What read() decodes to scales, as it lies in the file; nothing where it lies otherwise, or has zero points beside
  // it.
  [[nodiscard]] virtual std::optional<RawScales> raw_scales() const { return std::nullopt; }
  // What read() checks beside codes and scales: zero points that a symmetric scheme stores all the same.
  [[nodiscard]] virtual Result<> check_zeros(std::int64_t, std::int64_t) const { return Ok{}; }
  // Copies `words`, bytes that raw_codes() or raw_scales() tell of, to memory.
  virtual void fetch(std::span<const std::byte> words, std::byte* to) const {
    std::memcpy(to, words.data(), words.size());
  }
  // Tells the system that this matrix has been packed and its file pages may go.
  virtual void release() const {}
  // Adds the bytes of the checkpoint that it reads to `parts`; a matrix that reads none adds none.
  virtual void list_stored(std::vector<std::span<const std::byte>>& /*parts*/) const {}
  // The same matrix as a reader of copies: `moved` gives the copy of each of those. Null where it reads no checkpoint.
  [[nodiscard]] virtual std::shared_ptr<const MatrixSource> relocated(const MoveBytes& /*moved*/) const {
    return nullptr;
  }

 protected:
  explicit MatrixSource(MatrixSpec spec) : spec_(std::move(spec)) {}
  MatrixSpec spec_;
};

// One weight with what belongs to it.
struct CanonicalLinear {
  std::shared_ptr<const MatrixSource> weight;
  std::vector<float> bias{};             // [out] or empty
  std::optional<QuantKey> activation{};  // activation quantization that the scheme asks for
  // Of a static activation key: the scale, as stored and widened to f32, which multiplies on dequantization. Each
  // projection has its own: gate and up, and the experts, may differ. Of a key with a second level (NVFP4): the f32
  // multiplier G under which block scales are computed, 448 * 6 / amax of the calibration data; that is a stored
  // input_global_scale (compressed-tensors), or 1 / a stored input_scale (ModelOpt) or input_scale_2 (Quark).
  // Empty for other dynamic keys.
  std::optional<float> input_scale{};

  [[nodiscard]] Scheme scheme() const { return {weight->spec().key, activation}; }
};

// Pointers to an expert's matrices, one behind the other: ungated ones have no up.
template <class Expert>
[[nodiscard]] auto matrices_of(Expert& expert) {
  std::vector linears{&expert.gate};
  if (expert.gated()) linears.push_back(&expert.up);
  linears.push_back(&expert.down);
  return linears;
}

// The routed experts of one layer. Logical w13 is gate over up, [2 * intermediate, hidden]; gate and up are kept apart
// because they may differ in scales, global scale and group index. Interleaved rows on disk arrive here split.
struct CanonicalExperts {
  struct Expert {
    CanonicalLinear gate;  // [intermediate, hidden]; of an ungated expert all of w1
    CanonicalLinear up;    // [intermediate, hidden]; without a weight where the expert is ungated
    CanonicalLinear down;  // [hidden, intermediate]

    [[nodiscard]] bool gated() const { return up.weight != nullptr; }
  };
  std::string name;  // "model.layers.3.mlp.experts"
  std::int64_t hidden = 0;
  std::int64_t intermediate = 0;
  Scheme scheme{};  // the same for every expert
  bool zero_points = false;
  bool act_order = false;
  bool bias = false;
  bool interleaved =
      false;  // gate and up rows took turns on disk: rows that shared a scale there are no longer together
  std::vector<Expert> experts;
};

// Whether up has a group index other than gate's in some expert.
[[nodiscard]] bool has_own_up_order(const CanonicalExperts& experts);

// Reads a whole matrix as f32 [rows, cols], all scales applied. For references and tests.
Result<std::vector<float>> dequantize(const MatrixSource& source);

// Dequantizes one panel of `spec` into `out` [panel.rows, cols].
void dequantize_panel(const MatrixSpec& spec, const MatrixPanel& panel, std::span<float> out);

// The same for one row, into `out` [cols].
void dequantize_row(const MatrixSpec& spec, const MatrixRow& row, std::span<float> out);
void dequantize_row(const MatrixSpec& spec, const MatrixPanel& panel, std::int64_t row, std::span<float> out);

}  // namespace moracle
