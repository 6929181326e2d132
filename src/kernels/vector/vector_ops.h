// The inner loops that every model shares beside its expert kernels: attention, norms, activations, routing.
#pragma once

#include <cstdint>

namespace moracle {

// One token of a gated delta rule (Yang et al., arXiv 2412.06464) on `n` columns of a state S [rows, n]:
//   S = diag(decay) S;  m = k^T S;  S = S + k (beta (v - m))^T;  out = q^T S
// Columns do not depend on each other; sums over rows are in ascending order.
struct DeltaStep {
  std::int64_t rows = 0;
  std::int64_t n = 0;
  const float* key = nullptr;    // [rows]
  const float* query = nullptr;  // [rows]
  const float* value = nullptr;  // [n]
  const float* decay = nullptr;  // [rows], or one number for all of them
  bool decay_by_row = false;
  float beta = 0.0F;
  float* state = nullptr;  // [rows, n], row after row
  float* out = nullptr;    // [n]
};

// One implementation of each loop per instruction set. All operands are f32 and may be unaligned; `n` may be any
// length. Every result depends on its own inputs alone and is accumulated in one fixed order, so that a row computed
// in a tile of many equals the row computed alone, bit by bit.
struct VectorOps {
  const char* name;  // "scalar", "avx2", "avx512", "neon"
  float (*dot)(const float* a, const float* b, std::int64_t n);
  // C[m, n] = A[m, k] B[n, k]^T: rows against rows, as a router has them.
  void (*dot_rows)(std::int64_t m, std::int64_t n, std::int64_t k, const float* a, std::int64_t lda, const float* b,
                   std::int64_t ldb, float* c, std::int64_t ldc);
  // C[m, n] = A[m, k] B[k, n], or C += with `accumulate`; each element sums over k in ascending order.
  // `next`, unless null, is what will be read after B, [k * n] floats: the CPU is told of it on the way.
  void (*gemm)(std::int64_t m, std::int64_t n, std::int64_t k, const float* a, std::int64_t lda, const float* b,
               std::int64_t ldb, float* c, std::int64_t ldc, bool accumulate, const float* next);
  void (*add)(const float* x, float* y, std::int64_t n);        // y += x
  void (*scale)(float factor, float* x, std::int64_t n);        // x *= factor
  float (*max)(const float* x, std::int64_t n);                 // -inf when n is 0; NaN elements are skipped or kept
  bool (*finite)(const float* x, std::int64_t n);               // neither NaN nor infinity
  float (*exp_sub_sum)(float shift, float* x, std::int64_t n);  // x = exp(x - shift); returns the sum
  void (*silu_mul)(const float* gate, const float* up, float* out, std::int64_t n);    // gate * sigmoid(gate) * up
  void (*sigmoid_mul)(const float* gate, const float* x, float* out, std::int64_t n);  // sigmoid(gate) * x
  // y = weight * x / sqrt(mean(x^2) + eps); y may be x.
  void (*rms_norm)(const float* x, const float* weight, float eps, float* y, std::int64_t n);
  // (a, b) = (a cos - b sin, b cos + a sin), elementwise.
  void (*rotate)(float* a, float* b, const float* cos, const float* sin, std::int64_t n);
  void (*delta_step)(const DeltaStep& step);
  // gemm where B holds bf16 numbers or integers, which are exact in f32: the bits of gemm over the widened B.
  void (*gemm_bf16)(std::int64_t m, std::int64_t n, std::int64_t k, const float* a, std::int64_t lda,
                    const std::uint16_t* b, std::int64_t ldb, float* c, std::int64_t ldc, bool accumulate,
                    const std::uint16_t* next);
  void (*gemm_int8)(std::int64_t m, std::int64_t n, std::int64_t k, const float* a, std::int64_t lda,
                    const std::int8_t* b, std::int64_t ldb, float* c, std::int64_t ldc, bool accumulate,
                    const std::int8_t* next);
  void (*multiply)(const float* x, float* y, std::int64_t n);  // y *= x
  void (*widen_bf16)(const std::uint16_t* x, float* y, std::int64_t n);
  void (*widen_int8)(float scale, const std::int8_t* x, float* y, std::int64_t n);  // y = scale * x
};

[[nodiscard]] const VectorOps& scalar_vector_ops();
[[nodiscard]] const VectorOps& avx2_vector_ops();    // callable where the CPU has AVX2 and FMA
[[nodiscard]] const VectorOps& avx512_vector_ops();  // callable where the CPU has AVX-512 F, BW, DQ, VL

}  // namespace moracle
