#include "kernels/cuda/decode/launch.cuh"

namespace moracle::cuda {

bool can_stream(const ExpertsArgs& args) {
  // Rows an expert, on average, from which reading weights once for every eight of them takes longer than grouped
  // products.
  constexpr int kManyRows = 8;
  const int pairs = args.tokens * args.top_k;
  return args.tokens <= kDecodeTokens && pairs <= kDecodePairs && pairs < kManyRows * args.experts;
}

int launch_streamed(const ExpertsArgs& args, cudaStream_t stream) {
  constexpr std::size_t kHeader = 256;
  constexpr std::size_t kSums = kDecodeSharedSums * kDecodeTokens * 8;
  std::byte* const sums = args.state + kHeader;
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
  if (args.pack.code == DeviceCode::e2m1) return launch_stream_e2m1(decode, stream);
  return launch_stream_int4(decode, args.pack.scale, stream);
}

}  // namespace moracle::cuda
