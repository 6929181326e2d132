#include "format/decode/packed_int.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <cmath>

#include "base/checked.h"
#include "format/decode/unpack.h"
#include "format/faults.h"
#include "format/rules/tensor_check.h"
#include "scheme/codes.h"

namespace moracle {
namespace {

class PackedIntSource final : public MatrixSource {
 public:
  PackedIntSource(MatrixSpec spec, const PackedIntLayout& layout, const PackedIntTensors& tensors,
                  std::shared_ptr<const Checkpoint> checkpoint, std::shared_ptr<ValueNotes> notes)
      : MatrixSource(std::move(spec)),
        layout_(layout),
        codes_(*tensors.codes),
        scales_(*tensors.scales),
        checkpoint_(std::move(checkpoint)),
        notes_(std::move(notes)),
        bits_(bits_of(spec_.key.element)),
        word_shift_(bits_ == 4 ? 3 : 2) {
    if (tensors.zeros != nullptr) zeros_ = *tensors.zeros;
  }

  Result<> read(std::int64_t begin, std::int64_t end, MatrixPanel& out) const override {
    MORACLE_TRY(check_range(begin, end));
    out.rows = end - begin;
    out.values.clear();
    out.codes.resize(narrow<std::size_t>(out.rows * spec_.cols));
    read_codes(begin, out);
    if (layout_.twos_complement)
      for (std::uint8_t& code : out.codes) code ^= sign_bit();
    MORACLE_TRY(read_zeros(begin, out));
    return read_usual_scales(begin, out) ? Result<>(Ok{}) : inspect_scales(begin, out);
  }

  Result<> read_scales(std::int64_t begin, std::int64_t end, MatrixPanel& out) const override {
    MORACLE_TRY(check_range(begin, end));
    out.rows = end - begin;
    out.values.clear();
    out.codes.clear();
    MORACLE_TRY(read_zeros(begin, out));
    return read_usual_scales(begin, out) ? Result<>(Ok{}) : MatrixSource::read_scales(begin, end, out);
  }

  std::optional<RawCodes> raw_codes() const override {
    const std::int64_t per_word = 32 / bits_;
    const auto sign = static_cast<std::uint8_t>(bits_ == 4 ? 0x88 : 0x80);
    RawCodes words{.first = codes_.bytes.data(), .bits = bits_, .tensor = codes_.bytes};
    if (layout_.twos_complement) words.flip = sign;
    if (layout_.codes == PackedIntLayout::Codes::words_along_in_by_in) {
      words.row_bytes = 4;
      words.word_bytes = 4 * spec_.rows;
      return words;
    }
    if (layout_.codes == PackedIntLayout::Codes::words_along_out_by_in || spec_.cols % per_word != 0 ||
        nibble_of_column_ != kInOrder) {
      return std::nullopt;
    }
    words.row_bytes = spec_.cols / per_word * 4;
    return words;
  }

  std::optional<RawScales> raw_scales() const override {
    if (!spec_.key.symmetric || fault(Fault::one_scale_for_all) || fault(Fault::scales_ignored)) return std::nullopt;
    RawScales scales{.first = scales_.bytes.data(), .type = ScaleType::f16, .tensor = scales_.bytes};
    if (scales_.dtype == Dtype::f32) scales.type = ScaleType::f32;
    if (scales_.dtype == Dtype::bf16) scales.type = ScaleType::bf16;
    const std::int64_t width = bits_of(scales_.dtype) / 8;
    scales.row_bytes = layout_.scales_by_out ? spec_.groups * width : width;
    scales.group_bytes = layout_.scales_by_out ? width : spec_.rows * width;
    return scales;
  }

  Result<> check_zeros(std::int64_t begin, std::int64_t end) const override {
    MORACLE_TRY(check_range(begin, end));
    const bool stored = spec_.key.symmetric && layout_.zeros != PackedIntLayout::Zeros::none;
    return stored ? check_neutral(begin, end - begin) : Result<>(Ok{});
  }

  void fetch(std::span<const std::byte> words, std::byte* to) const override { checkpoint_->copy(words, to); }

  void release() const override {
    checkpoint_->release(codes_.bytes);
    checkpoint_->release(scales_.bytes);
    checkpoint_->release(zeros_.bytes);
  }

  void list_stored(std::vector<std::span<const std::byte>>& parts) const override {
    for (const TensorView* tensor : {&codes_, &scales_, &zeros_}) parts.push_back(tensor->bytes);
  }

  std::shared_ptr<const MatrixSource> relocated(const MoveBytes& moved) const override {
    auto copy = std::make_shared<PackedIntSource>(*this);
    for (TensorView* tensor : {&copy->codes_, &copy->scales_, &copy->zeros_}) tensor->bytes = moved(tensor->bytes);
    return copy;
  }

