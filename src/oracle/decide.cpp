#include "oracle/decide.h"

#include <algorithm>

#include "oracle/backends.h"

namespace moracle {
namespace {

std::string joined(const std::vector<std::string_view>& names) {
  std::string out;
  for (const std::string_view name : names) out.append(out.empty() ? "" : ", ").append(name);
  return out.empty() ? "none" : out;
}

Candidate examine(const TableRow& row, const Problem& problem, const Machine& machine, const Policy& policy,
                  const Table& table, ReasonTexts& texts) {
  const KernelCard& card = *row.card;
  Candidate candidate{
      .card = &card, .id = card.id, .backend = card.backend, .kind = card.kind, .reasons = {}, .why = row.why};
  candidate.reasons = mismatches(problem, machine, policy, card, texts);
  const auto add = [&candidate](Rule rule, std::string_view wanted, std::string_view found) {
    candidate.reasons.push_back({.rule = rule, .wanted = wanted, .found = found});
  };
  if (policy.pinned && *policy.pinned != card.backend) add(Rule::override_, texts.keep(*policy.pinned), card.backend);
  if (card.kind != CardKind::native) {
    add(Rule::not_built, "an implementation in this build", "capabilities and layout");
  } else if (table.missing != nullptr && !policy.elsewhere) {
    const std::string_view missing = table.missing(card.id);
    if (!missing.empty()) add(Rule::not_built, "an implementation in this build", missing);
  }
  candidate.supported = candidate.reasons.empty();
  return candidate;
}

bool only_unbuilt(const Candidate& candidate) {
  return std::all_of(candidate.reasons.begin(), candidate.reasons.end(),
                     [](const Reason& reason) { return reason.rule == Rule::not_built; });
}

// Lower is better; table order decides among equals.
int rank_of(const Candidate& candidate, const Policy& policy) {
  if (policy.preferred == candidate.backend) return 0;
  return candidate.card->any_device_of_host ? 2 : 1;
}

// The best candidate among those that `can` accepts.
template <class Can>
const Candidate* best_of(const Decision& decision, const Policy& policy, Can can) {
  const Candidate* best = nullptr;
  int best_rank = 0;
  for (const Candidate& candidate : decision.trace) {
    if (!can(candidate)) continue;
    const int rank = rank_of(candidate, policy);
    if (best == nullptr || rank < best_rank) {
      best = &candidate;
      best_rank = rank;
    }
  }
  return best;
}

// Why the preferred backend did not win; empty when it did.
std::string fallback_warning(const Decision& decision, const Policy& policy) {
  if (!policy.preferred || policy.pinned) return "";
  const std::string then =
      decision.winner == nullptr ? "; no other can either" : "; using " + std::string(decision.winner->backend);
  const Candidate* first = nullptr;
  for (const Candidate& candidate : decision.trace) {
    if (*policy.preferred != candidate.backend) continue;
    if (candidate.supported) return "";
    if (first == nullptr) first = &candidate;
  }
  if (first == nullptr) {
    return "preferred backend " + *policy.preferred + " is not known here (known: " + joined(decision.backend_names) +
           ")" + then;
  }
  return "preferred backend " + *policy.preferred + " cannot serve this layer (" +
         reason_phrase(first->reasons.front(), first->kind) + ")" + then;
}

void warn(Decision& decision, const Policy& policy) {
  if (std::string text = fallback_warning(decision, policy); !text.empty())
    decision.warnings.push_back(std::move(text));
  const KernelCard* winner = decision.winner;
  if (winner == nullptr) return;
  const std::string backend(winner->backend);
  if (winner->any_device_of_host && policy.pinned != backend && policy.preferred != backend) {
    const bool better = decision.best_if_built != nullptr && decision.best_if_built != winner;
    const std::string lacks = better ? "this build has no kernel for " + std::string(decision.if_built)
                                     : "no optimised kernel can serve this layer";
    decision.warnings.push_back(lacks + ": the reference kernel " + backend + " runs it, far slower");
  }
}

// What each backend lacks, a line each: "wide needs avx512, avx512_bf16". Kernels of this engine alone, where there are
// any.
std::vector<std::string> lacks_of_all(const Decision& decision) {
  const auto is_native = [](const Candidate& candidate) { return candidate.kind == CardKind::native; };
  const bool some_native = std::any_of(decision.trace.begin(), decision.trace.end(), is_native);
  std::vector<std::string> lines;
  for (const BackendEntry& entry : fold_backends(decision)) {
    const Candidate& nearest = decision.trace[entry.variants.front()];
    if (!some_native || is_native(nearest)) lines.push_back(std::string(entry.backend) + " " + needs_of(nearest));
  }
  return lines;
}

std::string lacks_of_pinned(const Decision& decision) {
  for (const BackendEntry& entry : fold_backends(decision)) {
    if (entry.backend == *decision.pinned) return needs_of(decision.trace[entry.variants.front()]);
  }
  return "";
}

}  // namespace

std::vector<std::string_view> backend_names(const Table& table) {
  std::vector<std::string_view> names;
  for (const TableRow& row : table.rows) {
    if (std::find(names.begin(), names.end(), row.card->backend) == names.end()) names.push_back(row.card->backend);
  }
  return names;
}

Decision decide(const Problem& problem, const Machine& machine, const Policy& policy, const Table& table) {
  Decision decision;
  decision.table = table.name;
  decision.pinned = policy.pinned;
  decision.backend_names = backend_names(table);
  decision.machine_fingerprint = machine.fingerprint();
  const auto texts = std::make_shared<ReasonTexts>();
  decision.texts = texts;
  decision.trace.reserve(table.rows.size());
  for (const TableRow& row : table.rows)
    decision.trace.push_back(examine(row, problem, machine, policy, table, *texts));
  const auto supported = [](const Candidate& candidate) { return candidate.supported; };
  if (const Candidate* best = best_of(decision, policy, supported)) decision.winner = best->card;
  if (const Candidate* best = best_of(decision, policy, only_unbuilt)) {
    decision.best_if_built = best->card;
    decision.if_built = best->backend;
    decision.best_candidate = static_cast<std::size_t>(best - decision.trace.data());
  }
  warn(decision, policy);
  return decision;
}

Result<const KernelCard*> winner_of(const Decision& decision, const Problem& problem) {
  if (decision.winner != nullptr) return decision.winner;
  const std::string question = (problem.kind == ProblemKind::experts ? "experts " : "linear ") + shape_text(problem) +
                               ", " + scheme_text(problem.scheme);
  if (!decision.pinned) {
    return Error{.code = "oracle.no_backend",
                 .where = question,
                 .found = "no backend can serve this layer here",
                 .advice = "--policy and another machine change what is possible",
                 .details = lacks_of_all(decision)};
  }
  const std::string lacks = lacks_of_pinned(decision);
  return Error{.code = "oracle.pinned",
               .where = question,
               .found = lacks.empty() ? "no kernel for this layer is called '" + *decision.pinned + "'"
                                      : "backend " + *decision.pinned + " cannot serve this layer here: " + lacks,
               .advice = "usable here: " + joined(usable_backends(decision))};
}

}  // namespace moracle
