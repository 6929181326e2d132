// What a model computes beside its matrices, on one device. Arguments are plain structs, which the model's blocks
// build; their pointers belong to the stream's device, numbers are f32 and lie row by row.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string_view>

#include "device/launch_args.h"
#include "kernels/kernel.h"
#include "kernels/kv_type.h"
#include "scheme/glu.h"
#include "scheme/quant_key.h"

namespace moracle {

// logits[tokens, experts] = x[tokens, hidden] weight[experts, hidden]^T + bias
struct RouterArgs {
  std::int64_t tokens = 0;
  std::int64_t experts = 0;
  std::int64_t hidden = 0;
  const float* x = nullptr;
  const float* weight = nullptr;
  const float* bias = nullptr;  // [experts] or null
  float* logits = nullptr;
};

// out = act(gate) * up
struct GatedArgs {
  std::int64_t count = 0;
  ActivationSpec activation{};
  const float* gate = nullptr;
  const float* up = nullptr;
  float* out = nullptr;
};

// sum += sigmoid(gate) x, a gate for each row. Overwrites x.
struct AddGatedArgs {
  std::int64_t rows = 0;
  std::int64_t cols = 0;
  const float* gate = nullptr;  // [rows]
  float* x = nullptr;
  float* sum = nullptr;
};

// to[i] = from[index[i]], rows of `cols` numbers.
struct GatherArgs {
  std::int64_t rows = 0;
  std::int64_t cols = 0;
  const std::int32_t* index = nullptr;
  const float* from = nullptr;
  float* to = nullptr;
};

// bad[row] = 1 where a number of the row is NaN or infinite, else 0.
struct FiniteArgs {
  std::int64_t rows = 0;
  std::int64_t cols = 0;
  const float* x = nullptr;
  std::uint8_t* bad = nullptr;
};

// A number of a row with what it is ranked by.
struct KeyedNumber {
  double key = 0.0;
  float value = 0.0F;
  std::int32_t col = 0;

  [[nodiscard]] bool before(const KeyedNumber& other) const {
    return key > other.key || (key == other.key && col < other.col);
  }
};

// The k numbers of each row that rank highest, best first, of equal ones the lower column first.
struct RankArgs {
  std::int64_t rows = 0;
  std::int64_t cols = 0;
  std::int64_t k = 1;  // no more than cols
  const float* x = nullptr;
  const std::uint8_t* bad = nullptr;     // [rows]: nothing is written of such a row, since NaN has no rank
  const std::uint64_t* seeds = nullptr;  // [rows] or null, as of TopKQuery
  double temperature = 1.0;              // with seeds
  std::span<KeyedNumber> work{};         // rank_work()
  RankedOutput* out = nullptr;           // [rows, k]
};
[[nodiscard]] std::size_t rank_work(const RankArgs& args);

// cos and sin of every token's position, [tokens, half], times `scale`.
struct RopeTableArgs {
  std::int64_t tokens = 0;
  std::int64_t half = 0;
  const std::int32_t* positions = nullptr;
  const float* inv_freq = nullptr;  // [half]
  float scale = 1.0F;
  float* cos = nullptr;
  float* sin = nullptr;
};
struct RopeTable {
  const float* cos = nullptr;
  const float* sin = nullptr;
};

struct NormArgs {
  const float* weight = nullptr;
  std::int64_t size = 0;  // 0: no norm
  float eps = 0.0F;
};

// Positions of one block of a sequence's state.
inline constexpr std::int64_t kKvBlock = 64;

// A layer's share of the blocks of one sequence.
struct KvBlocks {
  std::byte* memory = nullptr;           // share of block 0
  std::size_t stride = 0;                // bytes from block to block
  const std::uint32_t* table = nullptr;  // blocks of the sequence, in order