 private:
  Result<> check_range(std::int64_t begin, std::int64_t end) const {
    if (begin >= 0 && begin <= end && end <= spec_.rows) return Ok{};
    return tensor_error("panel.range", codes_, fmt::format("rows within [0, {})", spec_.rows),
                        fmt::format("[{}, {})", begin, end));
  }

  void read_codes(std::int64_t begin, MatrixPanel& out) const {
    const UnpackPanel panel{.words = codes_.bytes.data(),
                            .row_begin = begin,
                            .rows = out.rows,
                            .total_rows = spec_.rows,
                            .cols = spec_.cols,
                            .bits = bits_,
                            .out = out.codes.data()};
    switch (layout_.codes) {
      case PackedIntLayout::Codes::words_along_in_by_in:
        return unpack_words_along_in_by_in(panel);
      case PackedIntLayout::Codes::words_along_out_by_in:
        return unpack_words_along_out_by_in(panel, layout_.column_of_nibble);
      case PackedIntLayout::Codes::words_along_in_by_out:
        unpack_words_along_in_by_out(panel);
        if (nibble_of_column_ != kInOrder) reorder_codes(out.codes);
        return;
    }
  }

  // Rows are whole words of 8 codes, which the caller has checked.
  void reorder_codes(std::vector<std::uint8_t>& codes) const {
    for (std::size_t word = 0; word + 8 <= codes.size(); word += 8) {
      std::array<std::uint8_t, 8> stored{};
      std::copy_n(codes.begin() + narrow<std::ptrdiff_t>(word), 8, stored.begin());
      for (std::size_t column = 0; column < 8; ++column) codes[word + column] = stored[nibble_of_column_[column]];
    }
  }

  [[nodiscard]] std::int64_t scale_index(std::int64_t row, std::int64_t group) const {
    if (fault(Fault::one_scale_for_all)) return 0;
    return layout_.scales_by_out ? row * spec_.groups + group : group * spec_.rows + row;
  }

  // All scales of the panel. False when one of them is zero, infinite or NaN.
  template <class Decode>
  bool decode_scales(std::int64_t begin, std::size_t width, MatrixPanel& out, Decode decode) const {
    out.scales.resize(narrow<std::size_t>(out.rows * spec_.groups));
    if (out.rows == 0) return true;
    unsigned suspicious = 0;
    const std::int64_t groups = spec_.groups;
    const auto stride = narrow<std::int64_t>(width) * (scale_index(1, 0) - scale_index(0, 0));
    // Group by group: the tensor is read along its rows whichever way it lies.
    for (std::int64_t g = 0; g < groups; ++g) {
      const std::byte* at = scales_.bytes.data() + narrow<std::size_t>(scale_index(begin, g)) * width;
      float* to = out.scales.data() + g;
      for (std::int64_t r = 0; r < out.rows; ++r, at += stride, to += groups) {
        const float scale = fault(Fault::scales_ignored) ? 1.0F : decode(at);
        *to = scale;
        const std::uint32_t magnitude = std::bit_cast<std::uint32_t>(scale) & 0x7FFFFFFFU;
        suspicious |= static_cast<unsigned>(magnitude - 1U >= 0x7F7FFFFFU);
      }
    }
    return suspicious == 0;
  }

  [[nodiscard]] bool read_usual_scales(std::int64_t begin, MatrixPanel& out) const {
    switch (scales_.dtype) {
      case Dtype::f32:
        return decode_scales(begin, 4, out, [](const std::byte* at) { return load<float>(at); });
      case Dtype::bf16:
        return decode_scales(begin, 2, out, [](const std::byte* at) { return decode_bf16(load<std::uint16_t>(at)); });
      default:
        return decode_scales(begin, 2, out, [](const std::byte* at) { return decode_f16(load<std::uint16_t>(at)); });
    }
  }

  // The rare path: something is NaN, infinite or zero.
  Result<> inspect_scales(std::int64_t begin, const MatrixPanel& out) const {
    for (std::int64_t r = 0; r < out.rows; ++r)
      for (std::int64_t g = 0; g < spec_.groups; ++g) {
        const float scale = out.scales[narrow<std::size_t>(r * spec_.groups + g)];
        if (!std::isfinite(scale)) return value_error(scales_, scale_index(begin + r, g), scale);
        if (scale == 0.0F && has_codes(r, g, out)) notes_->zero_scales.fetch_add(1, std::memory_order_relaxed);
      }
    return all_scales_zero() ? tensor_error("value.zero_scales", scales_, "scales that are not all zero",
                                            "nothing but zeros: the tensor was never written")
                             : Result<>(Ok{});
  }

