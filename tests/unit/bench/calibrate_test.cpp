#include "bench/calibrate.h"

#include <gtest/gtest.h>

#include <set>

namespace moracle {
namespace {

constexpr CpuFeatures kWide = CpuFeature::avx2 | CpuFeature::avx512;

const cpu::CalibrationOps* ops_of(CpuFeatures features, CpuFeatures wanted, const Factors& factors = {}) {
  Machine machine;
  machine.cpu_features = features;
  return calibration_ops(machine, wanted, factors);
}

TEST(Calibration, MeasuresTheInstructionsThatAKernelUses) {
  const CpuFeatures vnni = kWide | CpuFeature::avx512_vnni;
  const CpuFeatures bf16 = kWide | CpuFeature::avx512_bf16;
  const CpuFeatures tiles = vnni | CpuFeature::avx512_bf16 | CpuFeature::amx_bf16 | CpuFeature::amx_int8;
  const auto avx2 = static_cast<CpuFeatures>(CpuFeature::avx2);
  const Factors bytes{.weight_bits = 8, .input_bits = 8};
  const Factors nibbles{.weight_bits = 4, .input_bits = 8};
  EXPECT_EQ(ops_of(tiles, avx2), &cpu::kAvx2Calibration);
  EXPECT_EQ(ops_of(tiles, avx2, {.weight_bits = 4, .input_bits = 16}), &cpu::kAvx2WordsCalibration);
  EXPECT_EQ(ops_of(tiles, avx2, bytes), &cpu::kAvx2WordsCalibration) << "products of bytes fill its 16-bit sums";
  EXPECT_EQ(ops_of(tiles, avx2, nibbles), &cpu::kAvx2BytesCalibration);
  const CpuFeatures dots = CpuFeature::avx2 | CpuFeature::avx_vnni;
  EXPECT_EQ(ops_of(dots, dots, bytes), &cpu::kAvxVnniCalibration);
  EXPECT_EQ(ops_of(dots, dots, {.weight_bits = 4, .input_bits = 16}), &cpu::kAvxVnniWordsCalibration);
  EXPECT_EQ(ops_of(dots, avx2, bytes), &cpu::kAvx2WordsCalibration) << "not more than the kernel wants";
  EXPECT_EQ(ops_of(tiles, kWide), &cpu::kAvx512Calibration);
  EXPECT_EQ(ops_of(tiles, bf16), &cpu::kAvx512Bf16Calibration);
  EXPECT_EQ(ops_of(tiles, vnni), &cpu::kAvx512VnniWordsCalibration);
  EXPECT_EQ(ops_of(tiles, vnni, bytes), &cpu::kAvx512VnniCalibration);
  EXPECT_EQ(ops_of(tiles, tiles), &cpu::kAmxBf16Calibration);
  EXPECT_EQ(ops_of(tiles, tiles, nibbles), &cpu::kAmxInt8Calibration);
  EXPECT_EQ(ops_of(vnni, tiles, nibbles), &cpu::kAvx512VnniCalibration) << "not more than the machine has";
  EXPECT_EQ(ops_of(0, tiles), nullptr);
}

// Every loop that this machine can run comes to an end and measures something, and its buffer can be read again.
TEST(Calibration, MeasuresAgainAndAgain) {
  const Machine here = probe_machine();
  std::set<const cpu::CalibrationOps*> all;
  for (const CpuFeature feature : all_cpu_features()) {
    for (const int input_bits : {0, 8, 16}) {
      const Factors factors{.weight_bits = 4, .input_bits = input_bits};
      all.insert(calibration_ops(here, static_cast<CpuFeatures>(feature), factors));
    }
  }
  all.erase(nullptr);
  ThreadPool pool(2);
  for (const cpu::CalibrationOps* ops : all) {
    const auto calibrator = Calibrator::make(*ops, pool, std::size_t{1} << 20);
    ASSERT_TRUE(calibrator.ok());
    const Calibration measured = calibrator->measure();
    EXPECT_GT(measured.read_gb_s, 0.0) << ops->unit;
    EXPECT_GT(measured.gflop_s, 0.1) << ops->unit;
    EXPECT_EQ(measured.unit, ops->unit);
    EXPECT_GT(calibrator->read_gb_s(), 0.0) << ops->unit;
  }
}

}  // namespace
}  // namespace moracle
