#include "compat/vllm/decide.h"

#include <algorithm>

#include "compat/vllm/select.h"

namespace moracle::vllm {
namespace {

Candidate examine(const Row& row, const Question& question, const Machine& machine, const Policy& policy,
                  const RowSelection& selection, ReasonTexts& texts) {
  const ExpertsClass& experts = *row.experts;
  Candidate candidate{.row = &row, .activation = question.layer.scheme.activation};
  for (const Refusal& refusal : row.refusals) {
    if (const std::optional<LabelledReason> reason = refused(refusal, question, machine, policy, texts))
      candidate.reasons.push_back(*reason);
  }
  candidate.by_row = !candidate.reasons.empty();
  const bool own_key = row.activation != RowActivation::as_asked;
  const bool own_format = row.in_own_format && selection.restricted;
  std::vector<LabelledReason> found;
  if (own_key || own_format) {
    Question changed = question;
    if (own_key) changed.layer.scheme.activation.reset();
    if (row.activation == RowActivation::given) changed.layer.scheme.activation = row.activation_key;
    if (own_format) changed.activation_format = experts.activation_format;
    candidate.activation = changed.layer.scheme.activation;
    found = mismatches(changed, machine, policy, experts, texts);
  } else {
    found = mismatches(question, machine, policy, experts, texts);
  }
  if (candidate.reasons.empty()) {
    candidate.reasons = std::move(found);
  } else {
    candidate.reasons.insert(candidate.reasons.end(), found.begin(), found.end());
  }
  candidate.asked = selection.takes(row.backend);
  return candidate;
}

const Exhausted* meaning_of_none(const Question& question, const Machine& machine, const Policy& policy,
                                 const Table& table) {
  const auto counts = [&](const Exhausted& entry) {
    return (entry.pinned.empty() || policy.pinned == entry.pinned) && holds(entry.when, question, machine, policy);
  };
  const auto it = std::find_if(table.exhausted.begin(), table.exhausted.end(), counts);
  return it == table.exhausted.end() ? nullptr : &*it;
}

// What the surroundings asked for and did not get, and activations that are not quantized as asked.
void warn(Decision& decision, const Question& question) {
  if (!decision.chosen) return;
  const Candidate& best = decision.trace[*decision.chosen];
  const std::string backend(best.row->backend);
  const std::optional<QuantKey>& asked = question.layer.scheme.activation;
  if (best.row->experts->emulation)
    decision.warnings.push_back(backend + " emulates this scheme: it dequantizes the weights on the fly");
  if (decision.forced != nullptr && decision.forced->fallback && best.row->backend != decision.forced->backend) {
    decision.warnings.push_back("the surroundings ask for " + std::string(decision.forced->backend) +
                                ", which cannot serve this layer; " + backend + " can");
  }
  if (asked && !best.activation) {
    decision.warnings.push_back("no backend here quantizes activations to " + to_string(*asked) + ": " + backend +
                                " takes them at 16 bits");
  }
}

moracle::Candidate explained(const Candidate& candidate, const Decision& decision) {
  const ExpertsClass& experts = *candidate.row->experts;
  moracle::Candidate shown{.card = nullptr,
                           .id = experts.id,
                           .backend = candidate.row->backend,
                           .kind = experts.kind(),
                           .why = candidate.row->why};
  shown.reasons.assign(candidate.reasons.begin(), candidate.reasons.end());
  if (!candidate.asked)
    shown.reasons.push_back({.rule = Rule::override_, .wanted = decision.wanted, .found = candidate.row->backend});
  shown.reasons.push_back(
      {.rule = Rule::not_built,
       .wanted = "an implementation in this build",
       .found = shown.kind == CardKind::external ? "capabilities and layout" : "capabilities only"});
  return shown;
}

}  // namespace

Decision decide(const Question& question, const Machine& machine, const Policy& policy, const Table& table) {
  Decision decision;
  decision.table = table.name;
  const RowSelection selection = select_rows(question, machine, policy, table);
  decision.verdict = selection.verdict;
  decision.forced = selection.forced;
  decision.pin_unknown = selection.unknown;
  decision.pin_without_variant = selection.without_variant;
  if (!decision.verdict.empty()) return decision;
  const auto texts = std::make_shared<ReasonTexts>();
  decision.texts = texts;
  decision.wanted = texts->keep(selection.wanted);
  decision.trace.reserve(selection.rows.size());
  for (const Row* row : selection.rows)
    decision.trace.push_back(examine(*row, question, machine, policy, selection, *texts));
  const auto best = std::find_if(decision.trace.begin(), decision.trace.end(),
                                 [](const Candidate& candidate) { return candidate.can(); });
  if (best != decision.trace.end()) {
    decision.chosen = static_cast<std::size_t>(best - decision.trace.begin());
  } else if (decision.forced != nullptr && decision.forced->otherwise != nullptr) {
    decision.unchecked = decision.forced->otherwise;
  } else {
    decision.exhausted = meaning_of_none(question, machine, policy, table);
  }
  if (policy.explain) warn(decision, question);
  return decision;
}

moracle::Decision explained(const Decision& decision) {
  moracle::Decision shown;
  shown.table = decision.table;
  shown.warnings = decision.warnings;
  shown.texts = decision.texts;
  for (const Candidate& candidate : decision.trace) shown.trace.push_back(explained(candidate, decision));
  shown.best_candidate = decision.chosen;
  if (decision.chosen) shown.if_built = decision.trace[*decision.chosen].row->experts->backend;
  if (decision.unchecked != nullptr) shown.if_built = decision.unchecked->backend;
  return shown;
}

}  // namespace moracle::vllm