  // Whether group g of panel row r holds a code other than the one that means zero.
  [[nodiscard]] bool has_codes(std::int64_t r, std::int64_t g, const MatrixPanel& out) const {
    const unsigned zero = out.zeros.empty() ? 1U << (bits_ - 1) : out.zeros[narrow<std::size_t>(r * spec_.groups + g)];
    const std::uint8_t* codes = out.codes.data() + r * spec_.cols;
    const bool sorted = spec_.g_idx.empty();
    const std::int64_t begin = sorted ? g * spec_.group_cols : 0;
    const std::int64_t end = sorted ? std::min(spec_.cols, begin + spec_.group_cols) : spec_.cols;
    for (std::int64_t k = begin; k < end; ++k)
      if ((sorted || spec_.g_idx[narrow<std::size_t>(k)] == g) && codes[k] != zero) return true;
    return false;
  }

  // Stops at the first scale that is not zero, so that it is only long for a tensor that will be refused.
  [[nodiscard]] bool all_scales_zero() const {
    const std::uint8_t sign = 0x80;
    const std::size_t width = scales_.dtype == Dtype::f32 ? 4 : 2;
    for (std::size_t i = 0; i < scales_.bytes.size(); ++i) {
      const auto byte = std::to_integer<std::uint8_t>(scales_.bytes[i]);
      if (byte != 0 && !(i % width == width - 1 && byte == sign)) return false;
    }
    return true;
  }

  // The word that holds the zero point of (row, group).
  [[nodiscard]] std::uint32_t zero_word(std::int64_t row, std::int64_t group) const {
    const std::int64_t words = word_of(spec_.rows - 1) + 1;
    const std::int64_t word = layout_.zeros == PackedIntLayout::Zeros::by_group ? group * words + word_of(row)
                                                                                : word_of(row) * spec_.groups + group;
    return load<std::uint32_t>(zeros_.bytes.data() + word * 4);
  }
  [[nodiscard]] std::int64_t word_of(std::int64_t row) const { return row >> word_shift_; }

  // What turns a two's complement code into an offset-binary one.
  [[nodiscard]] std::uint8_t sign_bit() const { return static_cast<std::uint8_t>(1U << (bits_ - 1)); }

  [[nodiscard]] unsigned stored_zero(std::int64_t row, std::int64_t group) const {
    if (layout_.zeros == PackedIntLayout::Zeros::bytes_by_out) {
      const auto byte = load<std::int8_t>(zeros_.bytes.data() + row * spec_.groups + group);
      return static_cast<unsigned>(byte + static_cast<int>(sign_bit()));  // out of range when above the largest code
    }
    const unsigned zero = packed_zero(row, group);
    return layout_.twos_complement ? zero ^ sign_bit() : zero;
  }

  [[nodiscard]] unsigned packed_zero(std::int64_t row, std::int64_t group) const {
    const auto column = static_cast<std::size_t>(row - (word_of(row) << word_shift_));
    const unsigned nibble = bits_ == 4 ? nibble_of_column_[column] : static_cast<unsigned>(column);
    return zero_word(row, group) >> (nibble * static_cast<unsigned>(bits_)) & ((1U << bits_) - 1U);
  }

  Result<> read_zeros(std::int64_t begin, MatrixPanel& out) const {
    out.zeros.clear();
    if (layout_.zeros == PackedIntLayout::Zeros::none) return Ok{};
    if (spec_.key.symmetric) return check_neutral(begin, out.rows);
    const unsigned limit = (1U << bits_) - 1U;
    out.zeros.resize(narrow<std::size_t>(out.rows * spec_.groups));
    for (std::int64_t g = 0; g < spec_.groups; ++g)
      for (std::int64_t r = 0; r < out.rows; ++r) {
        const unsigned zero = stored_zero(begin + r, g) + static_cast<unsigned>(layout_.zero_offset);
        if (zero > limit) return zero_error(begin + r, g, zero);
        out.zeros[narrow<std::size_t>(r * spec_.groups + g)] = static_cast<std::uint8_t>(zero);
      }
    return Ok{};
  }

  Error zero_error(std::int64_t row, std::int64_t group, unsigned zero) const {
    return tensor_error("value.zero_point", zeros_,
                        fmt::format("a zero point of at most {} for row {}, group {}", (1U << bits_) - 1U, row, group),
                        std::to_string(zero));
  }

