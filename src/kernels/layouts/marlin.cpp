#include "kernels/layouts/marlin.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <utility>

#include "base/checked.h"
#include "scheme/codes.h"

namespace moracle::layout {
namespace {

Error unfit(const MatrixHead& head, std::string code, std::string wanted, std::string found) {
  return {
      .code = "layout." + std::move(code), .where = head.name, .wanted = std::move(wanted), .found = std::move(found)};
}

// The index map that weights, scales and biases of one matrix share, but for the element map and the stored size.
struct Frame {
  IndexMap rows{};
  std::int64_t cols = 0;
  std::int64_t groups = 0;
};

Result<Frame> frame_of(const LayoutMatrix& matrix, Role role, const Sizes& sizes) {
  const MatrixHead& head = matrix.head;
  MORACLE_ASSIGN(const Grid part, role == Role::linear ? marlin_linear_part(head) : padded_part(head, role, sizes));
  const auto rows = checked_mul(part.rows, head.parts);
  if (!rows) return unfit(head, "shape", "rows that can be counted", std::to_string(part.rows));
  Frame frame{.rows = {.part_rows = head.part_rows(), .padded_part_rows = part.rows, .permuted_rows = *rows},
              .cols = part.cols,
              .groups = padded_groups(head, part.cols)};
  return frame;
}

IndexMap at(const Frame& frame, std::int64_t cols, ElementMap map) {
  IndexMap how = frame.rows;
  how.stored = {frame.rows.permuted_rows, cols};
  how.map = map;
  return how;
}

// Codes sorted by group; `recode` sees each with its row and sorted position.
template <class Recode>
Result<StoredCodes> store_weight(const LayoutMatrix& matrix, const Frame& frame, const ColumnOrder& order,
                                 MarlinActivations activations, Recode recode) {
  const MatrixHead& head = matrix.head;
  const int bits = bits_of(head.key.element);
  MORACLE_ASSIGN(StoredCodes weight,
                 StoredCodes::zeroed(at(frame, frame.cols, marlin_weight_map(bits, activations)), bits));
  for (std::int64_t r = 0; r < head.rows; ++r) {
    for (std::int64_t p = 0; p < head.cols; ++p) weight.put(r, p, recode(r, p, matrix.code(r, column_at(order, p))));
  }
  return weight;
}

Result<StoredCodes> store_raw(const LayoutMatrix& matrix, const Frame& frame, MarlinActivations activations) {
  return store_weight(matrix, frame, InOrder{}, activations,
                      [](std::int64_t, std::int64_t, std::uint8_t code) { return code; });
}

float round_to(ScaleType type, float value) {
  return type == ScaleType::f16 ? decode_f16(encode_f16(value)) : decode_bf16(encode_bf16(value));
}

// Scales times `factor`, which is a power of two; rounded before, as they are cast to the model's type first.
Result<StoredScales> store_scales(const LayoutMatrix& matrix, const Frame& frame, ElementMap map, ScaleType type,
                                  float factor) {
  const MatrixHead& head = matrix.head;
  MORACLE_ASSIGN(StoredScales scales, StoredScales::zeroed(at(frame, frame.groups, map), type));
  for (std::int64_t r = 0; r < head.rows; ++r) {
    for (std::int64_t g = 0; g < head.groups; ++g) {
      if (!scales.put(r, g, round_to(type, matrix.scale(r, g)) * factor))
        return unfit(head, "scale", "scales whose stored form is finite", std::to_string(matrix.scale(r, g)));
    }
  }
  return scales;
}

Result<Bias> store_marlin_bias(const LayoutMatrix& matrix, const Frame& frame) {
  return store_bias(matrix, at(frame, 1, marlin_scale_map(MarlinScaleOrder::single)));
}

ScaleType model_type(const QuantKey& key, ScaleType asked) {
  if (asked != ScaleType::none) return asked;
  return key.scale == ScaleType::f16 ? ScaleType::f16 : ScaleType::bf16;
}

Result<MarlinInt8Scales> store_int8_scales(const LayoutMatrix& matrix, const Frame& frame, ScaleType type) {
  const MatrixHead& head = matrix.head;
  float largest = 0.0F;
  for (const float scale : matrix.panel.scales) largest = std::max(largest, round_to(type, scale));
  if (!(largest > 0.0F) || !std::isfinite(largest))
    return unfit(head, "scale", "a largest scale above 0", std::to_string(largest));
  MarlinInt8Scales scales;
  scales.global = largest / 4096.0F;
  MORACLE_ASSIGN(scales.numbers,
                 StoredScales::zeroed(at(frame, frame.groups, marlin_scale_map(MarlinScaleOrder::single)), type));
  for (std::int64_t r = 0; r < head.rows; ++r) {
    for (std::int64_t g = 0; g < head.groups; ++g) {
      const float share = round_to(type, round_to(type, matrix.scale(r, g)) / largest);
      const auto number = static_cast<std::int16_t>(std::nearbyint(std::max(share * 4096.0F, -32768.0F)));
      scales.numbers.put_bits(r, g, std::bit_cast<std::uint16_t>(number));
    }
  }
  return scales;
}

Result<StoredCodes> store_zeros(const LayoutMatrix& matrix, const Frame& frame, MarlinActivations activations) {
  const MatrixHead& head = matrix.head;
  const int bits = bits_of(head.key.element);
  MORACLE_ASSIGN(StoredCodes zeros,
                 StoredCodes::zeroed(at(frame, frame.groups, marlin_zero_map(bits, activations)), bits));
  for (std::int64_t r = 0; r < head.rows; ++r)
    for (std::int64_t g = 0; g < head.groups; ++g) zeros.put(r, g, matrix.zero(r, g));
  return zeros;
}

constexpr float kFp8Gain = 512.0F;

float exponent_gain(ScaleType type) {
  return type == ScaleType::f16 ? 0x1p8F : 0x1p120F;
}

}  // namespace

Result<MarlinWna16Pack> pack_marlin_wna16(const LayoutMatrix& matrix, Role role, const MarlinOptions& options) {
  const MatrixHead& head = matrix.head;
  const MarlinActivations activations = options.activations;
  const bool fp8 = activations == MarlinActivations::fp8;
  if (!is_integer(head.key.element) || !head.key.quantized())
    return unfit(head, "scheme", "int4 or int8 weights", to_string(head.key));
  if (fp8 && head.key.element != Element::int4)
    return unfit(head, "activations", "int4 weights under FP8 activations", to_string(head.key));
  MORACLE_ASSIGN(const Frame frame, frame_of(matrix, role, kMarlinSizes));
  MarlinWna16Pack pack{.head = head, .order = column_order(matrix.g_idx), .activations = activations};
  const auto middle = narrow<std::uint8_t>(1 << (bits_of(head.key.element) - 1));
  const auto recode = [&](std::int64_t r, std::int64_t p, std::uint8_t code) {
    if (!fp8) return code;
    return marlin_fp8_recode(code, head.key.symmetric ? middle : matrix.zero(r, group_at(head, pack.order, p)));
  };
  MORACLE_ASSIGN(pack.weight, store_weight(matrix, frame, pack.order, activations, recode));
  const ScaleType type = model_type(head.key, options.dtype);
  if (activations == MarlinActivations::int8 && frame.groups > 1) {
    MORACLE_ASSIGN(pack.scales, store_int8_scales(matrix, frame, type));
  } else {
    const ElementMap map = marlin_scale_map(marlin_scale_order(head, frame.cols, activations));
    MORACLE_ASSIGN(pack.scales, store_scales(matrix, frame, map, type, fp8 ? kFp8Gain : 1.0F));
  }
  if (!head.key.symmetric) {
    MORACLE_ASSIGN(pack.zeros, store_zeros(matrix, frame, activations));
  }
  MORACLE_ASSIGN(pack.bias, store_marlin_bias(matrix, frame));
  return pack;
}

std::uint8_t MarlinWna16Pack::code(std::int64_t row, std::int64_t position) const {
  const std::uint8_t stored = weight.at(row, position);
  if (activations != MarlinActivations::fp8) return stored;
  const std::uint8_t z = head.key.symmetric ? 8 : zero(row, group_at(head, order, position));
  return marlin_fp8_decode(stored, z);
}

float MarlinWna16Pack::scale(std::int64_t row, std::int64_t group) const {
  if (const auto* numbers = std::get_if<MarlinInt8Scales>(&scales)) {
    return static_cast<float>(std::bit_cast<std::int16_t>(numbers->numbers.bits_at(row, group))) * numbers->global;
  }
  const float stored = std::get<StoredScales>(scales).at(row, group);
  return activations == MarlinActivations::fp8 ? stored / kFp8Gain : stored;
}

std::uint8_t MarlinWna16Pack::zero(std::int64_t row, std::int64_t group) const {
  return std::get<StoredCodes>(zeros).at(row, group);
}

std::size_t MarlinWna16Pack::bytes() const {
  const auto* stored = std::get_if<StoredCodes>(&zeros);
  const auto* numbers = std::get_if<MarlinInt8Scales>(&scales);
  const StoredScales& grid = numbers == nullptr ? std::get<StoredScales>(scales) : numbers->numbers;
  return weight.bytes().size() + grid.bytes().size() + (stored == nullptr ? 0 : stored->bytes().size()) +
         bytes_of(order) + bytes_of(bias);
}

Result<MarlinFp8Pack> pack_marlin_fp8(const LayoutMatrix& matrix, Role role, const MarlinOptions& options) {
  const MatrixHead& head = matrix.head;
  if (head.key.element != Element::e4m3 || head.key.scale == ScaleType::e8m0)
    return unfit(head, "scheme", "FP8 weights with float scales", to_string(head.key));
  if (options.activations != MarlinActivations::bits16)
    return unfit(head, "activations", "16-bit activations", "8-bit ones");
  MORACLE_ASSIGN(const Frame frame, frame_of(matrix, role, kMarlinSizes));
  MarlinFp8Pack pack{.head = head, .order = InOrder{}};
  MORACLE_ASSIGN(pack.weight, store_raw(matrix, frame, MarlinActivations::bits16));
  const ScaleType type = model_type(head.key, options.dtype);
  const ElementMap map = marlin_scale_map(marlin_scale_order(head, frame.cols, options.activations));
  MORACLE_ASSIGN(pack.scales, store_scales(matrix, frame, map, type, exponent_gain(type)));
  MORACLE_ASSIGN(pack.bias, store_marlin_bias(matrix, frame));
  return pack;
}

float MarlinFp8Pack::scale(std::int64_t row, std::int64_t group) const {
  return scales.at(row, group) / exponent_gain(scales.type());
}

std::size_t MarlinFp8Pack::bytes() const {
  return weight.bytes().size() + scales.bytes().size() + bytes_of(bias);
}

Result<MarlinMxPack> pack_marlin_mx(const LayoutMatrix& matrix, Role role, const MarlinOptions& options) {
  constexpr std::uint8_t kLargest = 249;  // + 6 stays below NaN
  const MatrixHead& head = matrix.head;
  const bool fp8 = options.activations == MarlinActivations::fp8;
  const bool mxfp4 = head.key.element == Element::e2m1;
  if (head.key.scale != ScaleType::e8m0 || (!mxfp4 && head.key.element != Element::e4m3))
    return unfit(head, "scheme", "MXFP4 or MXFP8 weights", to_string(head.key));
  if (options.activations == MarlinActivations::int8 || (fp8 && !mxfp4))
    return unfit(head, "activations", "16-bit activations, or FP8 ones with MXFP4", "others");
  MORACLE_ASSIGN(const Frame frame, frame_of(matrix, role, mxfp4 ? kMarlinMxfp4Sizes : kMarlinSizes));
  MarlinMxPack pack{.head = head, .order = InOrder{}, .activations = options.activations};
  MORACLE_ASSIGN(pack.weight, store_raw(matrix, frame, options.activations));
  const ElementMap map =
      marlin_byte_scale_map(marlin_scale_order(head, frame.cols, options.activations), options.activations);
  MORACLE_ASSIGN(pack.scales, StoredScales::zeroed(at(frame, frame.groups, map), ScaleType::e8m0));
  for (std::int64_t r = 0; r < head.rows; ++r) {
    for (std::int64_t g = 0; g < head.groups; ++g) {
      const std::uint8_t byte = encode_e8m0(matrix.scale(r, g));
      if (fp8 && byte > kLargest) return unfit(head, "scale", "exponents of at most 122", std::to_string(byte - 127));
      pack.scales.put_bits(r, g, narrow<std::uint16_t>(byte + (fp8 ? 6 : 0)));
    }
  }
  MORACLE_ASSIGN(pack.bias, store_marlin_bias(matrix, frame));
  return pack;
}

float MarlinMxPack::scale(std::int64_t row, std::int64_t group) const {
  const int byte = scales.bits_at(row, group) - (activations == MarlinActivations::fp8 ? 6 : 0);
  return decode_e8m0(narrow<std::uint8_t>(byte));
}

std::size_t MarlinMxPack::bytes() const {
  return weight.bytes().size() + scales.bytes().size() + bytes_of(bias);
}

float marlin_nvfp4_factor(float largest_scale, ScaleType dtype) {
  constexpr float kLargest = 448.0F;
  if (dtype == ScaleType::f16 || !(largest_scale > 0.0F) || largest_scale >= kLargest) return 1.0F;
  return std::exp2(std::floor(std::log2(kLargest * 128.0F / (largest_scale * 128.0F))));
}

Result<MarlinNvfp4Pack> pack_marlin_nvfp4(const LayoutMatrix& matrix, Role role, float factor,
                                          const MarlinOptions& options) {
  const MatrixHead& head = matrix.head;
  if (head.key.element != Element::e2m1 || head.key.scale != ScaleType::e4m3)
    return unfit(head, "scheme", "NVFP4 weights", to_string(head.key));
  if (options.activations != MarlinActivations::bits16)
    return unfit(head, "activations", "16-bit activations", "8-bit ones");
  const std::int64_t hidden = role == Role::w13 ? head.cols : head.part_rows();
  MORACLE_ASSIGN(const Frame frame, frame_of(matrix, role, marlin_nvfp4_sizes(hidden)));
  MarlinNvfp4Pack pack{.head = head, .order = InOrder{}, .type = model_type(head.key, options.dtype), .factor = factor};
  MORACLE_ASSIGN(pack.weight, store_raw(matrix, frame, options.activations));
  const ElementMap map =
      marlin_byte_scale_map(marlin_scale_order(head, frame.cols, options.activations), options.activations);
  MORACLE_ASSIGN(pack.scales, StoredScales::zeroed(at(frame, frame.groups, map), ScaleType::e4m3));
  for (std::int64_t r = 0; r < head.rows; ++r) {
    for (std::int64_t g = 0; g < head.groups; ++g) {
      const float scaled = matrix.scale(r, g) * factor * 128.0F;
      if (std::signbit(scaled) && scaled != 0.0F)
        return unfit(head, "scale", "block scales of 0 or more, the form has no sign", std::to_string(scaled));
      // Bits 14 to 7 of a half that is at least 2, whose top exponent bit is set: 5 exponent and 3 mantissa bits.
      const std::uint16_t half = scaled < 2.0F ? std::uint16_t{0} : encode_f16(scaled);
      if (half >= 0x7C00U) return unfit(head, "scale", "block scales times their factor within f16", "one beyond");
      pack.scales.put_bits(r, g, static_cast<std::uint16_t>(half >> 7U));
    }
  }
  const float gain = (pack.type == ScaleType::f16 ? 0x1p7F : 0x1p119F) / factor;
  for (float& global : pack.head.global_scales) {
    pack.globals.push_back(global * gain);
    if (!std::isfinite(pack.globals.back())) return unfit(head, "scale", "a global scale below 512", "one beyond");
    // What the executor and the inverse multiply with is what the kernel was given.
    global = pack.globals.back() / gain;
  }
  MORACLE_ASSIGN(pack.bias, store_marlin_bias(matrix, frame));
  return pack;
}

float MarlinNvfp4Pack::scale(std::int64_t row, std::int64_t group) const {
  return decode_f16(static_cast<std::uint16_t>(scales.bits_at(row, group) << 7U)) / (128.0F * factor);
}

std::size_t MarlinNvfp4Pack::bytes() const {
  return weight.bytes().size() + scales.bytes().size() + 4 * globals.size() + bytes_of(bias);
}

}  // namespace moracle::layout
