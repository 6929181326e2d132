#include "kernels/cuda/host/pack_tiles.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>
#include <string>
#include <vector>

#include "base/checked.h"
#include "kernels/cuda/common/tile_layout.h"
#include "scheme/codes.h"

namespace moracle::cuda {

namespace {

constexpr std::int64_t kPanelRows = 64;
constexpr int kLanes = 8;  // rows of a half of a tile
constexpr std::uint64_t kExpertAlignment = 256;
constexpr float kMostScale = 0x1p65F;  // times code_factor and codes, within bf16

MatrixArgs matrix_in_records(const RecordForm& form, std::int64_t rows, std::int64_t cols, int tile_rows,
                             int first_row) {
  MatrixArgs args{};
  args.rows = narrow<std::int32_t>(rows);
  args.cols = narrow<std::int32_t>(cols);
  args.padded = args.cols;
  args.group = form.group > 0 ? form.group : args.cols;
  args.groups = form.group > 0 ? args.cols / form.group : 1;
  args.scales = kAbsent;
  args.zeros = kAbsent;
  args.bias = kAbsent;
  args.order = kAbsent;
  args.global_scale = kAbsent;
  args.input_scale = kAbsent;
  const int records = records_of(form, args.cols);
  const int columns = args.cols / records;
  args.records = {.records = records,
                  .columns = columns,
                  .tile_rows = tile_rows,
                  .first_row = first_row,
                  .bytes = static_cast<std::uint64_t>(record_bytes(form, columns)),
                  .tile_bytes = static_cast<std::uint64_t>(tile_bytes(form, args.cols))};
  return args;
}

class RecordWriter {
 public:
  RecordWriter(const CanonicalLinear& linear, RecordKind kind, const MatrixArgs& to, std::span<std::byte> block)
      : linear_(linear),
        spec_(linear.weight->spec()),
        kind_(kind),
        form_(record_form(kind)),
        to_(to),
        block_(block),
        bits_(bits_of_codes(form_)),
        scales_(static_cast<std::size_t>(to.groups)),
        scale_steps_(scales_.size()) {
    if (form_.group == 0) return;
    for (int group = 0; group < to.groups; ++group)
      scale_steps_[narrow<std::size_t>(group)] = scale_at(0, group) - scale_at(0, 0);
  }

  Result<> write() {
    MatrixPanel panel;
    for (std::int64_t begin = 0; begin < to_.rows; begin += kPanelRows) {
      const std::int64_t end = std::min<std::int64_t>(to_.rows, begin + kPanelRows);
      MORACLE_TRY(linear_.weight->read(begin, end, panel));
      for (std::int64_t row = begin; row < end; ++row) {
        MORACLE_TRY(write_scales(panel, row - begin, static_cast<int>(row)));
        zero_scales_ = form_.group > 0 && std::ranges::find(scales_, 0.0F) != scales_.end();
        write_codes(panel, row - begin, static_cast<int>(row));
        if (form_.bias && !linear_.bias.empty()) {
          const float bias = linear_.bias[static_cast<std::size_t>(row)];
          std::memcpy(at(bias_offset(to_.records, static_cast<int>(row))), &bias, sizeof bias);
        }
      }
    }
    if (to_.input_scale != kAbsent) {
      const float input_scale = linear_.input_scale.value_or(1.0F);
      std::memcpy(block_.data() + to_.input_scale, &input_scale, sizeof input_scale);
    }
    return Ok{};
  }

 private:
  [[nodiscard]] std::uint64_t scale_at(int row, int group) const {
    return scale_offset(form_, to_.records, row, group * to_.group);
  }
  std::byte* at(std::uint64_t offset) { return block_.data() + to_.codes + offset; }

