#include "kernels/cuda/decode/pack_records.h"

#include <algorithm>
#include <cstring>
#include <string>

#include "base/checked.h"
#include "kernels/cuda/cards.h"
#include "kernels/cuda/decode/records.h"
#include "scheme/codes.h"

namespace moracle::cuda {

namespace {

constexpr std::int64_t kPanelRows = 64;
constexpr std::uint64_t kExpertAlignment = 256;
constexpr float kMostE8m0 = 0x1p65F;  // prefill/weights.cuh

MatrixArgs matrix_in_records(DeviceCode code, std::int64_t rows, std::int64_t cols, int tile_rows, int first_row) {
  const RecordForm form = record_form(code);
  const int records = records_of(static_cast<int>(cols));
  MatrixArgs args{};
  args.rows = narrow<std::int32_t>(rows);
  args.cols = narrow<std::int32_t>(cols);
  args.padded = args.cols;
  args.group = form.group;
  args.groups = args.cols / form.group;
  args.scales = kAbsent;
  args.zeros = kAbsent;
  args.bias = kAbsent;
  args.order = kAbsent;
  args.global_scale = kAbsent;
  args.input_scale = kAbsent;
  args.records = {.records = records,
                  .columns = args.cols / records,
                  .tile_rows = tile_rows,
                  .first_row = first_row,
                  .bytes = record_bytes(code, args.cols / records),
                  .tile_bytes = tile_bytes(code, args.cols)};
  return args;
}

class RecordWriter {
 public:
  RecordWriter(const CanonicalLinear& linear, DeviceCode code, DeviceScale scale, const MatrixArgs& to,
               std::span<std::byte> block)
      : linear_(linear), code_(code), scale_(scale), to_(to), block_(block) {}

  Result<> write() {
    MatrixPanel panel;
    for (std::int64_t begin = 0; begin < to_.rows; begin += kPanelRows) {
      const std::int64_t end = std::min<std::int64_t>(to_.rows, begin + kPanelRows);
      MORACLE_TRY(linear_.weight->read(begin, end, panel));
      for (std::int64_t row = begin; row < end; ++row) {
        write_codes(panel, row - begin, static_cast<int>(row));
        MORACLE_TRY(write_scales(panel, row - begin, static_cast<int>(row)));
        if (record_form(code_).bias && !linear_.bias.empty()) {
          std::memcpy(at(bias_offset(to_.records, static_cast<int>(row))), &linear_.bias[static_cast<std::size_t>(row)],
                      sizeof(float));
        }
      }
    }
    return Ok{};
  }

 private:
  std::byte* at(std::uint64_t offset) { return block_.data() + to_.codes + offset; }

  void write_codes(const MatrixPanel& panel, std::int64_t from, int row) {
    const std::uint8_t* const codes = panel.codes.data() + from * to_.cols;
    for (int column = 0; column < to_.cols; column += 8) {
      std::uint32_t words[2];
      std::byte* const place = at(words_offset(to_.records, row, column));
      std::memcpy(words, place, sizeof words);
      for (int i = 0; i < 8; ++i)
        words[i / 4] |= code_bits(code_, codes[column + i] & 15U, place_of(to_.records, row, i));
      std::memcpy(place, words, sizeof words);
    }
  }

  Result<> write_scales(const MatrixPanel& panel, std::int64_t from, int row) {
    for (int group = 0; group < to_.groups; ++group) {
      const float value = panel.scales[static_cast<std::size_t>(from * to_.groups + group)];
      std::byte* const place = at(scale_offset(code_, to_.records, row, group * to_.group));
      if (scale_ == DeviceScale::e8m0) {
        if (!(value <= kMostE8m0)) {
          return Error{
              .code = "scale.range", .where = {}, .wanted = "scales up to 2^65", .found = std::to_string(value)};
        }
        *place = static_cast<std::byte>(encode_e8m0(value));
      } else {
        const std::uint16_t bits = scale_ == DeviceScale::f16 ? encode_f16(value) : encode_bf16(value);
        std::memcpy(place, &bits, sizeof bits);
      }
    }
    return Ok{};
  }

  const CanonicalLinear& linear_;
  DeviceCode code_;
  DeviceScale scale_;
  const MatrixArgs& to_;
  std::span<std::byte> block_;
};

}  // namespace

Result<> lay_out_records(const CanonicalExperts& experts, const PackForm& form, const MatrixParts& parts,
                         ExpertsArgs& args) {
  const bool int4 = form.code == DeviceCode::int4;
  const MatrixSpec& gate = experts.experts.front().gate.weight->spec();
  const RecordForm record = record_form(form.code);
  const bool known = (int4 && (form.scale == DeviceScale::bf16 || form.scale == DeviceScale::f16)) ||
                     (form.code == DeviceCode::e2m1 && form.scale == DeviceScale::e8m0);
  if (!known || gate.group_cols != record.group || !gate.key.symmetric || form.input != InputKind::bf16 ||
      parts.order || (parts.bias && !record.bias)) {
    return Error{.code = "quant.unsupported",
                 .where = experts.name,
                 .wanted = "int4 under 16-bit scales of 128 columns, or MXFP4",
                 .found = to_string(experts.scheme)};
  }
  const KernelCard& card = int4 ? kCardSm90StreamInt4 : kCardSm90StreamMxfp4;
  const auto same = [&](const LayerSize& size) {
    return size.hidden == experts.hidden && size.intermediate == experts.intermediate;
  };
  if (std::none_of(card.sizes.begin(), card.sizes.end(), same)) {
    return Error{.code = "shape",
                 .where = experts.name,
                 .wanted = "a size that the kernel was compiled for",
                 .found = std::to_string(experts.hidden) + " x " + std::to_string(experts.intermediate)};
  }
  args.gate = matrix_in_records(form.code, experts.intermediate, experts.hidden, kTileRows / 2, 0);
  args.up = matrix_in_records(form.code, experts.intermediate, experts.hidden, kTileRows / 2, kTileRows / 2);
  args.down = matrix_in_records(form.code, experts.hidden, experts.intermediate, kTileRows, 0);
  const auto tiles = [](const MatrixArgs& matrix) {
    return static_cast<std::uint64_t>(matrix.rows / matrix.records.tile_rows);
  };
  args.down.codes = tiles(args.gate) * args.gate.records.tile_bytes;
  const std::uint64_t end = args.down.codes + tiles(args.down) * args.down.records.tile_bytes;
  args.pack.expert_bytes = (end + kExpertAlignment - 1) / kExpertAlignment * kExpertAlignment;
  return Ok{};
}

Result<> pack_records(const CanonicalExperts::Expert& expert, DeviceCode code, const ExpertsArgs& args,
                      std::span<std::byte> block) {
  const DeviceScale scale = args.pack.scale;
  MORACLE_TRY(RecordWriter(expert.gate, code, scale, args.gate, block).write());
  MORACLE_TRY(RecordWriter(expert.up, code, scale, args.up, block).write());
  MORACLE_TRY(RecordWriter(expert.down, code, scale, args.down, block).write());
  return Ok{};
}

}  // namespace moracle::cuda
