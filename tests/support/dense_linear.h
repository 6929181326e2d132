// An f32 linear layer that any test can compute by hand.
#pragma once

#include <cmath>
#include <random>
#include <vector>

#include "kernels/kernel.h"
#include "kernels/vector/vector_ops.h"

namespace moracle::test {

class DenseLinear final : public PackedLinear {
 public:
  DenseLinear(std::int64_t out, std::int64_t in, std::mt19937& rng) : out_(out), in_(in) {
    std::normal_distribution<float> normal(0.0F, 1.0F / std::sqrt(static_cast<float>(in)));
    weights.resize(static_cast<std::size_t>(out * in));
    for (float& weight : weights) weight = normal(rng);
  }
  [[nodiscard]] std::size_t bytes() const override { return weights.size() * sizeof(float); }
  [[nodiscard]] std::size_t workspace_bytes(std::int64_t, int) const override { return 0; }
  void run(const RunContext&, std::int64_t tokens, const ConstActivations& x, const Activations& y) const override {
    for (std::int64_t t = 0; t < tokens; ++t) {
      for (std::int64_t o = 0; o < out_; ++o) {
        y.f32()[t * out_ + o] = scalar_vector_ops().dot(x.f32() + t * in_, weights.data() + o * in_, in_);
      }
    }
  }
  [[nodiscard]] std::vector<double> times(const std::vector<double>& x) const {
    std::vector<double> y(static_cast<std::size_t>(out_), 0.0);
    for (std::size_t o = 0; o < y.size(); ++o) {
      for (std::size_t i = 0; i < x.size(); ++i) y[o] += static_cast<double>(weights[o * x.size() + i]) * x[i];
    }
    return y;
  }
  std::vector<float> weights;

 private:
  std::int64_t out_;
  std::int64_t in_;
};

}  // namespace moracle::test