  void write_codes(const MatrixPanel& panel, std::int64_t from, int row) {
    if (form_.code == DeviceCode::bf16) {
      write_row<16>(
          row, [&](std::int64_t element) { return encode_bf16(panel.values[narrow<std::size_t>(element)]); }, from);
    } else if (bits_of(form_.code) == 8) {
      write_row<8>(row, [codes = panel.codes.data()](std::int64_t element) { return codes[element]; }, from);
    } else {
      write_row<4>(row, [codes = panel.codes.data()](std::int64_t element) { return codes[element] & 15U; }, from);
    }
  }
  // Eight columns at a time, which fill their lane's words in the order of words_offset.
  template <int kBits, class CodeOf>
  void write_row(int row, CodeOf code_of, std::int64_t from) {
    const int lower = tile_row(to_.records, row) / kLanes;
    std::int64_t element = from * to_.cols;
    for (int column = 0; column < to_.cols; column += kPairColumns) {
      std::byte* const pair = at(words_offset(form_, to_.records, row, column));
      for (int eight = 0; eight < kPairColumns / 8; ++eight, element += 8) {
        // Where a scale is zero so are the codes: zero in E5M3 is read as a power of two.
        if (zero_scales_ && scales_[narrow<std::size_t>((column + 8 * eight) / form_.group)] == 0.0F) continue;
        std::byte* const words = pair + eight % 4 * 16 + eight / 4 * (kBits == 4 ? 8 : 64 * kBits);
        for (int i = 0; i < 8; i += 4) {
          const auto code = [&](int k) { return static_cast<std::uint32_t>(code_of(element + i + k)); };
          if constexpr (kBits == 4) {
            const auto& bits = bits_[static_cast<std::size_t>(lower)];
            add(words + i, bits[0][code(0)] | bits[1][code(1)] | bits[2][code(2)] | bits[3][code(3)]);
          } else if constexpr (kBits == 8) {
            add(words + i * 2 + lower * 4, code(0) | code(2) << 8U | code(1) << 16U | code(3) << 24U);
          } else {
            std::byte* const left = words + i * 128 + lower * 4;
            add(left, code(0) | code(1) << 16U);
            add(left + 8, code(2) | code(3) << 16U);
          }
        }
      }
    }
  }
  static void add(std::byte* to, std::uint32_t bits) {
    std::uint32_t word = 0;
    std::memcpy(&word, to, sizeof word);
    word |= bits;
    std::memcpy(to, &word, sizeof word);
  }
  // Of four bits: what each code of four neighbours sets in their word, of rows in the upper and the lower half.
  using CodeBits = std::array<std::array<std::array<std::uint32_t, 16>, 4>, 2>;
  static CodeBits bits_of_codes(const RecordForm& form) {
    CodeBits result{};
    if (bits_of(form.code) != 4) return result;
    for (int lower = 0; lower < 2; ++lower) {
      for (int i = 0; i < 4; ++i) {
        for (std::uint32_t code = 0; code < 16; ++code)
          result[narrow<std::size_t>(lower)][narrow<std::size_t>(i)][code] =
              code_bits(form, code, {lower + i / 2 * 2, i % 2});
      }
    }
    return result;
  }

