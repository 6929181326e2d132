// AVX-VNNI: integer activations, by the dot products of VNNI on 8 lanes, which CPUs without AVX-512 have, too.
//
// Compiled on x86_64 with -mavx2 -mfma -mf16c -mavxvnni
#include "kernels/cpu/gemm/gemm-inl.h"
#include "kernels/cpu/ops/activation_kernels.h"
#include "kernels/cpu/simd/avx2.h"
#include "kernels/cpu/targets/targets.h"
#include "kernels/cpu/weights/codes_avx2_int-inl.h"

namespace moracle::cpu {
namespace {

using namespace avx2;

struct V : Avx2<V> {};

// Sums of 32 bits: no group is cut into blocks, and 8-bit weights are multiplied as bytes, too.
struct Bytes : IntegerForm<V, std::int8_t> {
  using Sums = UnsignedSums<V>;
  static constexpr ActDtype kAct = ActDtype::i8;
  static __m256i madd(__m256i w, __m256i x, __m256i sum) {
    __asm__("%{vex%} vpdpbusd %2, %1, %0" : "+x"(sum) : "x"(w), "x"(x));
    return sum;
  }
};
struct Words : Int16Form<V> {
  static __m256i madd(__m256i w, __m256i x, __m256i sum) {
    __asm__("%{vex%} vpdpwssd %2, %1, %0" : "+x"(sum) : "x"(w), "x"(x));
    return sum;
  }
};
template <class D>
struct ByWords : D {
  using Form = Words;
};

constexpr ActivationMask kBytes = ActivationMask::fast | ActivationMask::int8;
constexpr std::uint16_t kDecodedFrom = 24;  // tokens; fewer are served as fast by tiles that decode for themselves

constexpr GemmKernel kGemm[] = {
    gemm_row<ByteInt4<Bytes>, kBytes>(1),
    gemm_row<ByteInt8<Bytes>, kBytes>(1),
    gemm_row<ByteE2m1<Bytes, kDoubledE2m1Plus12, 12>, ActivationMask::fast>(1),
    gemm_row<ByWords<I16Int4<V>>, ActivationMask::exact>(1),
    gemm_row<ByWords<I16Int8<V>>, ActivationMask::exact>(1),
    gemm_row<ByWords<I16E2m1<V>>, ActivationMask::exact>(1),
    decoded_row<ByWords<I16E2m1<V>>, ActivationMask::exact>(kDecodedFrom),
    decoded_row<ByWords<I16ShortE2m1<V>>, ActivationMask::exact>(kDecodedFrom, Groups::up_to_16),
};

}  // namespace

template <>
const Target& target_named<"avxvnni">() {
  static constinit const Target kTarget{"avxvnni", kGemm, &kAvx2Activations, avx2_vector_ops};
  return kTarget;
}

}  // namespace moracle::cpu
