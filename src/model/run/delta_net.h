// Gated delta net (Yang et al., arXiv 2412.06464): a recurrence with a state of fixed size instead of keys and values.
#pragma once

#include <memory>
#include <vector>

#include "model/run/blocks.h"

namespace moracle {

// q, k and v pass a short causal convolution over time; each value head then keeps a matrix S [key_dim, value_dim] that
// decays, forgets what its key held and learns the new value. Tokens of a sequence are taken one after the other, so
// the bits do not depend on how a prompt was cut, on the rest of the batch, or on the number of threads.
class DeltaNet final : public Mixer {
 public:
  struct Parts {
    // Rows of what the projections give. Separate: qkv [q | k | v], z, b, a, each head after head. Grouped, z and a
    // null: qkv's and b's rows lie key head by key head, [q | k | v | z] and [b | a] with the head's values together.
    std::unique_ptr<PackedLinear> qkv, z{}, b, a{}, out;
    std::vector<float> conv{};     // [channels, kernel] as stored; the last tap is for the current token
    std::vector<float> a_log{};    // [value_heads]
    std::vector<float> dt_bias{};  // [value_heads]
    Norm norm{};                   // [value_dim], over each head of the output, before the gate
    std::int64_t key_heads = 0;
    std::int64_t value_heads = 0;  // a multiple of key_heads
    std::int64_t key_dim = 0;
    std::int64_t value_dim = 0;
    std::int64_t kernel = 0;
    std::size_t layer = 0;  // index into the sequence state
  };
  explicit DeltaNet(Parts parts);

  // Fixed floats: the last kernel - 1 inputs of the convolution [kernel - 1, channels], then S of every head.
  [[nodiscard]] LayerState state() const override;
  [[nodiscard]] std::size_t bytes() const override;
  [[nodiscard]] std::size_t workspace_bytes(std::int64_t tokens, int threads) const override;
  void run(const ForwardContext& context, const float* x, float* out) const override;

 private:
  struct Buffers;

  [[nodiscard]] std::int64_t keys() const { return parts_.key_heads * parts_.key_dim; }
  [[nodiscard]] std::int64_t values() const { return parts_.value_heads * parts_.value_dim; }
  [[nodiscard]] std::int64_t channels() const { return 2 * keys() + values(); }
  [[nodiscard]] std::int64_t conv_floats() const { return (parts_.kernel - 1) * channels(); }
  [[nodiscard]] bool grouped() const { return parts_.z == nullptr; }
  [[nodiscard]] std::size_t linear_bytes(std::int64_t tokens, int threads) const;

  void project(const ForwardContext& context, const RunContext& run, const float* x, const Buffers& buffers) const;
  void ungroup(const ForwardContext& context, const Buffers& buffers) const;
  void convolve(const ForwardContext& context, const Buffers& buffers) const;
  void prepare(const ForwardContext& context, const Buffers& buffers) const;
  void recur(const ForwardContext& context, const Buffers& buffers) const;
  void norm_and_gate(const ForwardContext& context, const Buffers& buffers) const;

  Parts parts_;
  std::vector<float> taps_;  // [kernel, channels]
  std::vector<float> rate_;  // [value_heads]: exp(A_log)
};

}  // namespace moracle