  Result<> write_scales(const MatrixPanel& panel, std::int64_t from, int row) {
    if (form_.code == DeviceCode::bf16) return Ok{};
    if (kind_ == RecordKind::mxfp4_row) return write_steps(panel, from, row);
    const std::int64_t groups = spec_.groups;
    if (form_.row_scales) {
      // A scale a row, or what the scales of its groups share.
      const bool whole = form_.group == 0;
      const float scale = (whole ? panel.scales[static_cast<std::size_t>(from * groups)] : 1.0F) * spec_.global_scale;
      if (!fits(scale)) return unfit(scale);
      const float carried = scale * form_.code_factor;
      for (int column = 0; column < to_.cols; column += to_.records.columns)
        std::memcpy(at(row_scale_offset(to_.records, row, column)), &carried, sizeof carried);
      if (whole) return Ok{};
    }
    std::byte* const first = at(scale_at(row, 0));
    for (std::size_t group = 0; group < scales_.size(); ++group) {
      const float value = panel.scales[static_cast<std::size_t>(from * groups) + group];
      scales_[group] = value;
      if (!fits(value)) return unfit(value);
      write_scale(value, first + scale_steps_[group]);
    }
    return Ok{};
  }
  // Scales as steps under the largest of the row. Those of groups without a number are free.
  Result<> write_steps(const MatrixPanel& panel, std::int64_t from, int row) {
    int most = 0;  // exponents, as E8M0 counts them
    int least = 255;
    std::vector<int> exponents(scales_.size(), -1);
    for (int group = 0; group < to_.groups; ++group) {
      const float value = panel.scales[static_cast<std::size_t>(from * spec_.groups + group)];
      scales_[static_cast<std::size_t>(group)] = value;
      if (!fits(value)) return unfit(value);
      const auto first = panel.codes.begin() + from * to_.cols + group * std::int64_t{to_.group};
      if (std::all_of(first, first + to_.group, [](std::uint8_t code) { return (code & 7U) == 0; })) continue;
      const int exponent = encode_e8m0(value);
      exponents[static_cast<std::size_t>(group)] = exponent;
      most = std::max(most, exponent);
      least = std::min(least, exponent);
    }
    if (most - least >= kE4m3Steps) {
      return Error{.code = std::string(kFarScales),
                   .where = {},
                   .wanted = "scales of a row within a factor of 2^" + std::to_string(kE4m3Steps - 1),
                   .found = "a factor of 2^" + std::to_string(most - least)};
    }
    const float of_row = std::ldexp(1.0F, most - kE4m3Steps - kE4m3StepBias);
    for (int column = 0; column < to_.cols; column += to_.records.columns)
      std::memcpy(at(row_scale_offset(to_.records, row, column)), &of_row, sizeof of_row);
    std::byte* const first = at(scale_at(row, 0));
    for (std::size_t group = 0; group < scales_.size(); ++group) {
      const int exponent = std::max(exponents[group], most - kE4m3Steps + 1);
      first[scale_steps_[group]] = static_cast<std::byte>(exponent - most + kE4m3Steps + kE4m3StepBias);
    }
    return Ok{};
  }
  [[nodiscard]] float least_scale() const { return form_.code == DeviceCode::e2m1 ? 0.0F : -kMostScale; }
  [[nodiscard]] bool fits(float scale) const { return scale >= least_scale() && scale <= kMostScale; }
  [[nodiscard]] Error unfit(float scale) const {
    return {.code = "scale.range",
            .where = {},
            .wanted = least_scale() < 0.0F ? "scales from -2^65 to 2^65" : "scales from 0 to 2^65",
            .found = std::to_string(scale)};
  }
  void write_scale(float value, std::byte* to) const {
    if (kind_ == RecordKind::mxfp4) {
      *to = static_cast<std::byte>(encode_e8m0(value));
    } else if (kind_ == RecordKind::nvfp4) {
      *to = static_cast<std::byte>(encode_e5m3(value));
    } else if (form_.scale_bytes == 4) {
      const float carried = value * form_.code_factor;
      const std::uint16_t first = encode_bf16(carried);
      const std::uint16_t parts[2] = {first, encode_bf16(carried - decode_bf16(first))};
      std::memcpy(to, parts, sizeof parts);
    } else {
      const std::uint16_t bits = kind_ == RecordKind::int4_f16 ? encode_f16(value) : encode_bf16(value);
      std::memcpy(to, &bits, sizeof bits);
    }
  }

