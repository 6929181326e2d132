#include "format/decode/code_matrix.h"

#include <fmt/format.h>

#include <bit>
#include <cmath>

#include "base/checked.h"
#include "format/faults.h"
#include "format/rules/tensor_check.h"
#include "scheme/codes.h"

namespace moracle {
namespace {

// Bytes that hold the codes of one row.
std::int64_t row_bytes(CodeForm form, std::int64_t cols) {
  if (form == CodeForm::nibbles) return ceil_div(cols, 2);
  return form == CodeForm::six_bits ? ceil_div(cols * 6, 8) : cols;
}

void spread(CodeForm form, std::uint8_t offset, const std::uint8_t* from, std::int64_t cols, std::uint8_t* to) {
  switch (form) {
    case CodeForm::bytes:
      std::memcpy(to, from, narrow<std::size_t>(cols));
      return;
    case CodeForm::signed_bytes:
      for (std::int64_t k = 0; k < cols; ++k) to[k] = static_cast<std::uint8_t>(from[k] + offset);
      return;
    case CodeForm::nibbles:
      for (std::int64_t i = 0; i < cols / 2; ++i) {
        const std::uint8_t pair = from[i];
        to[2 * i] = pair & 15U;
        to[2 * i + 1] = pair >> 4;
      }
      if (cols % 2 != 0) to[cols - 1] = from[cols / 2] & 15U;
      return;
    case CodeForm::six_bits:
      for (std::int64_t k = 0; k < cols; ++k) {
        const std::int64_t bit = k * 6;
        unsigned pair = from[bit / 8];
        if (bit % 8 > 2) pair |= static_cast<unsigned>(from[bit / 8 + 1]) << 8;
        to[k] = static_cast<std::uint8_t>(pair >> (bit % 8) & 63U);
      }
      return;
  }
}

class CodeSource final : public MatrixSource {
 public:
  CodeSource(MatrixSpec spec, CodeMatrix matrix, std::shared_ptr<const Checkpoint> checkpoint,
             std::shared_ptr<ValueNotes> notes)
      : MatrixSource(std::move(spec)),
        matrix_(std::move(matrix)),
        checkpoint_(std::move(checkpoint)),
        notes_(std::move(notes)),
        neutral_(static_cast<std::uint8_t>(1U << (bits_of(spec_.key.element) - 1))) {}

  Result<> read(std::int64_t begin, std::int64_t end, MatrixPanel& out) const override {
    MORACLE_TRY(prepare(begin, end, out));
    out.codes.resize(narrow<std::size_t>(out.rows * spec_.cols));
    read_codes(begin, out);
    MORACLE_TRY(check_codes(begin, out));
    return decode_usual_scales(begin, out) ? Result<>(Ok{}) : inspect_scales(begin, out);
  }

  Result<> read_scales(std::int64_t begin, std::int64_t end, MatrixPanel& out) const override {
    MORACLE_TRY(prepare(begin, end, out));
    out.codes.clear();
    return decode_usual_scales(begin, out) ? Result<>(Ok{}) : MatrixSource::read_scales(begin, end, out);
  }

  std::optional<RawCodes> raw_codes() const override {
    const RowGrid& grid = matrix_.codes;
    const int bits = matrix_.form == CodeForm::nibbles ? 4 : 8;
    if (matrix_.form == CodeForm::six_bits || bits != bits_of(spec_.key.element) || grid.transposed ||
        spec_.cols * bits % 32 != 0) {
      return std::nullopt;
    }
    const std::int64_t width = row_bytes(matrix_.form, spec_.cols);
    return RawCodes{.first = grid.tensor.bytes.data() + grid.row_begin * width,
                    .row_bytes = grid.row_stride * width,
                    .bits = bits,
                    .flip = matrix_.form == CodeForm::signed_bytes ? neutral_ : std::uint8_t{0},
                    .tensor = grid.tensor.bytes};
  }

