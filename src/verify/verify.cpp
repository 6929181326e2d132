#include "verify/verify.h"

#include <algorithm>

#include "base/checked.h"
#include "base/guarded.h"
#include "kernels/layouts/find_card.h"
#include "model/load/plan.h"
#include "verify/error_bound.h"
#include "verify/run_layer.h"

namespace moracle {

namespace {

// Hidden values of a comparison at least: few values let one rounding tie weigh too much.
constexpr std::int64_t kHiddenValues = 8192;
// (token, expert) pairs whose hidden values the bound is derived from.
constexpr std::int64_t kSampledPairs = 8;

std::vector<const MatrixSource*> all_matrices_of(const CanonicalExperts& experts) {
  std::vector<const MatrixSource*> matrices;
  for (const auto& expert : experts.experts) {
    for (const CanonicalLinear* linear : matrices_of(expert)) matrices.push_back(linear->weight.get());
  }
  return matrices;
}

bool has_error(const std::vector<Finding>& findings) {
  return std::any_of(findings.begin(), findings.end(),
                     [](const Finding& finding) { return finding.severity == Finding::Severity::error; });
}

Result<> verify_experts(const ModuleReport& module, const CanonicalExperts& experts, ThreadPool& pool,
                        std::uint64_t seed, const VerifyOptions& options, Verification& result) {
  const std::vector<Finding> findings = examine_all(all_matrices_of(experts), true, pool);
  result.findings.insert(result.findings.end(), findings.begin(), findings.end());
  MORACLE_ASSIGN(const KernelCard* card, options.layout.empty() ? winner_of(*module.decision, *module.problem)
                                                                : layout_card_for(options.layout, *module.problem));
  auto verdict = compare_with_ref(*card, experts, experts, *module.problem, result.tokens, seed, pool, options.device,
                                  options.batch_invariant);
  if (!verdict.ok()) {
    // A weight that no kernel can pack was reported as a finding; anything else is a failure of this command.
    if (has_error(findings)) return Ok{};
    return verdict.error();
  }
  if (!verdict->difference.ref_finite && !has_error(findings)) {
    result.findings.push_back({.tensor = experts.name,
                               .finding = "the reference computes NaN or Inf from ordinary inputs",
                               .severity = Finding::Severity::error});
  }
  verdict->name = module.name;
  if (options.ranks.tp * options.ranks.ep > 1) {
    MORACLE_ASSIGN(verdict->ranks, compare_ranks(experts, *module.problem, options.ranks, result.tokens, seed, pool));
  }
  result.layers.push_back(std::move(verdict).value());
  return Ok{};
}

}  // namespace

bool Verification::checkpoint_ok() const {
  return !has_error(findings);
}

bool Verification::backend_ok() const {
  return std::all_of(layers.begin(), layers.end(), [](const LayerVerdict& layer) { return layer.right(); });
}

Result<LayerVerdict> compare_with_ref(const KernelCard& card, const CanonicalExperts& packed,
                                      const CanonicalExperts& truth, const Problem& problem, std::int64_t tokens,
                                      std::uint64_t seed, ThreadPool& pool, const std::shared_ptr<GpuDevice>& device,
                                      bool batch_invariant) {
  MORACLE_ASSIGN(const KernelCard* reference, find_ref_card(truth.scheme));
  const std::int64_t enough = ceil_div(kHiddenValues, problem.top_k * truth.intermediate);
  const LayerInput input = spread_input(truth, std::max(tokens, enough), problem.top_k, seed);
  MORACLE_ASSIGN(
      const auto computed,
      run_layer(
          card, packed, input,
          {.pool = pool, .activation = problem.activation, .batch_invariant = batch_invariant, .device = device}));
  MORACLE_ASSIGN(const auto expected,
                 run_layer(*reference, truth, input, {.pool = pool, .activation = problem.activation}));
  MORACLE_ASSIGN(const HiddenSample sample, sample_hidden(truth, problem.activation, input, kSampledPairs));
  LayerVerdict verdict{.name = truth.name,
                       .backend = std::string(card.backend),
                       .difference = compare_outputs(computed, expected),
                       .bound = layer_error_bound(card, sample, input),
                       .ok = false};
  // Where even the reference is not finite there is nothing to hold the backend against.
  verdict.ok =
      !verdict.difference.ref_finite || (verdict.difference.finite && verdict.difference.relative <= verdict.bound);
  return verdict;
}

namespace {

// What a plan forbids is refused before a weight is read.
Result<> check_cut(const Plan& plan, const RankLayout& ranks) {
  for (const ModuleReport& module : plan.modules()) {
    if (module.kind == "experts")
      MORACLE_TRY(check_experts_cut(plan.opened(plan.index_of(module.name)).experts, ranks));
  }
  return Ok{};
}

Result<Verification> verify_modules(const LoadPlan& plan, ThreadPool& pool, const VerifyOptions& options) {
  MORACLE_TRY(check_cut(plan.opened(), options.ranks));
  Verification result;
  const ModelInfo& info = plan.info();
  result.tokens = options.tokens;
  if (info.experts_per_token > 0)
    result.tokens = std::max(options.tokens, ceil_div(info.experts, info.experts_per_token));
  const auto& modules = plan.modules();
  for (std::size_t i = 0; i < modules.size(); ++i) {
    if (options.interrupted && options.interrupted()) {
      result.interrupted = true;
      break;
    }
    const ModuleReport& module = modules[i];
    if (module.kind == "experts" && module.decision && module.problem) {
      MORACLE_ASSIGN(const CanonicalExperts experts, plan.read_experts(i));
      MORACLE_TRY(verify_experts(module, experts, pool, i, options, result));
    } else if (module.kind == "linear") {
      MORACLE_ASSIGN(const CanonicalLinear linear, plan.read_linear(i));
      const auto findings = examine_all({linear.weight.get()}, false, pool);
      result.findings.insert(result.findings.end(), findings.begin(), findings.end());
    }
    if (options.on_progress)
      options.on_progress(static_cast<std::int64_t>(i) + 1, static_cast<std::int64_t>(modules.size()));
  }
  return result;
}

}  // namespace

Result<Verification> verify(const LoadPlan& plan, ThreadPool& pool, const VerifyOptions& options) {
  auto result = guarded("verify the model", [&] { return verify_modules(plan, pool, options); });
  // A file that was cut under its reader gives zeros: neither the checkpoint nor a kernel is at fault.
  MORACLE_TRY(plan.verify_unchanged());
  return result;
}

}  // namespace moracle
