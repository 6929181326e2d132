// Micro-loops that measure what this machine can do at best, and the plain alternative that kernels are held against.
//
// Included by the per-ISA files: plain structs only.
#pragma once

#include <cstddef>
#include <cstdint>

namespace moracle::cpu {

// Codes of one matrix block in rows, dequantized to bf16. 4-bit codes lie so that a compiler can vectorize the plain
// loop: in each group of `group` columns, byte i holds column i (low half) and column i + group / 2 (high half).
struct ExpandArgs {
  const std::uint8_t* codes;  // [rows, cols * bits / 8]
  const float* scales;        // [rows, cols / group]
  const float* table;         // value of each code; null: code - zero
  float zero;
  std::int64_t rows;
  std::int64_t cols;   // a multiple of group
  std::int64_t group;  // even
  std::uint16_t* out;  // [rows, cols], round to nearest even
};

struct CalibrationOps {
  const char* unit;        // what `compute` measures
  double flops_per_round;  // of one round of `compute`
  // Independent multiply-adds in registers; writes something to out[0..15] so that they are not optimized away.
  void (*compute)(std::int64_t rounds, float* out);
  // Reads `bytes` (a multiple of 4096, 64-byte aligned) as `streams` (1 or 8) concurrent sequential streams.
  std::uint64_t (*read)(const std::byte* data, std::int64_t bytes, int streams);
  void (*expand4)(const ExpandArgs&);
  void (*expand8)(const ExpandArgs&);
};

extern const CalibrationOps kAvx2Calibration;
extern const CalibrationOps kAvx2WordsCalibration;
extern const CalibrationOps kAvx2BytesCalibration;
extern const CalibrationOps kAvxVnniCalibration;
extern const CalibrationOps kAvxVnniWordsCalibration;
extern const CalibrationOps kAvx512Calibration;
extern const CalibrationOps kAvx512Bf16Calibration;
extern const CalibrationOps kAvx512VnniCalibration;
extern const CalibrationOps kAvx512VnniWordsCalibration;
extern const CalibrationOps kAmxBf16Calibration;
extern const CalibrationOps kAmxInt8Calibration;

}  // namespace moracle::cpu
