#include "kernels/vector/select.h"

namespace moracle {

const VectorOps& vector_ops(CpuFeatures features) {
#if defined(__x86_64__)
  if (has(features, CpuFeature::avx512)) return avx512_vector_ops();
  if (has(features, CpuFeature::avx2)) return avx2_vector_ops();
#else
  static_cast<void>(features);
#endif
  return scalar_vector_ops();
}

}  // namespace moracle
