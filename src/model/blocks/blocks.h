// Pieces of a forward pass that architectures compose. Their numbers are views of a WeightStore, in memory of the
// device that they run on.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "base/memory.h"
#include "device/array.h"
#include "model/blocks/context.h"
#include "model/spec/spec.h"

namespace moracle {

// RMSNorm with the (1 + w) of some architectures already added, or a layer norm. Without weights there is none.
struct Norm {
  DeviceArray<float> weight{};
  float eps = 1e-6F;
  bool centred = false;
  DeviceArray<float> bias{};  // of a layer norm, or empty

  [[nodiscard]] bool exists() const { return weight.size != 0; }
  // Whether behind() is what it computes.
  [[nodiscard]] bool joins() const { return exists() && !centred; }
  [[nodiscard]] std::size_t bytes() const { return weight.bytes() + bias.bytes(); }
  [[nodiscard]] NormArgs args() const { return {.weight = weight.data, .size = weight.size, .eps = eps}; }
  // y[rows, size] = norm of x[rows, size]; y may be x.
  void run(const ForwardContext& context, std::int64_t rows, const float* x, float* y) const;
  // sum[rows, size] += x, then y = norm of sum.
  [[nodiscard]] AddNormArgs behind(std::int64_t rows, const float* x, float* sum, float* y) const;
};

// The token table, kept at the width it was published in.
struct Embedding {
  DeviceArray<std::byte> table{};  // [rows, width] of `element`
  Element element = Element::f32;  // bf16, f16 or f32
  std::int64_t width = 0;

  [[nodiscard]] std::int64_t row_bytes() const { return width * (element == Element::f32 ? 4 : 2); }
  [[nodiscard]] std::size_t bytes() const { return table.bytes(); }
  // out[tokens, width] = rows of the table; 0 <= id < rows.
  void lookup(const ForwardContext& context, float* out) const;
};

// A rotation of heads: pair i turns by position * inv_freq[i]; cos and sin are multiplied by `scale`.
struct Rope {
  DeviceArray<float> inv_freq{};
  float scale = 1.0F;
};

// What mixes tokens of a sequence: attention, or a recurrence.
class Mixer {
 public:
  virtual ~Mixer() = default;
  [[nodiscard]] virtual LayerState state(const Ops& ops) const = 0;
  [[nodiscard]] virtual std::size_t bytes() const = 0;
  [[nodiscard]] virtual std::size_t workspace_bytes(const Ops& ops, std::int64_t tokens, int threads) const = 0;
  // Positions of a token that it attends to by a choice, ForwardContext::selected; 0: it makes none.
  [[nodiscard]] virtual std::int64_t selected() const { return 0; }
  // out[tokens, hidden] from the normed x[tokens, hidden]; appends the batch to the states, which have room for it.
  virtual void run(const ForwardContext& context, const float* x, float* out) const = 0;
};

class FeedForward {
 public:
  virtual ~FeedForward() = default;
  [[nodiscard]] virtual std::size_t bytes() const = 0;
  [[nodiscard]] virtual std::size_t workspace_bytes(std::int64_t tokens, int threads) const = 0;
  // Of a part that another device computes: what calls of up to `tokens` tokens take there.
  [[nodiscard]] virtual CallBytes call_bytes(const DeviceWorkspace& /*of*/, std::int64_t /*tokens*/) const {
    return {};
  }
  // Its routed experts; null: it has none.
  [[nodiscard]] virtual MoeLayer* routed() { return nullptr; }
  // Whether run() leaves a part of what it gives in ForwardContext::late, to be added behind the next layer.
  [[nodiscard]] virtual bool late() const { return false; }
  // Tokens that could not be routed are marked in the status. What the input's norm adds may lie where `out` does.
  virtual void run(const ForwardContext& context, const NormedInput& input, float* out) const = 0;
};

// down(act(gate x) * up x), or down(act(gate x)) without `up`
class DenseMlp final : public FeedForward {
 public:
  struct Parts {
    std::unique_ptr<PackedLinear> gate, up, down;
    std::int64_t intermediate = 0;
    ActivationSpec activation{};
  };
  explicit DenseMlp(Parts parts) : parts_(std::move(parts)) {}
  [[nodiscard]] std::size_t bytes() const override;
  [[nodiscard]] std::size_t workspace_bytes(std::int64_t tokens, int threads) const override;
  void run(const ForwardContext& context, const NormedInput& input, float* out) const override;

 private:
  Parts parts_;
};

// Routed experts, and beside them what sees every token: routed(x) + shared(x), or + sigmoid(gate x) * shared(x).
class MoeFeedForward final : public FeedForward {
 public:
  // As of ApartSpec. The input is made by a norm, whose sum is the residual stream.
  struct Apart {
    Norm router{}, experts{}, routed_behind{}, shared_behind{};
    [[nodiscard]] std::size_t bytes() const {
      return router.bytes() + experts.bytes() + routed_behind.bytes() + shared_behind.bytes();
    }
  };
  // As of LatentExpertsSpec.
  struct Latent {
    std::unique_ptr<PackedLinear> in{}, out{};
    std::int64_t width = 0;  // numbers of a token that experts read and give
  };
  struct Parts {
    MoeLayer routed;
    std::int64_t hidden = 0;
    std::optional<DenseMlp> shared{};
    std::unique_ptr<PackedLinear> shared_gate{};  // [1, hidden] or null: the shared expert counts whole
    float shared_mean = 1.0F;                     // what the sum with the shared expert is multiplied by
    std::optional<Apart> apart{};                 // with `shared`
    std::optional<Latent> latent{};
    bool late = false;          // with `shared`: as of MoeSpec
    bool zero_experts = false;  // with `late`
  };
  explicit MoeFeedForward(Parts parts) : parts_(std::move(parts)) {}
  [[nodiscard]] std::size_t bytes() const override;
  [[nodiscard]] std::size_t workspace_bytes(std::int64_t tokens, int threads) const override;
  [[nodiscard]] CallBytes call_bytes(const DeviceWorkspace& of, std::int64_t tokens) const override {
    return parts_.routed.call_bytes(of, tokens);
  }
  [[nodiscard]] MoeLayer* routed() override { return &parts_.routed; }
  [[nodiscard]] bool late() const override { return parts_.late; }
  void run(const ForwardContext& context, const NormedInput& input, float* out) const override;

 private:
  // Of the parts that run one after the other.
  [[nodiscard]] std::size_t rest_bytes(std::int64_t tokens, int threads) const;
  void add_shared(const ForwardContext& context, const float* x, float* out) const;
  void run_apart(const ForwardContext& context, const NormedInput& input, float* out) const;
  struct LatentCall;
  [[nodiscard]] LatentCall lay_out_latent(BumpArena& arena, std::int64_t tokens, int threads) const;
  void run_latent(const ForwardContext& context, const NormedInput& input, float* out) const;
  struct LateCall;
  [[nodiscard]] LateCall lay_out_late(BumpArena& arena, std::int64_t tokens, int threads) const;
  void run_late(const ForwardContext& context, const NormedInput& input, float* out) const;

  Parts parts_;
};

// Largest workspace of several linears that run one after the other; null ones are none.
[[nodiscard]] std::size_t linear_workspace(std::initializer_list<const PackedLinear*> linears, std::int64_t tokens,
                                           int threads);
// Up to kMostTogether linears that read the same x[tokens, in]; null ones are left out.
constexpr std::size_t kMostTogether = 4;
void run_linears(const RunContext& context, std::initializer_list<LinearRun> linears, std::int64_t tokens,
                 const float* x);

}  // namespace moracle
