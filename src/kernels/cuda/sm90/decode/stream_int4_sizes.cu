// int4 under scales of 128 columns and 16-bit inputs, of further sizes.
#include "kernels/cuda/sm90/decode/decode.cuh"

namespace moracle::cuda {

namespace {

template <RecordKind kKind, int kHidden, int kIntermediate, int kTokens>
using Plan = DecodePlan<StreamedInt4<kKind>, kHidden, kIntermediate, kTokens, 8, 6>;

template <RecordKind kKind, int kHidden, int kIntermediate>
constexpr DecodeInstance kSized = instance_of<Plan<kKind, kHidden, kIntermediate, kFewDecodeTokens>,
                                              Plan<kKind, kHidden, kIntermediate, kDecodeTokens>>();

constexpr DecodeInstance kInstances[] = {
    // Qwen3.5-35B-A3B and Qwen3-Next-80B-A3B
    kSized<RecordKind::int4_bf16, 2048, 512>,
    kSized<RecordKind::int4_f16, 2048, 512>,
    // GLM-4.7-Flash
    kSized<RecordKind::int4_bf16, 2048, 1536>,
    kSized<RecordKind::int4_f16, 2048, 1536>,
    // MiniMax-M2
    kSized<RecordKind::int4_bf16, 3072, 1536>,
    kSized<RecordKind::int4_f16, 3072, 1536>,
    // GLM-4.5-Air
    kSized<RecordKind::int4_bf16, 4096, 1408>,
    kSized<RecordKind::int4_f16, 4096, 1408>,
    // Qwen3-235B-A22B
    kSized<RecordKind::int4_bf16, 4096, 1536>,
    kSized<RecordKind::int4_f16, 4096, 1536>,
};

}  // namespace

std::span<const DecodeInstance> sized_int4_instances() {
  return kInstances;
}

}  // namespace moracle::cuda