  std::optional<RawScales> raw_scales() const override {
    const RowGrid& grid = matrix_.scales;
    const std::optional<ScaleType> type = stored_type();
    const bool faulty =
        fault(Fault::one_scale_for_all) || fault(Fault::channel_scales_along_input) || fault(Fault::scales_ignored);
    if (matrix_.scale_rows != 1 || !matrix_.zeros.empty() || !type || faulty) return std::nullopt;
    const std::int64_t width = bits_of(grid.tensor.dtype) / 8;
    const std::int64_t row = grid.transposed ? width : spec_.groups * width;
    return RawScales{.first = grid.tensor.bytes.data() + grid.row_begin * row,
                     .row_bytes = grid.row_stride * row,
                     .group_bytes = grid.transposed ? grid.total_rows * width : width,
                     .type = *type,
                     .tensor = grid.tensor.bytes};
  }

  void fetch(std::span<const std::byte> words, std::byte* to) const override { checkpoint_->copy(words, to); }

  void release() const override {
    checkpoint_->release(matrix_.codes.tensor.bytes);
    checkpoint_->release(matrix_.scales.tensor.bytes);
  }

  void list_stored(std::vector<std::span<const std::byte>>& parts) const override {
    parts.push_back(matrix_.codes.tensor.bytes);
    parts.push_back(matrix_.scales.tensor.bytes);
  }

  std::shared_ptr<const MatrixSource> relocated(const MoveBytes& moved) const override {
    auto copy = std::make_shared<CodeSource>(*this);
    for (TensorView* tensor : {&copy->matrix_.codes.tensor, &copy->matrix_.scales.tensor})
      tensor->bytes = moved(tensor->bytes);
    return copy;
  }

 private:
  // Everything but codes and scales.
  Result<> prepare(std::int64_t begin, std::int64_t end, MatrixPanel& out) const {
    if (begin < 0 || begin > end || end > spec_.rows)
      return tensor_error("panel.range", matrix_.codes.tensor, fmt::format("rows within [0, {})", spec_.rows),
                          fmt::format("[{}, {})", begin, end));
    out.rows = end - begin;
    out.values.clear();
    out.scales.resize(narrow<std::size_t>(out.rows * spec_.groups));
    out.zeros.clear();
    if (matrix_.zeros.empty()) return Ok{};
    const auto first = matrix_.zeros.begin() + narrow<std::ptrdiff_t>(begin * spec_.groups);
    out.zeros.assign(first, first + narrow<std::ptrdiff_t>(out.rows * spec_.groups));
    return Ok{};
  }

  void read_codes(std::int64_t begin, MatrixPanel& out) const {
    const RowGrid& grid = matrix_.codes;
    const auto* bytes = reinterpret_cast<const std::uint8_t*>(grid.tensor.bytes.data());
    const std::int64_t width = row_bytes(matrix_.form, spec_.cols);
    std::vector<std::uint8_t> gathered(grid.transposed ? narrow<std::size_t>(width) : 0);
    for (std::int64_t r = 0; r < out.rows; ++r) {
      const std::int64_t row = grid.stored_row(begin + r);
      const std::uint8_t* from = bytes + row * width;
      if (grid.transposed) {
        for (std::int64_t i = 0; i < width; ++i) gathered[narrow<std::size_t>(i)] = bytes[i * grid.total_rows + row];
        from = gathered.data();
      }
      spread(matrix_.form, neutral_, from, spec_.cols, out.codes.data() + r * spec_.cols);
    }
  }

  // E4M3 has a code for NaN, and int4 held in bytes has room for codes that are none.
  Result<> check_codes(std::int64_t begin, const MatrixPanel& out) const {
    const bool e4m3 = spec_.key.element == Element::e4m3;
    const bool int4 = spec_.key.element == Element::int4;
    if (!e4m3 && !int4) return Ok{};
    const auto wrong = [e4m3](std::uint8_t code) { return e4m3 ? (code & 0x7FU) == 0x7FU : code > 15U; };
    unsigned bad = 0;
    for (const std::uint8_t code : out.codes) bad |= static_cast<unsigned>(wrong(code));
    if (bad == 0) return Ok{};
    for (std::size_t i = 0; i < out.codes.size(); ++i) {
      if (!wrong(out.codes[i])) continue;
      const std::int64_t row = begin + narrow<std::int64_t>(i) / spec_.cols;
      const std::int64_t column = narrow<std::int64_t>(i) % spec_.cols;
      const std::string where = fmt::format("row {}, column {} of {}", row, column, spec_.name);
      if (e4m3) return tensor_error("value.nan", matrix_.codes.tensor, "a finite number at " + where, "NaN");
      return tensor_error("value.range", matrix_.codes.tensor, "an integer from -8 to 7 at " + where,
                          std::to_string(static_cast<int>(static_cast<std::int8_t>(out.codes[i] - neutral_))));
    }
    return Ok{};
  }

