// Marlin's index maps.
#include <array>
#include <utility>

#include "base/checked.h"
#include "kernels/layouts/marlin.h"

namespace moracle::layout {
namespace {

constexpr std::array<std::int64_t, 4> kSwapWithin4{0, 2, 1, 3};  // its own inverse
// ElementMap of each of 8 elements that are taken in the order 0, 2, 4, 6, 1, 3, 5, 7.
constexpr std::array<std::int64_t, 8> kEvenFirst{0, 4, 1, 5, 2, 6, 3, 7};

// A tile of 16 inputs x 64 outputs is 128 words of 4-bit codes: a thread holds 8 codes of each of 4 words, ordered so
// that one mask yields pairs of neighbours.
struct Slot {
  std::int64_t tile, thread, word, value;
};
constexpr Slot slot_16(const Grid& grid, std::int64_t n, std::int64_t k) {
  const std::int64_t kr = k % 16;
  const std::int64_t nr = n % 64;
  return {.tile = k / 16 * (grid.rows / 64) + n / 64,
          .thread = nr % 8 * 4 + kr % 8 / 2,
          .word = nr / 16,
          .value = kr % 2 + 2 * (kr / 8) + 4 * (nr % 16 / 8)};
}
// 8-bit activations: tiles of 32 x 32.
constexpr Slot slot_32(const Grid& grid, std::int64_t n, std::int64_t k) {
  const std::int64_t kr = k % 32;
  const std::int64_t nr = n % 32;
  return {.tile = k / 32 * (grid.rows / 32) + n / 32,
          .thread = nr % 8 * 4 + kr % 16 / 4,
          .word = nr / 16 * 2 + nr % 16 / 8,
          .value = kr % 4 + 4 * (kr / 16)};
}

// Positions count codes: 8 of 4 bits or 4 of 8 bits a word.
std::int64_t weight_4(const Grid& grid, std::int64_t n, std::int64_t k) {
  const Slot s = slot_16(grid, n, k);
  return (s.tile * 128 + s.thread * 4 + s.word) * 8 + s.value % 2 * 4 + s.value / 2;
}
std::int64_t weight_8(const Grid& grid, std::int64_t n, std::int64_t k) {
  const Slot s = slot_16(grid, n, k);
  return (s.tile * 256 + s.thread * 8 + s.word * 2 + s.value / 4) * 4 +
         kSwapWithin4[static_cast<std::size_t>(s.value % 4)];
}
std::int64_t weight_4_wide(const Grid& grid, std::int64_t n, std::int64_t k) {
  const Slot s = slot_32(grid, n, k);
  return (s.tile * 128 + s.thread * 4 + s.word) * 8 + (s.value < 4 ? 2 * s.value : 2 * (s.value - 4) + 1);
}
std::int64_t weight_8_wide(const Grid& grid, std::int64_t n, std::int64_t k) {
  const Slot s = slot_32(grid, n, k);
  return (s.tile * 256 + s.thread * 8 + s.word * 2 + s.value / 4) * 4 + s.value % 4;
}

// out[64 b + 8 i + j] = in[64 b + i + 8 j]
std::int64_t grouped(const Grid& grid, std::int64_t n, std::int64_t g) {
  return g * grid.rows + n / 64 * 64 + n % 8 * 8 + n % 64 / 8;
}
// out[32 b + 8 i + t] = in[32 b + 2 i + t % 2 + 8 (t / 2)]
std::int64_t single(const Grid& grid, std::int64_t n, std::int64_t g) {
  return g * grid.rows + n / 32 * 32 + n % 8 / 2 * 8 + n % 32 / 8 * 2 + n % 2;
}

std::int64_t within_4(std::int64_t at) {
  return at / 4 * 4 + kSwapWithin4[static_cast<std::size_t>(at % 4)];
}
std::int64_t grouped_within_4(const Grid& grid, std::int64_t n, std::int64_t g) {
  return within_4(grouped(grid, n, g));
}
std::int64_t single_within_4(const Grid& grid, std::int64_t n, std::int64_t g) {
  return within_4(single(grid, n, g));
}
std::int64_t grouped_even_first(const Grid& grid, std::int64_t n, std::int64_t g) {
  const std::int64_t at = grouped(grid, n, g);
  return at / 8 * 8 + kEvenFirst[static_cast<std::size_t>(at % 8)];
}

}  // namespace

MarlinScaleOrder marlin_scale_order(const MatrixHead& head, std::int64_t size_k, MarlinActivations activations) {
  const auto kind = head.key.granularity.kind;
  const bool has_groups = kind == Granularity::Kind::group || kind == Granularity::Kind::block;
  const bool grouped_scales = has_groups && head.group_cols < size_k && activations == MarlinActivations::bits16;
  return grouped_scales ? MarlinScaleOrder::grouped : MarlinScaleOrder::single;
}

ElementMap marlin_scale_map(MarlinScaleOrder order) {
  return order == MarlinScaleOrder::grouped ? grouped : single;
}

ElementMap marlin_byte_scale_map(MarlinScaleOrder order, MarlinActivations activations) {
  if (activations != MarlinActivations::bits16) return marlin_scale_map(order);
  return order == MarlinScaleOrder::grouped ? grouped_within_4 : single_within_4;
}

ElementMap marlin_zero_map(int bits, MarlinActivations activations) {
  if (activations != MarlinActivations::bits16) return grouped;
  return bits == 4 ? grouped_even_first : grouped_within_4;
}

ElementMap marlin_weight_map(int bits, MarlinActivations activations) {
  if (activations == MarlinActivations::bits16) return bits == 4 ? weight_4 : weight_8;
  return bits == 4 ? weight_4_wide : weight_8_wide;
}

Result<Grid> marlin_linear_part(const MatrixHead& head) {
  constexpr Sizes kTall{.hidden = {128, true}, .intermediate = {64, true}};
  constexpr Sizes kWide{.hidden = {64, true}, .intermediate = {128, true}};
  MORACLE_ASSIGN(const Grid tall, padded_part(head, Role::linear, kTall));
  MORACLE_ASSIGN(const Grid wide, padded_part(head, Role::linear, kWide));
  const auto stored = [](const Grid& grid) { return checked_mul(grid.rows, grid.cols); };
  if (!stored(tall) || !stored(wide)) {
    return Error{.code = "layout.shape",
                 .where = head.name,
                 .wanted = "a matrix whose size can be counted",
                 .found = std::to_string(head.rows) + " x " + std::to_string(head.cols)};
  }
  const auto cost = [&](const Grid& grid) { return std::pair(*stored(grid), grid.rows + grid.cols); };
  return cost(wide) < cost(tall) ? wide : tall;
}

Sizes marlin_nvfp4_sizes(std::int64_t hidden) {
  if (hidden % 128 == 0) return {.hidden = {128}, .intermediate = {64, true}};
  return {.hidden = {64}, .intermediate = {128, true}};
}

}  // namespace moracle::layout
