// Random canonical weights for kernel tests: in-memory matrices of any scheme.
#pragma once

#include <cstdint>
#include <optional>
#include <random>
#include <vector>

#include "scheme/canonical.h"
#include "scheme/glu.h"

namespace moracle::test {

struct MatrixRecipe {
  QuantKey key{};
  std::optional<QuantKey> activation{};
  std::int64_t rows = 0;
  std::int64_t cols = 0;
  bool act_order = false;
  bool bias = false;
};

// A matrix held in memory.
class MemoryMatrix final : public MatrixSource {
 public:
  MemoryMatrix(MatrixSpec spec, MatrixPanel all) : MatrixSource(std::move(spec)), all_(std::move(all)) {}
  [[nodiscard]] Result<> read(std::int64_t begin, std::int64_t end, MatrixPanel& out) const override;

 private:
  MatrixPanel all_;
};

// Codes uniform over the finite ones, scales such that values are around 1 / sqrt(cols) and exactly representable in
// the key's scale type, zero points uniform, groups shuffled over the columns where act_order. Static activation scales
// suit inputs of unit variance and differ from matrix to matrix.
CanonicalLinear random_linear(const MatrixRecipe& recipe, std::mt19937& rng);

struct ExpertsRecipe {
  QuantKey key{};
  std::optional<QuantKey> activation{};
  std::int64_t experts = 4;
  std::int64_t hidden = 64;
  std::int64_t intermediate = 64;
  bool act_order = false;
  bool shared_gate_up_order = false;  // gate and up of an expert share their group index, experts differ
  bool bias = false;
  bool gated = true;
};
CanonicalExperts random_experts(const ExpertsRecipe& recipe, std::mt19937& rng);

}  // namespace moracle::test
