#include "oracle/decide.h"

#include <algorithm>

#include "oracle/select.h"

namespace moracle {
namespace {

void add_once(std::vector<std::string_view>& names, std::string_view name) {
  if (std::find(names.begin(), names.end(), name) == names.end()) names.push_back(name);
}

std::string joined(const std::vector<std::string_view>& names) {
  std::string out;
  for (const std::string_view name : names) out.append(out.empty() ? "" : ", ").append(name);
  return out.empty() ? "none" : out;
}

// Whether the name a user typed means this backend.
bool means(const Table& table, std::string_view typed, std::string_view backend) {
  if (table.names.empty()) return typed == backend;
  return std::any_of(table.names.begin(), table.names.end(),
                     [&](const BackendName& name) { return name.typed == typed && name.backend == backend; });
}

Candidate examine(const TableRow& row, const Problem& problem, const Machine& machine, const Policy& policy,
                  const Table& table, const RowSelection& selection, ReasonTexts& texts) {
  const KernelCard& card = *row.card;
  Candidate candidate{&card, false, {}, row.why, backend_of(row), problem.scheme.activation};
  const auto add = [&](Rule rule, std::string_view wanted, std::string_view found) {
    Reason& reason = candidate.reasons.emplace_back(Reason{.rule = rule});
    if (!policy.explain) return;
    reason.wanted = wanted;
    reason.found = found;
  };
  for (const Refusal& refusal : row.refusals) {
    if (std::optional<Reason> reason = refused(refusal, problem, machine, policy, texts)) {
      reason->by_row = true;
      candidate.reasons.push_back(*reason);
    }
  }
  const bool own_key = row.activation != RowActivation::as_asked;
  const bool own_format = row.in_own_format && selection.restricted;
  std::vector<Reason> found;
  if (own_key || own_format) {
    Problem question = problem;
    if (own_key) question.scheme.activation.reset();
    if (row.activation == RowActivation::given) question.scheme.activation = row.activation_key;
    if (own_format) question.activation_format = card.activation_format;
    candidate.activation = question.scheme.activation;
    found = mismatches(question, machine, policy, card, texts);
  } else {
    found = mismatches(problem, machine, policy, card, texts);
  }
  if (candidate.reasons.empty()) {
    candidate.reasons = std::move(found);
  } else {
    candidate.reasons.insert(candidate.reasons.end(), found.begin(), found.end());
  }
  if (!selection.takes(candidate.backend)) {
    add(Rule::override_, texts.keep(selection.wanted), candidate.backend);
  }
  if (card.kind != CardKind::own) {
    add(Rule::not_built, "an implementation in this build",
        card.kind == CardKind::foreign ? "capabilities and layout" : "capabilities only");
  } else if (table.built != nullptr && !table.built(card.id)) {
    add(Rule::not_built, "an implementation in this build", "none");
  }
  candidate.supported = candidate.reasons.empty();
  return candidate;
}

bool only_unbuilt(const Candidate& candidate) {
  return std::all_of(candidate.reasons.begin(), candidate.reasons.end(),
                     [](const Reason& reason) { return reason.rule == Rule::not_built; });
}

// Lower is better; table order decides among equals.
int rank_of(const Candidate& candidate, const Policy& policy, const Table& table) {
  const KernelCard& card = *candidate.card;
  const std::string_view backend = candidate.backend;
  if (policy.preferred && means(table, *policy.preferred, backend)) return 0;
  if (card.any_device_of_host) return 3;
  return card.numerics == Numerics::emulation && !table.emulation_in_place ? 2 : 1;
}

// The best candidate among those that `can` accepts.
template <class Can>
const Candidate* best_of(const Decision& decision, const Policy& policy, const Table& table, Can can) {
  const Candidate* best = nullptr;
  int best_rank = 0;
  for (const Candidate& candidate : decision.trace) {
    if (!can(candidate)) continue;
    const int rank = rank_of(candidate, policy, table);
    if (best == nullptr || rank < best_rank) {
      best = &candidate;
      best_rank = rank;
    }
  }
  return best;
}

// Why the preferred backend did not win; empty when it did.
std::string fallback_warning(const Decision& decision, const Policy& policy, const Table& table) {
  if (!policy.preferred || policy.pinned) return "";
  const std::string then =
      decision.winner == nullptr ? "; no other can either" : "; using " + std::string(decision.winner->backend);
  const Candidate* first = nullptr;
  for (const Candidate& candidate : decision.trace) {
    if (!means(table, *policy.preferred, candidate.backend)) continue;
    if (candidate.supported) return "";
    if (first == nullptr) first = &candidate;
  }
  if (first == nullptr) {
    return "preferred backend " + *policy.preferred + " is not known here (known: " + joined(decision.backend_names) +
           ")" + then;
  }
  return "preferred backend " + *policy.preferred + " cannot serve this layer (" + reason_text(first->reasons.front()) +
         ")" + then;
}

std::string emulation_text(std::string_view backend) {
  return std::string(backend) + " emulates this scheme: it dequantizes the weights on the fly";
}

void warn(Decision& decision, const Policy& policy, const Table& table) {
  if (std::string text = fallback_warning(decision, policy, table); !text.empty())
    decision.warnings.push_back(std::move(text));
  const KernelCard* winner = decision.winner;
  if (winner == nullptr) return;
  const bool named = (policy.pinned && means(table, *policy.pinned, winner->backend)) ||
                     (policy.preferred && means(table, *policy.preferred, winner->backend));
  if (winner->any_device_of_host && !named) {
    decision.warnings.push_back("no optimised kernel can serve this layer: the reference kernel " +
                                std::string(winner->backend) + " runs it, far slower");
  }
  if (winner->numerics == Numerics::emulation) decision.warnings.push_back(emulation_text(winner->backend));
}

// What the surroundings asked for and did not get, and activations that are not quantized as asked.
void warn_of_request(Decision& decision, const Problem& problem) {
  if (!decision.best_candidate) return;
  const Candidate& best = decision.trace[*decision.best_candidate];
  if (decision.winner == nullptr && best.card->numerics == Numerics::emulation)
    decision.warnings.push_back(emulation_text(best.backend));
  if (decision.forced != nullptr && decision.forced->fallback && best.backend != decision.forced->backend) {
    decision.warnings.push_back("the surroundings ask for " + std::string(decision.forced->backend) +
                                ", which cannot serve this layer; " + std::string(best.backend) + " can");
  }
  if (problem.scheme.activation && !best.activation) {
    decision.warnings.push_back("no backend here quantizes activations to " + to_string(*problem.scheme.activation) +
                                ": " + std::string(best.backend) + " takes them at 16 bits");
  }
}

std::string trail(const Decision& decision) {
  std::string text;
  for (const Candidate& candidate : decision.trace) {
    text += "\n  " + std::string(candidate.backend) + " (" + std::string(candidate.card->id) + "): ";
    if (candidate.supported) text += "can serve it";
    for (std::size_t i = 0; i < candidate.reasons.size(); ++i)
      text += (i == 0 ? "" : "; ") + reason_text(candidate.reasons[i]);
  }
  return text;
}

}  // namespace

std::vector<std::string_view> backend_names(const Table& table) {
  std::vector<std::string_view> names;
  for (const BackendName& name : table.names) add_once(names, name.typed);
  if (!table.names.empty()) return names;
  for (const TableRow& row : table.rows) add_once(names, backend_of(row));
  return names;
}

Decision decide(const Problem& problem, const Machine& machine, const Policy& policy, const Table& table) {
  Decision decision;
  decision.table = table.name;
  decision.pinned = policy.pinned;
  if (policy.explain) {
    decision.backend_names = backend_names(table);
    decision.machine_fingerprint = machine.fingerprint();
  }
  const RowSelection selection = select_rows(problem, machine, policy, table);
  decision.verdict = selection.verdict;
  decision.forced = selection.forced;
  decision.pin_unknown = selection.unknown;
  decision.pin_without_variant = selection.without_variant;
  if (!decision.verdict.empty()) return decision;
  const auto texts = std::make_shared<ReasonTexts>();
  decision.texts = texts;
  decision.trace.reserve(selection.rows.size());
  for (const TableRow* row : selection.rows)
    decision.trace.push_back(examine(*row, problem, machine, policy, table, selection, *texts));
  const auto supported = [](const Candidate& candidate) { return candidate.supported; };
  if (const Candidate* best = best_of(decision, policy, table, supported)) decision.winner = best->card;
  if (const Candidate* best = best_of(decision, policy, table, only_unbuilt)) {
    decision.best_if_built = best->card;
    decision.best_candidate = static_cast<std::size_t>(best - decision.trace.data());
  } else if (decision.forced != nullptr && decision.forced->otherwise != nullptr) {
    decision.best_if_built = decision.forced->otherwise;
    decision.unchecked = true;
  } else {
    const auto counts = [&](const Exhausted& row) {
      return (row.pinned.empty() || policy.pinned == row.pinned) && holds(row.when, problem, machine, policy);
    };
    const auto it = std::find_if(table.exhausted.begin(), table.exhausted.end(), counts);
    if (it != table.exhausted.end()) decision.exhausted = &*it;
  }
  if (policy.explain) {
    warn(decision, policy, table);
    warn_of_request(decision, problem);
  }
  return decision;
}

Result<const KernelCard*> winner_of(const Decision& decision, const Problem& problem) {
  if (decision.winner != nullptr) return decision.winner;
  const std::string question = (problem.kind == ProblemKind::experts ? "experts " : "linear ") + shape_text(problem) +
                               ", " + scheme_text(problem.scheme);
  const std::string names = joined(decision.backend_names);
  Error error{.code = "oracle.no_backend",
              .where = question,
              .wanted = "a backend of this build that can serve it on this machine",
              .found = "none of these can:" + trail(decision),
              .advice = "--device and --policy change what is possible"};
  if (decision.pinned) {
    const auto& known = decision.backend_names;
    error.code = "oracle.pinned";
    if (std::find(known.begin(), known.end(), *decision.pinned) == known.end()) {
      error.wanted = "a backend of the table " + decision.table + ": " + names;
      error.found = "\"" + *decision.pinned + "\", which it does not know:" + trail(decision);
    } else {
      error.wanted = "the backend " + *decision.pinned + ", as asked for";
      error.found = "that it cannot serve this layer:" + trail(decision);
    }
    error.advice = "leave the backend out to let the oracle choose, or name one of " + names;
  }
  return error;
}

}  // namespace moracle
