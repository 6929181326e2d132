#include "kernels/cuda/decode/launch.cuh"

namespace moracle::cuda {

namespace {

// Launches an instance for the call's weights and sizes; null: there is none.
using Launch = int (*)(const DecodeArgs&, cudaStream_t);
Launch instance_of(const StreamedExpertsArgs& args) {
  struct Instance {
    RecordKind kind;
    InputKind input;
    std::int32_t hidden;
    std::int32_t intermediate;
    Launch launch;
  };
  static constexpr Instance kInstances[] = {
      {RecordKind::int4_bf16, InputKind::bf16, 2048, 768, stream_int4_bf16_2048x768},
      {RecordKind::int4_bf16, InputKind::int8_token, 2048, 768, stream_int4_bf16_int8_2048x768},
      {RecordKind::int4_bf16, InputKind::e4m3_token, 2048, 768, stream_int4_bf16_e4m3_2048x768},
      {RecordKind::int4_f16, InputKind::bf16, 2048, 768, stream_int4_f16_2048x768},
      {RecordKind::int4_f16, InputKind::int8_token, 2048, 768, stream_int4_f16_int8_2048x768},
      {RecordKind::int4_f16, InputKind::e4m3_token, 2048, 768, stream_int4_f16_e4m3_2048x768},
      {RecordKind::int4_bf16, InputKind::bf16, 7168, 2048, stream_int4_bf16_7168x2048},
      {RecordKind::int4_f16, InputKind::bf16, 7168, 2048, stream_int4_f16_7168x2048},
      {RecordKind::int8_row, InputKind::bf16, 2048, 768, stream_int8_row_2048x768},
      {RecordKind::int8_row, InputKind::int8_token, 2048, 768, stream_int8_row_int8_2048x768},
      {RecordKind::int8_split, InputKind::bf16, 2048, 768, stream_int8_split_2048x768},
      {RecordKind::e4m3_row, InputKind::bf16, 2048, 768, stream_e4m3_row_2048x768},
      {RecordKind::e4m3_row, InputKind::e4m3_token, 2048, 768, stream_e4m3_row_e4m3_2048x768},
      {RecordKind::e4m3_row, InputKind::e4m3_tensor, 2048, 768, stream_e4m3_row_stored_2048x768},
      {RecordKind::e4m3_split, InputKind::bf16, 2048, 768, stream_e4m3_split_2048x768},
      {RecordKind::e4m3_split, InputKind::e4m3_group, 2048, 768, stream_e4m3_split_groups_2048x768},
      {RecordKind::e4m3_split, InputKind::e4m3_group, 7168, 2048, stream_e4m3_split_groups_7168x2048},
      {RecordKind::mxfp4, InputKind::bf16, 2048, 768, stream_mxfp4_2048x768},
      {RecordKind::mxfp4, InputKind::bf16, 2880, 2880, stream_mxfp4_2880x2880},
      {RecordKind::mxfp4_row, InputKind::e4m3_tensor, 2880, 2880, stream_mxfp4_row_stored_2880x2880},
      {RecordKind::nvfp4, InputKind::bf16, 2048, 768, stream_nvfp4_2048x768},
      {RecordKind::bf16, InputKind::bf16, 2048, 768, stream_bf16_2048x768}};
  for (const Instance& instance : kInstances) {
    if (instance.kind == args.routed.pack.records && instance.input == args.routed.pack.input &&
        instance.hidden == args.routed.gate.cols && instance.intermediate == args.routed.gate.rows)
      return instance.launch;
  }
  return nullptr;
}

}  // namespace

bool can_stream(const StreamedExpertsArgs& args) {
  // Rows an expert, on average, from which reading weights once for every eight of them takes longer than grouped
  // products.
  constexpr int kManyRows = 8;
  const int pairs = args.routed.tokens * args.routed.top_k;
  return args.persistent_scratch != nullptr && args.routed.tokens <= kDecodeTokens && pairs <= kDecodePairs &&
         pairs < kManyRows * args.routed.experts && instance_of(args) != nullptr;
}

int launch_streamed(const StreamedExpertsArgs& args, cudaStream_t stream) {
  std::byte* const scratch = args.persistent_scratch;
  const DecodeArgs decode{.weights = args.routed.pack.weights,
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
  return instance_of(args)(decode, stream);
}

}  // namespace moracle::cuda
