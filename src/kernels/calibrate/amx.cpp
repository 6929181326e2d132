// Calibration loops for AMX.
//
// Compiled on x86_64 with -mavx512f -mavx512bw -mavx512vl -mavx512dq -mfma -mf16c
// Compiled on x86_64 with -mavx512vbmi -mavx512bf16 -mavx512vnni -mamx-tile -mamx-bf16 -mamx-int8
#include <immintrin.h>

#include "kernels/calibrate/loops-inl.h"

namespace moracle::cpu {
namespace {

struct V {};

// Tile loads and stores are opaque to the compiler, which must not move ordinary accesses of the same memory over them.
inline void fence() {
  __asm__ volatile("" ::: "memory");
}

struct alignas(64) TileConfig {
  std::uint8_t palette = 1;
  std::uint8_t start_row = 0;
  std::uint8_t reserved[14] = {};
  std::uint16_t row_bytes[16] = {};
  std::uint8_t rows[16] = {};
};
static_assert(sizeof(TileConfig) == 64);

constexpr int kRows = 16;
constexpr int kLine = 64;  // bytes of a tile's row
constexpr int kSums = 6;  // a multiply takes 16 cycles and its sum may be added to after 52: six tiles of sums cover it

// All eight tiles full: sums of zero, factors of small numbers in either type.
void configure() {
  TileConfig config;
  for (int tile = 0; tile < 8; ++tile) {
    config.row_bytes[tile] = kLine;
    config.rows[tile] = kRows;
  }
  fence();
  _tile_loadconfig(&config);
  _tile_zero(0);
  _tile_zero(1);
  _tile_zero(2);
  _tile_zero(3);
  _tile_zero(4);
  _tile_zero(5);
  alignas(64) std::uint16_t factors[kRows * kLine / 2];
  for (std::uint16_t& factor : factors) factor = 0x3E01;  // as bf16 0.126, as bytes 1 and 62
  fence();
  _tile_loadd(6, factors, kLine);
  _tile_loadd(7, factors, kLine);
}

// Kernels configure the tiles before each run, so they are left as they are here too.
void store(float* out) {
  alignas(64) float sums[kRows * kRows];
  _tile_stored(0, sums, kLine);
  fence();
  for (int i = 0; i < kRows; ++i) out[i] = sums[i];
}

void bf16_tiles(std::int64_t rounds, float* out) {
  configure();
  for (std::int64_t round = 0; round < rounds; ++round) {
    _tile_dpbf16ps(0, 6, 7);
    _tile_dpbf16ps(1, 6, 7);
    _tile_dpbf16ps(2, 6, 7);
    _tile_dpbf16ps(3, 6, 7);
    _tile_dpbf16ps(4, 6, 7);
    _tile_dpbf16ps(5, 6, 7);
  }
  store(out);
}

void int8_tiles(std::int64_t rounds, float* out) {
  configure();
  for (std::int64_t round = 0; round < rounds; ++round) {
    _tile_dpbssd(0, 6, 7);
    _tile_dpbssd(1, 6, 7);
    _tile_dpbssd(2, 6, 7);
    _tile_dpbssd(3, 6, 7);
    _tile_dpbssd(4, 6, 7);
    _tile_dpbssd(5, 6, 7);
  }
  store(out);
}

}  // namespace

const CalibrationOps kAmxBf16Calibration{
    "bf16 tiles", kSums* kRows* kRows * 32 * 2.0, bf16_tiles, read_all<V>, expand_all4<V>, expand_all8<V>};
const CalibrationOps kAmxInt8Calibration{
    "int8 tiles", kSums* kRows* kRows * 64 * 2.0, int8_tiles, read_all<V>, expand_all4<V>, expand_all8<V>};

}  // namespace moracle::cpu
