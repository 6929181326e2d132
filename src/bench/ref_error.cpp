#include "bench/ref_error.h"

#include <algorithm>

#include "synth/synthetic_experts.h"

namespace moracle {

namespace {

constexpr std::int64_t kCheckedTokens = 4;
constexpr std::int64_t kReferenceBytes = std::int64_t{2} << 30;

}  // namespace

Result<double> ref_error(const LayerShape& shape, const NamedScheme& scheme, ThreadPool& pool, const LayerInput& input,
                         const std::vector<float>& out) {
  const std::int64_t expert_bytes = 3 * shape.hidden * shape.intermediate * 4;
  const std::int64_t tokens = std::clamp<std::int64_t>(kReferenceBytes / (expert_bytes * shape.top_k), 1,
                                                       std::min(kCheckedTokens, input.tokens));
  LayerInput few = input;
  few.tokens = tokens;
  few.ids.resize(static_cast<std::size_t>(tokens * shape.top_k));
  std::vector<std::int32_t> chosen = few.ids;
  std::sort(chosen.begin(), chosen.end());
  chosen.erase(std::unique(chosen.begin(), chosen.end()), chosen.end());
  for (std::int32_t& id : few.ids)
    id = static_cast<std::int32_t>(std::lower_bound(chosen.begin(), chosen.end(), id) - chosen.begin());
  MORACLE_ASSIGN(const CanonicalExperts experts, synthetic_experts(shape, scheme, 1, chosen));
  MORACLE_ASSIGN(const KernelCard* reference, find_ref_card(scheme.scheme));
  MORACLE_ASSIGN(LayerRunner runner,
                 LayerRunner::pack(*reference, experts, {.pool = pool, .activation = shape.activation}));
  MORACLE_TRY(runner.reserve(tokens, shape.top_k));
  std::vector<float> expected(static_cast<std::size_t>(tokens * shape.hidden));
  runner.run(few.view(), expected.data());
  const std::vector<float> computed(out.begin(), out.begin() + static_cast<std::ptrdiff_t>(expected.size()));
  return compare_outputs(computed, expected).relative;
}

}  // namespace moracle
