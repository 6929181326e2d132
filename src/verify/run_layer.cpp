#include "verify/run_layer.h"

#include "base/random/random.h"

namespace moracle {

LayerInput spread_input(const CanonicalExperts& experts, std::int64_t tokens, std::int64_t top_k, std::uint64_t seed) {
  LayerInput input{.tokens = tokens, .hidden = experts.hidden, .top_k = top_k, .x = {}, .ids = {}, .weights = {}};
  Random random(seed);
  const auto count = static_cast<std::int64_t>(experts.experts.size());
  input.x.resize(static_cast<std::size_t>(tokens * experts.hidden));
  for (float& value : input.x) value = random.normal();
  for (std::int64_t slot = 0; slot < tokens * top_k; ++slot) {
    input.ids.push_back(static_cast<std::int32_t>(slot % count));
    input.weights.push_back(static_cast<float>(0.5 + random.uniform()));
  }
  for (std::int64_t token = 0; token < tokens; ++token) {
    float* weights = input.weights.data() + token * top_k;
    float sum = 0;
    for (std::int64_t j = 0; j < top_k; ++j) sum += weights[j];
    for (std::int64_t j = 0; j < top_k; ++j) weights[j] /= sum;
  }
  return input;
}

Result<std::vector<float>> run_packed(LayerRunner& runner, const LayerInput& input) {
  MORACLE_TRY(runner.reserve(input.tokens, input.top_k));
  std::vector<float> out(static_cast<std::size_t>(input.tokens * input.hidden));
  runner.run(input.view(), out.data());
  MORACLE_TRY(runner.status());
  return out;
}

Result<std::vector<float>> run_layer(const KernelCard& card, const CanonicalExperts& experts, const LayerInput& input,
                                     const PackOptions& how) {
  MORACLE_ASSIGN(LayerRunner runner, LayerRunner::pack(card, experts, how));
  return run_packed(runner, input);
}

}  // namespace moracle
