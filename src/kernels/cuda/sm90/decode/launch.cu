// Which launches a call over packed tiles takes.
#include "kernels/cuda/sm90/decode/launch.cuh"

#include "kernels/cuda/common/launch.h"
#include "kernels/cuda/sm90/prefill/launch.cuh"

namespace moracle::cuda {

namespace {

constexpr std::span<const DecodeInstance> (*kFiles[])() = {int4_instances, sized_int4_instances, e2m1_instances,
                                                           wide_instances, block_instances};

bool serves(const DecodeInstance& instance, const RoutedExperts& args) {
  return instance.kind == args.pack.records && instance.input == args.pack.input && instance.hidden == args.gate.cols &&
         instance.intermediate == args.gate.rows;
}

// The instance that serves the call in one launch; null: none.
const DecodeInstance* find_instance(const StreamedExpertsArgs& args) {
  // Rows an expert, on average, from which reading weights once for every eight of them takes longer than grouped
  // products.
  constexpr int kManyRows = 8;
  const int pairs = args.routed.tokens * args.routed.top_k;
  if (args.persistent_scratch == nullptr || args.routed.tokens > kDecodeTokens || pairs > kDecodePairs ||
      pairs >= kManyRows * args.routed.experts)
    return nullptr;
  for (const auto file : kFiles) {
    for (const DecodeInstance& instance : file()) {
      if (serves(instance, args.routed)) return &instance;
    }
  }
  return nullptr;
}

// The call as the instance takes it.
DecodeArgs decode_args(const StreamedExpertsArgs& args) {
  std::byte* const scratch = args.persistent_scratch;
  return {.weights = args.routed.pack.weights,
          .expert_bytes = args.routed.pack.expert_bytes,
          .down = args.routed.down.codes,
          .up_scale = args.routed.gate.input_scale,
          .down_scale = args.routed.down.input_scale,
          .x = args.routed.x,
          .ids = args.routed.ids,
          .pair_weights = args.routed.weights,
          .out = args.routed.out,
          .gate = by_sigmoid(args.routed.activation),
          .tokens = args.routed.tokens,
          .top_k = args.routed.top_k,
          .experts = args.routed.experts,
          .header = reinterpret_cast<std::uint32_t*>(scratch),
          .shared_sums = reinterpret_cast<std::uint64_t*>(scratch + kDecodeHeaderBytes),
          .rows = reinterpret_cast<uint4*>(scratch + kDecodeRowsAt),
          .rows_buffer = args.row_words};
}

}  // namespace

int launch(const StreamedExpertsArgs& args, cudaStream_t stream) {
  if (args.routed.tokens == 0) return cudaSuccess;
  const DecodeInstance* const instance = find_instance(args);
  if (instance == nullptr) return launch_grouped(args, stream);
  const auto launch_plan = args.routed.tokens <= kFewDecodeTokens ? instance->few : instance->many;
  return launch_plan(decode_args(args), stream);
}

}  // namespace moracle::cuda
