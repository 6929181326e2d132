#include "kernels/cuda/decode/launch.cuh"

namespace moracle::cuda {

namespace {

// Launches an instance for the call's weights and sizes; null: there is none.
using Launch = int (*)(const DecodeArgs&, cudaStream_t);
Launch instance_of(const ExpertsArgs& args) {
  struct Instance {
    RecordKind kind;
    std::int32_t hidden;
    std::int32_t intermediate;
    Launch launch;
  };
  static constexpr Instance kInstances[] = {{RecordKind::int4_bf16, 2048, 768, stream_int4_bf16_2048x768},
                                            {RecordKind::int4_f16, 2048, 768, stream_int4_f16_2048x768},
                                            {RecordKind::int8_row, 2048, 768, stream_int8_row_2048x768},
                                            {RecordKind::int8_split, 2048, 768, stream_int8_split_2048x768},
                                            {RecordKind::e4m3_row, 2048, 768, stream_e4m3_row_2048x768},
                                            {RecordKind::e4m3_split, 2048, 768, stream_e4m3_split_2048x768},
                                            {RecordKind::mxfp4, 2048, 768, stream_mxfp4_2048x768},
                                            {RecordKind::mxfp4, 2880, 2880, stream_mxfp4_2880x2880},
                                            {RecordKind::nvfp4, 2048, 768, stream_nvfp4_2048x768},
                                            {RecordKind::bf16, 2048, 768, stream_bf16_2048x768}};
  for (const Instance& instance : kInstances) {
    if (instance.kind == args.pack.records && instance.hidden == args.gate.cols &&
        instance.intermediate == args.gate.rows && args.pack.input == InputKind::bf16)
      return instance.launch;
  }
  return nullptr;
}

}  // namespace

bool can_stream(const ExpertsArgs& args) {
  // Rows an expert, on average, from which reading weights once for every eight of them takes longer than grouped
  // products.
  constexpr int kManyRows = 8;
  const int pairs = args.tokens * args.top_k;
  return args.tokens <= kDecodeTokens && pairs <= kDecodePairs && pairs < kManyRows * args.experts &&
         instance_of(args) != nullptr;
}

int launch_streamed(const ExpertsArgs& args, cudaStream_t stream) {
  constexpr std::size_t kSums = kDecodeSharedSums * kDecodeTokens * 8;
  std::byte* const sums = args.state + kDecodeHeaderBytes;
  const DecodeArgs decode{.weights = args.pack.weights,
                          .expert_bytes = args.pack.expert_bytes,
                          .down = args.down.codes,
                          .x = args.x,
                          .ids = args.ids,
                          .pair_weights = args.weights,
                          .out = args.out,
                          .gate = by_sigmoid(args.activation),
                          .tokens = args.tokens,
                          .top_k = args.top_k,
                          .experts = args.experts,
                          .header = reinterpret_cast<std::uint32_t*>(args.state),
                          .shared_sums = reinterpret_cast<std::uint64_t*>(sums),
                          .hidden = reinterpret_cast<std::uint16_t*>(sums + kSums * sizeof(std::uint64_t)),
                          .hidden_buffer = std::int64_t{kDecodePairs} * kDecodeIntermediate};
  return instance_of(args)(decode, stream);
}

}  // namespace moracle::cuda