  [[nodiscard]] std::byte* block(std::int64_t index) const {
    return memory + static_cast<std::size_t>(table[index]) * stride;
  }
};

// Tokens [begin, begin + count) of the batch continue a sequence at position `start`.
struct KvSpan {
  std::int64_t begin = 0;
  std::int64_t count = 0;
  std::int64_t start = 0;
  KvBlocks blocks{};
};

// Grouped-query attention: norms, rotates and clips queries and keys, appends keys and values to the state, attends and
// gates. A layer's share of a block has keys as [kv_heads, head_dim, 64], values as [kv_heads, 64, head_dim]; with
// int8, behind them scales of keys, then of values, f32 [kv_heads, 64] each.
struct AttentionArgs {
  std::int64_t tokens = 0;
  std::int64_t heads = 0;
  std::int64_t kv_heads = 0;
  std::int64_t head_dim = 0;
  std::int64_t rotary_dims = 0;  // 0: no rope
  std::int64_t window = 0;       // positions that a query sees, its own included; 0: all
  float clip = 0.0F;             // bound on q, k and v after the norms; 0: none
  bool element_gate = false;     // q has [q | gate] for each head: a sigmoid gate on each element of the output
  KvType kv = KvType::f32;
  NormArgs q_norm{}, k_norm{};   // over head_dim numbers: each head; else over the whole row
  const float* sinks = nullptr;  // [heads] or null
  RopeTable rope{};
  std::span<const KvSpan> spans{};
  float* q = nullptr;                // [tokens, heads * head_dim], twice that with gates
  float* k = nullptr;                // [tokens, kv_heads * head_dim]
  float* v = nullptr;                // the same
  const float* head_gate = nullptr;  // [tokens, heads], or null: a sigmoid gate on each head's output
  float* out = nullptr;              // [tokens, heads * head_dim]
};
// Of a layer's share of a block.
[[nodiscard]] std::int64_t block_bytes(const AttentionArgs& args);

// Multi-head latent attention with the projection of the latent absorbed: appends latents and rotated keys to the
// state, and attends to them. A layer's share of a block has 64 positions of [kv_lora_rank | qk_rope_head_dim]; with
// int8, behind them two f32 scales for each position.
struct LatentAttentionArgs {
  std::int64_t tokens = 0;
  std::int64_t heads = 0;
  std::int64_t qk_nope_head_dim = 0;
  std::int64_t qk_rope_head_dim = 0;
  std::int64_t v_head_dim = 0;
  std::int64_t kv_lora_rank = 0;
  bool interleaved = true;  // pairs to be rotated lie side by side, not half a head apart
  float scale = 1.0F;       // of the scores
  KvType kv = KvType::f32;
  NormArgs kv_norm{};             // over the latent
  const float* keys = nullptr;    // [heads, qk_nope_head_dim, kv_lora_rank]
  const float* values = nullptr;  // [heads, kv_lora_rank, v_head_dim]
  // Of a scheme that quantizes activations: what the projection does to the latent that it reads.
  const QuantKey* activation = nullptr;
  std::optional<float> input_scale{};
  RopeTable rope{};
  std::span<const KvSpan> spans{};
  const float* q = nullptr;        // [tokens, heads, qk_nope_head_dim + qk_rope_head_dim]
  const float* latents = nullptr;  // [tokens, kv_lora_rank + qk_rope_head_dim]
  float* out = nullptr;            // [tokens, heads, v_head_dim]
};
[[nodiscard]] std::int64_t block_bytes(const LatentAttentionArgs& args);

// Tokens [begin, begin + count) of the batch continue a recurrence.
struct RecurrentSpan {
  std::int64_t begin = 0;
  std::int64_t count = 0;
  const float* before = nullptr;
  float* after = nullptr;
};

// Gated delta net: a causal convolution over time, then a recurrence. Its state is the last kernel - 1 inputs of the
// convolution [kernel - 1, channels], then S of every value head. Grouped: rows of `qkvz` and `ba` lie key head by key
// head, [q | k | v | z] and [b | a], and are brought to the separate form first.
struct DeltaRuleArgs {
  std::int64_t tokens = 0;
  std::int64_t key_heads = 0;
  std::int64_t value_heads = 0;  // a multiple of key_heads
  std::int64_t key_dim = 0;
  std::int64_t value_dim = 0;
  std::int64_t kernel = 0;
  bool grouped = false;
  const float* taps = nullptr;     // [kernel, channels], the last for the current token
  const float* rate = nullptr;     // [value_heads]: exp(A_log)
  const float* dt_bias = nullptr;  // [value_heads]
  NormArgs norm{};                 // over value_dim, of each head's output before the gate
  std::span<const RecurrentSpan> spans{};
  // What the projections gave. Grouped: `work` has qkvz, `b` has both b and a.
  float* mixed = nullptr;  // [tokens, channels]: q, k, v of all heads; then the output [tokens, values]
  float* work = nullptr;   // [tokens, channels], grouped: and values
  float* z = nullptr;      // [tokens, values]
  float* b = nullptr;      // [tokens, value_heads], grouped: twice that
  float* a = nullptr;      // [tokens, value_heads]

  [[nodiscard]] std::int64_t key_width() const { return key_heads * key_dim; }
  [[nodiscard]] std::int64_t value_width() const { return value_heads * value_dim; }
  [[nodiscard]] std::int64_t channels() const { return 2 * key_width() + value_width(); }
  [[nodiscard]] std::int64_t conv_floats() const { return (kernel - 1) * channels(); }
  [[nodiscard]] std::int64_t state_floats() const { return conv_floats() + key_dim * value_width(); }
};

// Calls enqueue: they never block and never allocate. Workspaces are those of the functions beside them, which read the
// sizes of their arguments alone.
class Ops {
 public:
  virtual ~Ops() = default;
  [[nodiscard]] virtual std::string_view name() const = 0;
  virtual void embed(const RunContext& context, const EmbedArgs& args) const = 0;
  virtual void rms_norm(const RunContext& context, const RmsNormArgs& args) const = 0;
  virtual void add(const RunContext& context, const AddArgs& args) const = 0;
  virtual void add_gated(const RunContext& context, const AddGatedArgs& args) const = 0;
  virtual void gated_activation(const RunContext& context, const GatedArgs& args) const = 0;
  virtual void gather(const RunContext& context, const GatherArgs& args) const = 0;
  virtual void find_not_finite(const RunContext& context, const FiniteArgs& args) const = 0;
  virtual void top_k(const RunContext& context, const RankArgs& args) const = 0;
  virtual void rope_table(const RunContext& context, const RopeTableArgs& args) const = 0;
  virtual void router(const RunContext& context, const RouterArgs& args) const = 0;
  [[nodiscard]] virtual std::size_t route_bytes(const RouteArgs& args, int threads) const = 0;
  virtual void route(const RunContext& context, const RouteArgs& args) const = 0;
  [[nodiscard]] virtual std::size_t attention_bytes(const AttentionArgs& args, int threads) const = 0;
  virtual void attention(const RunContext& context, const AttentionArgs& args) const = 0;
  [[nodiscard]] virtual std::size_t attention_bytes(const LatentAttentionArgs& args, int threads) const = 0;
  virtual void attention(const RunContext& context, const LatentAttentionArgs& args) const = 0;
  [[nodiscard]] virtual std::size_t delta_rule_bytes(const DeltaRuleArgs& args) const = 0;
  virtual void delta_rule(const RunContext& context, const DeltaRuleArgs& args) const = 0;
};

// Of the host: the widest loops that the features allow, or the plain ones that go with the kernels of `ref`.
[[nodiscard]] const Ops& host_ops(CpuFeatures features);
[[nodiscard]] const Ops& reference_ops();

}  // namespace moracle
