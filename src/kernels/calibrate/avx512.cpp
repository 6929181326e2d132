// Calibration loops for AVX-512.
//
// Compiled on x86_64 with -mavx512f -mavx512bw -mavx512vl -mavx512dq -mfma -mf16c
#include <immintrin.h>

#include "kernels/calibrate/loops-inl.h"
#include "kernels/cpu/simd/avx512.h"

namespace moracle::cpu {
namespace {

struct V : Avx512<V> {};

}  // namespace

const CalibrationOps kAvx512Calibration{"f32 FMA, 512 bit", kChains * 16 * 2.0, fma_chains<V>,
                                        read_all<V>,        expand_all4<V>,     expand_all8<V>};

}  // namespace moracle::cpu