  [[nodiscard]] std::int64_t scale_index(std::int64_t row, std::int64_t group) const {
    if (matrix_.scale_rows == 0 || fault(Fault::one_scale_for_all)) return 0;
    if (fault(Fault::channel_scales_along_input) && spec_.key.granularity.kind == Granularity::Kind::channel)
      return group % matrix_.scales.total_rows;
    const RowGrid& grid = matrix_.scales;
    const std::int64_t stored = grid.stored_row(row) / matrix_.scale_rows;
    return grid.transposed ? group * ceil_div(grid.total_rows, matrix_.scale_rows) + stored
                           : stored * spec_.groups + group;
  }

  [[nodiscard]] float scale_at(std::int64_t index) const {
    if (fault(Fault::scales_ignored)) return 1.0F;
    const std::byte* at = matrix_.scales.tensor.bytes.data() + index * (bits_of(matrix_.scales.tensor.dtype) / 8);
    switch (matrix_.scales.tensor.dtype) {
      case Dtype::f32:
        return load<float>(at);
      case Dtype::bf16:
        return decode_bf16(load<std::uint16_t>(at));
      case Dtype::f16:
        return decode_f16(load<std::uint16_t>(at));
      default:
        return spec_.key.scale == ScaleType::e4m3 ? decode_e4m3(load<std::uint8_t>(at))
                                                  : decode_e8m0(load<std::uint8_t>(at));
    }
  }

  // Nothing where a number of another type stands for the scheme's.
  [[nodiscard]] std::optional<ScaleType> stored_type() const {
    const Dtype dtype = matrix_.scales.tensor.dtype;
    const bool bytes = spec_.key.scale == ScaleType::e8m0 || spec_.key.scale == ScaleType::e4m3;
    if (bytes) return is_float(dtype) ? std::nullopt : std::optional(spec_.key.scale);
    if (dtype == Dtype::f32) return ScaleType::f32;
    if (dtype == Dtype::bf16) return ScaleType::bf16;
    return dtype == Dtype::f16 ? std::optional(ScaleType::f16) : std::nullopt;
  }

  // All scales of the panel. False when one of them is zero, as good as that, infinite or NaN.
  template <class T, class Decode>
  bool decode_scales(std::int64_t begin, MatrixPanel& out, Decode decode) const {
    constexpr std::uint32_t kNothing = 0x00400000U;  // 2^-127
    std::uint32_t unusual = 0;
    const auto decode_row = [&](const std::byte* at, std::int64_t stride, float* to) {
      for (std::int64_t g = 0; g < spec_.groups; ++g) {
        const float scale = fault(Fault::scales_ignored) ? 1.0F : decode(load<T>(at + g * stride));
        const std::uint32_t magnitude = std::bit_cast<std::uint32_t>(scale) & 0x7FFFFFFFU;
        unusual |= static_cast<std::uint32_t>(magnitude - 1U >= 0x7F7FFFFFU) |
                   static_cast<std::uint32_t>(magnitude == kNothing);
        to[g] = scale;
      }
    };
    constexpr auto kWidth = static_cast<std::int64_t>(sizeof(T));
    for (std::int64_t r = 0; r < out.rows; ++r) {
      const std::int64_t first = scale_index(begin + r, 0);
      const std::int64_t stride = scale_index(begin + r, 1) - first;  // of one group: not used
      const std::byte* at = matrix_.scales.tensor.bytes.data() + first * kWidth;
      float* to = out.scales.data() + r * spec_.groups;
      // The contiguous case is a call of its own: a constant stride is what vectorizes.
      stride == 1 ? decode_row(at, kWidth, to) : decode_row(at, stride * kWidth, to);
    }
    return unusual == 0;
  }

  [[nodiscard]] bool decode_usual_scales(std::int64_t begin, MatrixPanel& out) const {
    const Dtype dtype = matrix_.scales.tensor.dtype;
    if (spec_.key.scale == ScaleType::e8m0) {
      return !is_float(dtype) && decode_scales<std::uint8_t>(begin, out, decode_e8m0);
    }
    if (dtype == Dtype::f32) return decode_scales<float>(begin, out, [](float scale) { return scale; });
    if (dtype == Dtype::bf16) return decode_scales<std::uint16_t>(begin, out, decode_bf16);
    if (dtype == Dtype::f16) return decode_scales<std::uint16_t>(begin, out, decode_f16);
    return spec_.key.scale == ScaleType::e4m3 && decode_scales<std::uint8_t>(begin, out, decode_e4m3);
  }

