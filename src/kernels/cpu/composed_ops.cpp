// Instruction sets that add to another one's kernels.
#include "kernels/cpu/amx/amx_runs.h"
#include "kernels/cpu/integer_kernels.h"
#include "kernels/cpu/panel.h"

namespace moracle::cpu {

namespace {

PanelOps with_integers(PanelOps ops, const IntegerKernels& kernels) {
  ops.q4_i8 = kernels.q4;
  ops.q8_i8 = kernels.q8;
  ops.e2m1_i8 = kernels.e2m1;
  ops.q4_i16 = kernels.q4_i16;
  ops.q8_i16 = kernels.q8_i16;
  ops.e2m1_i16 = kernels.e2m1_i16;
  ops.q4_planes = kernels.q4_planes;
  ops.q8_planes = kernels.q8_planes;
  ops.e2m1_planes = kernels.e2m1_planes;
  ops.encode8 = kernels.encode8;
  ops.encode16 = kernels.encode16;
  ops.encode_planes = kernels.encode_planes;
  return ops;
}

PanelOps quantizing(PanelOps ops, InputForm input) {
  ops.quantized_input = input;
  ops.e2m1_input = input;
  return ops;
}

// From so many tokens on, tiles beat the vectors: a tile's time hardly depends on how many of its 16 rows are used.
constexpr std::int64_t kTilesFrom = 3;

// VPDPBUSD takes int4 at 450 GOP/s a core under groups of 128 and 370 under groups of 32, which tiles pass here.
constexpr std::int64_t kBytesFrom = 12;
constexpr std::int64_t kShortBytesFrom = 24;

// Below this, integers of 16 bits on vectors beat the decoding to bf16 that tiles need.
constexpr std::int64_t kFewBelow = 6;

// And so far integers of 8 bits beat it.
constexpr std::int64_t kFewInEightBitsBelow = 16;

// Fewer tokens than these meet bytes in planes: a step of nibbles is decoded by half as many operations as to words.
constexpr std::int64_t kPlanesBelow = 4;

PanelOps with_planes(PanelOps ops) {
  ops.few = &kAvx512VnniPlanesOps;
  ops.few_below = kPlanesBelow;
  return ops;
}

void set_run(CodeKernels& kernels, PanelMultiply run) {
  kernels.run = run;
  kernels.run_from = kTilesFrom;
}

CodeKernels only_run(PanelMultiply run) {
  CodeKernels kernels = {};
  kernels.run = run;
  kernels.run_from = 1;
  return kernels;
}

PanelOps with_amx(PanelOps ops) {
  set_run(ops.q4, kAmxRuns.q4);
  set_run(ops.q8, kAmxRuns.q8);
  set_run(ops.e2m1, kAmxRuns.e2m1);
  set_run(ops.e4m3, kAmxRuns.e4m3);
  set_run(ops.bf16, kAmxRuns.bf16);
  set_run(ops.q4_i8, kAmxIntegerRuns.q4);
  ops.q4_i8.run_from = kBytesFrom;
  ops.q4_i8.short_run_from = kShortBytesFrom;
  set_run(ops.q8_i8, kAmxIntegerRuns.q8);
  ops.bf16_compact = {};  // tiles take plain numbers as they lie, and many tokens gain more by that
  ops.interleaved = true;
  ops.even_rows = true;
  ops.few = &kAvx512VnniOps;
  ops.few_below = kFewBelow;
  ops.of_head = &kAmxIntegerOps;
  return ops;
}

PanelOps planes_with_amx(PanelOps ops) {
  ops.q4_planes = only_run(kAmxIntegerRuns.q4_planes);
  ops.q8_planes = only_run(kAmxIntegerRuns.q8_planes);
  ops.quantized_input = InputForm::i16_planes;
  return ops;
}

PanelOps fast_with_amx(PanelOps ops) {
  ops.quantized_input = InputForm::i8;
  ops.few = &kAvx512VnniFastOps;
  ops.few_below = kFewInEightBitsBelow;
  return ops;
}

}  // namespace

// Tables of one instruction set are constants of their files, so their order of initialization does not matter.
const PanelOps kAvx2Ops = quantizing(with_integers(kAvx2NumberOps, kAvx2IntegerKernels), InputForm::i16);
const PanelOps kAvx2FastOps = quantizing(kAvx2Ops, InputForm::i8);
const PanelOps kAvx512VnniPlanesOps = quantizing(with_integers(kAvx512Ops, kVnniKernels), InputForm::i16_planes);
const PanelOps kAvx512VnniOps = with_planes(quantizing(kAvx512VnniPlanesOps, InputForm::i16));
const PanelOps kAvx512VnniFastOps = quantizing(kAvx512VnniPlanesOps, InputForm::i8);
const PanelOps kAmxOps = with_amx(with_integers(kAvx512Bf16Ops, kVnniKernels));
const PanelOps kAmxIntegerOps = planes_with_amx(kAmxOps);
const PanelOps kAmxFastOps = fast_with_amx(kAmxOps);

}  // namespace moracle::cpu
