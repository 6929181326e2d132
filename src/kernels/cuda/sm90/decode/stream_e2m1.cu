#include "kernels/cuda/sm90/decode/decode.cuh"

namespace moracle::cuda {

namespace {

// gpt-oss' sizes.
template <RecordKind kKind, InputKind kInput, int kTokens>
using Square = DecodePlan<StreamedE2m1<kKind>, 2880, 2880, kTokens, 12, 6, kInput>;

template <RecordKind kKind, InputKind kInput = InputKind::bf16>
constexpr DecodeInstance kSquare =
    instance_of<Square<kKind, kInput, kFewDecodeTokens>, Square<kKind, kInput, kDecodeTokens>>();

// Qwen3-30B-A3B's.
template <class Code, int kTokens>
using Narrow = DecodePlan<Code, 2048, 768, kTokens, 8, 6>;

template <class Code>
constexpr DecodeInstance kNarrow = instance_of<Narrow<Code, kFewDecodeTokens>, Narrow<Code, kDecodeTokens>>();

constexpr DecodeInstance kInstances[] = {
    kSquare<RecordKind::mxfp4>, kSquare<RecordKind::mxfp4_row, InputKind::e4m3_tensor>,
    kNarrow<StreamedE2m1<RecordKind::mxfp4>>, kNarrow<StreamedWeights<RecordKind::nvfp4>>};

}  // namespace

std::span<const DecodeInstance> e2m1_instances() {
  return kInstances;
}

}  // namespace moracle::cuda