  const CanonicalLinear& linear_;
  const MatrixSpec& spec_;
  RecordKind kind_;
  RecordForm form_;
  const MatrixArgs& to_;
  std::span<std::byte> block_;
  CodeBits bits_;
  std::vector<float> scales_;               // of a row's groups
  std::vector<std::uint64_t> scale_steps_;  // bytes from a row's first scale to that of each group
  bool zero_scales_ = false;                // some are zero
};

// The records that hold a scheme's weights; none: there are none.
RecordKind kind_of(const PackForm& form, const MatrixSpec& spec) {
  const Granularity::Kind granularity = spec.key.granularity.kind;
  const bool whole = granularity == Granularity::Kind::channel || granularity == Granularity::Kind::tensor;
  if (spec.key.quantized() && !spec.key.symmetric) return RecordKind::none;
  switch (form.code) {
    case DeviceCode::int4:
      if (spec.group_cols != 128 || spec.global_scale != 1.0F) return RecordKind::none;
      if (form.scale == DeviceScale::bf16) return RecordKind::int4_bf16;
      return form.scale == DeviceScale::f16 ? RecordKind::int4_f16 : RecordKind::none;
    case DeviceCode::int8:
      if (whole) return RecordKind::int8_row;
      return spec.group_cols == 128 ? RecordKind::int8_split : RecordKind::none;
    case DeviceCode::e4m3:
      if (spec.key.element != Element::e4m3) return RecordKind::none;
      if (whole) return RecordKind::e4m3_row;
      return spec.group_cols == 128 ? RecordKind::e4m3_split : RecordKind::none;
    case DeviceCode::e2m1:
      if (form.scale == DeviceScale::e8m0 && spec.group_cols == 32) {
        const bool e4m3 = form.input == InputKind::e4m3_tensor || form.input == InputKind::e4m3_token;
        return e4m3 ? RecordKind::mxfp4_row : RecordKind::mxfp4;
      }
      return form.scale == DeviceScale::e4m3 && spec.group_cols == 16 ? RecordKind::nvfp4 : RecordKind::none;
    case DeviceCode::bf16:
      return RecordKind::bf16;
    case DeviceCode::f16:
    case DeviceCode::f32:
      break;
  }
  return RecordKind::none;
}

Error not_in_records(const CanonicalExperts& experts) {
  return {.code = "quant.unsupported",
          .where = experts.name,
          .wanted = "a scheme of a card of backend sm90-stream",
          .found = to_string(experts.scheme)};
}

}  // namespace

Result<RecordKind> record_kind(const CanonicalExperts& experts, const PackForm& form) {
  const RecordKind kind = kind_of(form, experts.experts.front().gate.weight->spec());
  if (kind == RecordKind::none) return not_in_records(experts);
  return kind;
}

Result<> lay_out_records(const CanonicalExperts& experts, const PackForm& form, RecordKind kind,
                         const MatrixParts& parts, RoutedExperts& args) {
  const RecordForm record = record_form(kind);
  if (parts.order || (parts.bias && !record.bias)) return not_in_records(experts);
  const int step = record_step(record);
  if (experts.hidden % step != 0 || experts.intermediate % step != 0) {
    return Error{.code = "shape",
                 .where = experts.name,
                 .wanted = "sizes that are multiples of " + std::to_string(step),
                 .found = std::to_string(experts.hidden) + " x " + std::to_string(experts.intermediate)};
  }
  args.pack.records = kind;
  args.gate = matrix_in_records(record, experts.intermediate, experts.hidden, kTileRows / 2, 0);
  args.up = matrix_in_records(record, experts.intermediate, experts.hidden, kTileRows / 2, kTileRows / 2);
  args.down = matrix_in_records(record, experts.hidden, experts.intermediate, kTileRows, 0);
  const auto tiles = [](const MatrixArgs& matrix) {
    return static_cast<std::uint64_t>(matrix.rows / matrix.records.tile_rows);
  };
  args.down.codes = tiles(args.gate) * args.gate.records.tile_bytes;
  std::uint64_t end = args.down.codes + tiles(args.down) * args.down.records.tile_bytes;
  if (has_stored_scale(form.input)) {
    for (MatrixArgs* const matrix : {&args.gate, &args.up, &args.down}) {
      matrix->input_scale = end;
      end += sizeof(float);
    }
  }
  args.pack.expert_bytes = (end + kExpertAlignment - 1) / kExpertAlignment * kExpertAlignment;
  return Ok{};
}

Result<> pack_records(const CanonicalExperts::Expert& expert, const RoutedExperts& args, std::span<std::byte> block) {
  const RecordKind kind = args.pack.records;
  MORACLE_TRY(RecordWriter(expert.gate, kind, args.gate, block).write());
  MORACLE_TRY(RecordWriter(expert.up, kind, args.up, block).write());
  MORACLE_TRY(RecordWriter(expert.down, kind, args.down, block).write());
  return Ok{};
}

}  // namespace moracle::cuda
