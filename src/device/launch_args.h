// Arguments of the kernels that a device object offers. Plain structs: both sides of the C table compile this header.
//
// Pointers belong to the device of the stream. A launch function enqueues, never blocks and never allocates; it may be
// captured in a graph.
#pragma once

#include <cstddef>
#include <cstdint>

namespace moracle {

// Codes of weights on a device, row by row, columns ascending, the lowest bits of a byte first.
enum class DeviceCode : std::int32_t { int4, int8, e2m1, e4m3, bf16, f16, f32 };
enum class DeviceScale : std::int32_t { none, f32, f16, bf16, e4m3, e8m0 };

// Weights in records, which the kernels that stream them read (kernels/cuda/decode/records.h). `row`: one scale a row,
// in f32. `split`: a scale of 128 columns as the sum of two bf16 numbers. mxfp4_row: scales as steps under one of the
// row, so that E4M3 holds codes times their steps.
enum class RecordKind : std::int32_t {
  none,  // rows one after the other
  int4_bf16,
  int4_f16,
  int8_row,
  int8_split,
  e4m3_row,
  e4m3_split,
  mxfp4,
  mxfp4_row,
  nvfp4,
  bf16
};

// What a kernel makes of its f32 inputs before it multiplies them. `split` keeps 24 bits as three bf16 numbers; the
// rest are the activation keys of the schemes.
enum class InputKind : std::int32_t {
  bf16,
  split,
  int8_token,
  int8_tensor,
  e4m3_token,
  e4m3_group,
  e4m3_tensor,
  mx_e2m1,
  mx_e2m3,
  mx_e3m2,
  mx_e4m3,
  nvfp4
};

enum class GateFn : std::int32_t { silu, gelu_tanh, swigluoai, swiglustep };
struct GateArgs {
  GateFn fn;
  float alpha;
  float beta;
  float limit;
};

inline constexpr std::uint64_t kAbsent = ~std::uint64_t{0};

// How a matrix lies in records, which kernels that stream weights read (kernels/cuda/decode/records.h): tiles of 16
// rows, each tile in records of `columns` columns. Gate and up share tiles, eight rows each.
struct RecordArgs {
  std::int32_t records;    // of a tile
  std::int32_t columns;    // of a record, a multiple of 64
  std::int32_t tile_rows;  // of this matrix in a tile
  std::int32_t first_row;  // of them in the tile
  std::uint64_t bytes;     // of a record
  std::uint64_t tile_bytes;
};

// One matrix [rows, cols] within the pack of an expert. Offsets in bytes from the expert's first byte; kAbsent where
// the scheme has no such part. A row's codes are padded to a multiple of kColumnStep columns with codes of zero.
struct MatrixArgs {
  std::int32_t rows;
  std::int32_t cols;
  std::int32_t padded;         // columns stored
  std::int32_t group;          // columns that share a scale; `padded` where the row has one
  std::int32_t groups;         // scales of a row
  std::uint64_t codes;         // [rows, padded], or the first tile of records, which contain scales and bias
  std::uint64_t scales;        // [rows, groups]
  std::uint64_t zeros;         // [rows, groups], a byte each
  std::uint64_t bias;          // [rows] f32
  std::uint64_t order;         // [cols] int32: input column of each stored column
  std::uint64_t global_scale;  // f32
  std::uint64_t input_scale;   // f32
  RecordArgs records;
};
inline constexpr std::int32_t kColumnStep = 64;

// How the weights of a pack are to be read.
struct PackArgs {
  const std::uint8_t* weights;
  std::uint64_t expert_bytes;  // from expert to expert
  DeviceCode code;
  DeviceScale scale;
  InputKind input;
  RecordKind records;
};

// The routed experts of one layer. out[tokens, hidden] = sum over a token's choices, in their order, of weight *
// w2(act(w13 x)). Ids outside [0, experts) contribute nothing.
struct ExpertsArgs {
  PackArgs pack;
  MatrixArgs gate;
  MatrixArgs up;
  MatrixArgs down;
  GateArgs activation;
  std::int32_t experts;
  std::int32_t tokens;
  std::int32_t top_k;
  // Forms of the layer's input: 0 one for each token, 1 one for each pair, 2 one for each pair and each of gate and up.
  std::int32_t planes;
  const float* x;           // [tokens, hidden]
  const std::int32_t* ids;  // [tokens, top_k]
  const float* weights;     // [tokens, top_k]
  float* out;               // [tokens, hidden]
  // Scratch.
  std::int32_t* offsets;   // [experts + 1]
  std::int32_t* pairs;     // [tokens * top_k]
  std::int32_t* inverse;   // [tokens * top_k]
  std::int32_t* tiles;     // [2 * most tiles + 1]; of packs in records [4 * (1 + most row tiles)]
  std::uint16_t* x_codes;  // bf16, of all `planes`
  float* x_scales;
  float* h;  // [tokens * top_k, intermediate]
  std::uint16_t* h_codes;
  float* h_scales;
  float* y;              // [tokens * top_k, hidden]; of packs in records bf16
  std::int32_t* counts;  // of packs in records [pair_shares, experts]
  // Of kDecodeStateBytes, all ones before the first call, kept from call to call: one for all layers of a device.
  std::byte* state;
};
inline constexpr std::int32_t kPairTileRows = 64;
inline constexpr std::int32_t kMostExperts = 4096;

// What one pass in a single launch (kernels/cuda/decode) serves; see kernels/cuda/prefill for larger calls.
inline constexpr std::int32_t kDecodeTokens = 64;
inline constexpr std::int32_t kDecodePairs = 512;
inline constexpr std::int32_t kDecodeExperts = 512;
// 16-byte words of the rows that blocks pass to each other in one call: what DeepSeek-V3's FP8 blocks take, of inputs
// codes in 16 bits and scales, of hidden rows these and f32. Scales end with a cache line.
inline constexpr std::int64_t kDecodeRowWords =
    std::int64_t{kDecodeTokens} * (7168 / 8 + 16) + std::int64_t{kDecodePairs} * (2048 / 8 + 8 + 2048 / 4);
// A header, sums of output tiles that two blocks share, and the rows of two calls.
inline constexpr std::size_t kDecodeHeaderBytes = 256;
inline constexpr std::size_t kDecodeSharedSums = 128;  // tiles
inline constexpr std::size_t kDecodeStateBytes =
    kDecodeHeaderBytes + kDecodeSharedSums * kDecodeTokens * 8 * 8 + std::size_t{2} * kDecodeRowWords * 16;

// Larger calls over packs in records (kernels/cuda/prefill): blocks that sort pairs, and tiles of 64 or 128 of them.
inline constexpr std::int32_t kPairsAShare = 2048;
constexpr std::int64_t pair_shares(std::int64_t pairs) {
  return (pairs + kPairsAShare - 1) / kPairsAShare;
}
constexpr std::int64_t most_row_tiles(std::int64_t pairs, std::int64_t experts) {
  return (pairs < experts ? pairs : experts) + pairs / 64;
}

// Tiles of kPairTileRows pairs of one expert, at most.
constexpr std::int64_t most_tiles(std::int64_t pairs, std::int64_t experts) {
  return (pairs < experts ? pairs : experts) + pairs / kPairTileRows;
}

// y[tokens, rows] = x[tokens, cols] W^T + bias.
struct LinearArgs {
  PackArgs pack;
  MatrixArgs matrix;
  std::int32_t tokens;
  const float* x;
  float* y;
  std::uint16_t* x_codes;
  float* x_scales;
};

// out[tokens, cols] = rows of a matrix by id.
struct EmbedArgs {
  PackArgs pack;
  MatrixArgs matrix;
  std::int32_t tokens;
  const std::int32_t* ids;
  float* out;
};

// out = x / sqrt(mean(x^2) + eps) * weight, a row at a time.
struct RmsNormArgs {
  std::int32_t rows;
  std::int32_t cols;
  float eps;
  const float* x;
  const float* weight;
  float* out;
};

struct AddArgs {
  std::int64_t count;
  const float* x;
  float* sum;  // sum += x
};

enum class RouteScore : std::int32_t { softmax, logit, sigmoid, sqrt_softplus };
enum class RouteGroups : std::int32_t { none, best_two, best };
enum class RouteWeight : std::int32_t { score, softmax_of_chosen, sigmoid_of_logit };

// ids and weights [tokens, top_k], best first, equal scores by the lower index. A place that no expert takes has an id
// of -1 and a weight of 0: those beyond the experts there are, and prescribed ids that are none. A row of logits that
// is not finite has nothing else, and lowers bad_layer of its token to `layer`.
struct RouteArgs {
  std::int32_t tokens;
  std::int32_t experts;
  std::int32_t top_k;
  RouteScore score;
  RouteGroups groups_by;
  RouteWeight weight;
  std::int32_t renormalize;
  float factor;
  std::int32_t groups;
  std::int32_t top_groups;
  const float* logits;             // [tokens, experts]
  const float* bias;               // [experts] or null: added for the choice alone
  const std::int32_t* prescribed;  // [tokens, top_k] or null: the ids of a hash layer
  std::int32_t* ids;
  float* weights;
  std::int32_t layer;
  std::int32_t* bad_layer;  // [tokens] or null
};
inline constexpr std::int32_t kMostRouted = 1024;  // experts that a block of the router holds

// The k largest of each row, best first, equal ones by the lower index.
struct TopKArgs {
  std::int32_t rows;
  std::int32_t cols;
  std::int32_t k;
  const float* x;
  float* values;      // [rows, k]
  std::int32_t* ids;  // [rows, k]
};

}  // namespace moracle
