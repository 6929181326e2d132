#include "verify/ranks.h"

#include <cmath>
#include <numeric>
#include <vector>

#include "base/checked.h"
#include "scheme/slice.h"
#include "verify/run_layer.h"

namespace moracle {

namespace {

// A hidden value that takes the scale of its rank's share is rounded twice, each time by a uniform error of root mean
// square a step over sqrt(12). A step of int8 is a 127th of the row's largest value, up to six times its root mean
// square; a step of E4M3 is up to an 8th of the value.
double bound_of(const Scheme& scheme, const RankLayout& ranks) {
  constexpr double kSums = 1e-6;
  constexpr std::int32_t kWideGroup = 64;  // finer groups lie within a share
  if (ranks.tp == 1 || !scheme.activation || !scheme.activation->dynamic) return kSums;
  const Granularity& granularity = scheme.activation->granularity;
  const bool shared = granularity.kind == Granularity::Kind::token || scheme.activation->second_level_per_token ||
                      (granularity.kind == Granularity::Kind::group && granularity.cols > kWideGroup);
  if (!shared) return kSums;
  return (scheme.activation->element == Element::int8 ? 6.0 / 127 : 1.0 / 8) * std::sqrt(2.0 / 12);
}

// `input` with ids from `first` on, counted from there, and -1 of all others; `local` false: as they are, and -1.
LayerInput input_of(const LayerInput& input, std::int64_t first, std::int64_t count, bool local) {
  LayerInput own = input;
  for (std::int32_t& id : own.ids) {
    const bool held = id >= first && id < first + count;
    id = held ? id - (local ? narrow<std::int32_t>(first) : 0) : -1;
  }
  return own;
}

}  // namespace

Result<RanksVerdict> compare_ranks(const CanonicalExperts& whole, const Problem& problem, const RankLayout& ranks,
                                   std::int64_t tokens, std::uint64_t seed, ThreadPool& pool) {
  MORACLE_ASSIGN(const KernelCard* const reference, find_ref_card(whole.scheme));
  const PackOptions how{.pool = pool, .activation = problem.activation};
  const LayerInput input = spread_input(whole, tokens, problem.top_k, seed);
  MORACLE_ASSIGN(LayerRunner runner, LayerRunner::pack(*reference, whole, how));
  MORACLE_ASSIGN(const std::vector<float> expected, run_packed(runner, input));

  RanksVerdict verdict{.bound = bound_of(whole.scheme, ranks)};
  std::vector<float> sum(expected.size());
  const std::int64_t count = narrow<std::int64_t>(whole.experts.size()) / ranks.ep;
  const std::int64_t width = whole.intermediate / ranks.tp;
  std::vector<std::int64_t> experts(narrow<std::size_t>(count));
  for (std::int64_t first = 0; first < count * ranks.ep; first += count) {
    std::iota(experts.begin(), experts.end(), first);
    const LayerInput own = input_of(input, first, count, true);
    for (std::int64_t begin = 0; begin < whole.intermediate; begin += width) {
      const CanonicalExperts share = slice_experts(whole, {.experts = experts, .begin = begin, .width = width});
      MORACLE_ASSIGN(const std::vector<float> part, run_layer(*reference, share, own, how));
      for (std::size_t i = 0; i < sum.size(); ++i) sum[i] += part[i];
      if (ranks.tp > 1) continue;
      MORACLE_ASSIGN(const std::vector<float> alone, run_packed(runner, input_of(input, first, count, false)));
      verdict.same_bits = verdict.same_bits && part == alone;
    }
  }
  verdict.relative = compare_outputs(sum, expected).relative;
  return verdict;
}

}  // namespace moracle