  // A symmetric scheme has one zero point. Publishers that store it all the same write the neutral code, or that code
  // less one (the older GPTQ convention), or nothing at all.
  Result<> check_neutral(std::int64_t begin, std::int64_t rows) const {
    const unsigned neutral = 1U << (bits_ - 1);
    const std::uint32_t ones = bits_ == 4 ? 0x11111111U : 0x01010101U;
    // Where zero points are signed there is but one that is neutral.
    const bool exact = layout_.twos_complement || layout_.zeros == PackedIntLayout::Zeros::bytes_by_out;
    const std::int64_t end = begin + rows;
    for (std::int64_t g = 0; g < spec_.groups; ++g)
      for (std::int64_t r = begin, next = r; r < end; r = next) {
        next = exact ? r + 1 : std::min(end, (word_of(r) + 1) << word_shift_);
        if (!exact) {
          const std::uint32_t word = zero_word(r, g);
          if (word == neutral * ones || word == (neutral - 1U) * ones || word == 0U) continue;
        }
        for (; r < next; ++r) {
          const unsigned stored = stored_zero(r, g);
          if (stored == neutral || (!exact && (stored + 1U == neutral || stored == 0U))) continue;
          return tensor_error("config.contradiction", zeros_,
                              fmt::format("zero points of {}, since the config says symmetric", neutral),
                              fmt::format("{} for row {}, group {}", stored, r, g));
        }
      }
    return Ok{};
  }

  static constexpr std::array<std::uint8_t, 8> kInOrder{0, 1, 2, 3, 4, 5, 6, 7};

  PackedIntLayout layout_;
  TensorView codes_;
  TensorView scales_;
  TensorView zeros_;
  std::shared_ptr<const Checkpoint> checkpoint_;
  std::shared_ptr<ValueNotes> notes_;
  int bits_;
  int word_shift_;  // a word of zero points holds 8 or 4 rows
  std::array<std::uint8_t, 8> nibble_of_column_ = inverse(layout_.column_of_nibble);

  static std::array<std::uint8_t, 8> inverse(const std::array<std::uint8_t, 8>& column_of_nibble) {
    std::array<std::uint8_t, 8> inverse{};
    for (std::size_t i = 0; i < inverse.size(); ++i) inverse[column_of_nibble[i] & 7U] = static_cast<std::uint8_t>(i);
    return inverse;
  }
};

// Whether column k is in group k / group_cols, for every k: as most publishers store it, and there is one for
// every matrix of every expert.
bool in_group_order(std::span<const std::byte> g_idx, std::int64_t cols, std::int64_t group_cols) {
  std::uint32_t differs = 0;
  for (std::int64_t k = 0, group = 0; k < cols; ++group) {
    const std::int64_t end = std::min(cols, k + group_cols);
    const auto wanted = narrow<std::uint32_t>(group);
    for (; k < end; ++k) differs |= load<std::uint32_t>(g_idx.data() + k * 4) ^ wanted;
  }
  return differs == 0;
}

}  // namespace

std::shared_ptr<const MatrixSource> make_packed_int(MatrixSpec spec, const PackedIntLayout& layout,
                                                    const PackedIntTensors& tensors,
                                                    std::shared_ptr<const Checkpoint> checkpoint,
                                                    std::shared_ptr<ValueNotes> notes) {
  return std::make_shared<PackedIntSource>(std::move(spec), layout, tensors, std::move(checkpoint), std::move(notes));
}

Result<> expect_group_index(const TensorView& tensor, std::int64_t cols) {
  MORACLE_TRY(expect_shape(tensor, {cols}));
  return expect_dtype(tensor, {Dtype::i32, Dtype::i64});
}

Result<std::vector<std::int32_t>> check_group_index(const TensorView& tensor, const Checkpoint& checkpoint,
                                                    std::int64_t cols, std::int64_t group_cols) {
  MORACLE_TRY(expect_group_index(tensor, cols));
  std::vector<std::byte> stored(tensor.bytes.size());
  checkpoint.copy(tensor.bytes, stored.data());
  if (tensor.dtype == Dtype::i32 && in_group_order(stored, cols, group_cols)) return std::vector<std::int32_t>();
  TensorView copied = tensor;
  copied.bytes = stored;
  MORACLE_ASSIGN(std::vector<std::int32_t> g_idx, read_integers(copied));
  const std::int64_t groups = ceil_div(cols, group_cols);
  std::vector<std::int64_t> members(narrow<std::size_t>(groups), 0);
  bool trivial = true;
  for (std::size_t k = 0; k < g_idx.size(); ++k) {
    const std::int32_t group = g_idx[k];
    if (group < 0 || group >= groups)
      return tensor_error("quant.act_order", tensor, fmt::format("a group in [0, {})", groups),
                          fmt::format("{} at element {}", group, k));
    ++members[narrow<std::size_t>(group)];
    trivial = trivial && group == narrow<std::int64_t>(k) / group_cols;
  }
  for (std::int64_t g = 0; g < groups; ++g) {
    const std::int64_t wanted = std::min(group_cols, cols - g * group_cols);
    const std::int64_t found = members[narrow<std::size_t>(g)];
    if (found != wanted)
      return tensor_error("quant.act_order", tensor, fmt::format("{} columns in group {}", wanted, g),
                          std::to_string(found));
  }
  if (trivial) g_idx.clear();
  return g_idx;
}

}  // namespace moracle