  // The rare path: a scale that needs a closer look.
  Result<> inspect_scales(std::int64_t begin, MatrixPanel& out) const {
    bool zero = false;
    for (std::int64_t r = 0; r < out.rows; ++r)
      for (std::int64_t g = 0; g < spec_.groups; ++g) {
        const std::int64_t index = scale_index(begin + r, g);
        const float scale = scale_at(index);
        if (!std::isfinite(scale)) return value_error(matrix_.scales.tensor, matrix_.scales.origin + index, scale);
        // Scale types that a config may promise and a float tensor holds all the same.
        if (spec_.key.scale == ScaleType::e8m0 && decode_e8m0(encode_e8m0(scale)) != scale)
          return tensor_error("value.range", matrix_.scales.tensor, fmt::format("a power of two at element {}", index),
                              fmt::format("{}", scale));
        zero = zero || is_nothing(scale);
        out.scales[narrow<std::size_t>(r * spec_.groups + g)] = scale;
      }
    return zero ? inspect_zeros(out) : Result<>(Ok{});
  }

  // Zero, or what the tools write for blocks of zeros: exponent byte 0, 2^-127.
  [[nodiscard]] bool is_nothing(float scale) const {
    return scale == 0.0F || (spec_.key.scale == ScaleType::e8m0 && scale == 0x1p-127F);
  }

  Result<> inspect_zeros(const MatrixPanel& out) const {
    bool lost = false;
    for (std::int64_t r = 0; r < out.rows; ++r)
      for (std::int64_t g = 0; g < spec_.groups; ++g) {
        const auto at = narrow<std::size_t>(r * spec_.groups + g);
        if (!is_nothing(out.scales[at]) || !has_codes(r, g, out)) continue;
        notes_->zero_scales.fetch_add(1, std::memory_order_relaxed);
        lost = true;
      }
    // The tools write exponent byte 0 for blocks of zeros, so that a dead matrix is nothing else.
    if (spec_.key.scale == ScaleType::e8m0 && !lost) return Ok{};
    const std::int64_t count =
        narrow<std::int64_t>(matrix_.scales.tensor.bytes.size()) / (bits_of(matrix_.scales.tensor.dtype) / 8);
    for (std::int64_t i = 0; i < count; ++i)
      if (!is_nothing(scale_at(i))) return Ok{};
    return tensor_error("value.zero_scales", matrix_.scales.tensor, "scales that are not all zero",
                        "nothing but zeros: the tensor was never written");
  }

  // Whether group g of panel row r holds a code other than those that mean zero.
  [[nodiscard]] bool has_codes(std::int64_t r, std::int64_t g, const MatrixPanel& out) const {
    const bool integer = spec_.key.element == Element::int8 || spec_.key.element == Element::int4;
    const auto at = narrow<std::size_t>(r * spec_.groups + g);
    const std::uint8_t zero = !integer ? 0 : out.zeros.empty() ? neutral_ : out.zeros[at];
    const std::uint8_t* codes = out.codes.data() + r * spec_.cols;
    for (std::int64_t k = g * spec_.group_cols; k < std::min(spec_.cols, (g + 1) * spec_.group_cols); ++k)
      if (codes[k] != zero && (integer || codes[k] != neutral_)) return true;  // of floats, the sign bit alone is -0
    return false;
  }

  CodeMatrix matrix_;
  std::shared_ptr<const Checkpoint> checkpoint_;
  std::shared_ptr<ValueNotes> notes_;
  std::uint8_t neutral_;  // code of zero of a symmetric integer; sign bit of a float
};

}  // namespace

std::shared_ptr<const MatrixSource> make_code_matrix(MatrixSpec spec, CodeMatrix matrix,
                                                     std::shared_ptr<const Checkpoint> checkpoint,
                                                     std::shared_ptr<ValueNotes> notes) {
  return std::make_shared<CodeSource>(std::move(spec), std::move(matrix), std::move(checkpoint), std::move(notes));
}

}  // namespace moracle
