#include "oracle/backends.h"

#include <algorithm>
#include <tuple>
#include <utility>

namespace moracle {
namespace {

BackendVerdict verdict_of(const Candidate& candidate, const Decision& decision) {
  if (candidate.card != nullptr && candidate.card == decision.winner) return BackendVerdict::chosen;
  if (candidate.supported) return BackendVerdict::can;
  const bool only_unbuilt = std::all_of(candidate.reasons.begin(), candidate.reasons.end(),
                                        [](const Reason& reason) { return reason.rule == Rule::not_built; });
  return only_unbuilt ? BackendVerdict::if_built : BackendVerdict::cannot;
}

std::vector<std::string_view> split(std::string_view text, std::string_view between) {
  std::vector<std::string_view> parts;
  for (std::size_t at = text.find(between); at != std::string_view::npos; at = text.find(between)) {
    parts.push_back(text.substr(0, at));
    text.remove_prefix(at + between.size());
  }
  parts.push_back(text);
  return parts;
}

// The features of "cpu x86_64 with avx2+avx512".
std::vector<std::string_view> features_in(std::string_view machine) {
  constexpr std::string_view kWith = " with ";
  const std::size_t at = machine.find(kWith);
  if (at == std::string_view::npos) return {};
  return split(machine.substr(at + kWith.size()), "+");
}

// Of "cpu with avx2+avx512 or cuda of capability from 7.5" and what was found, what is missing: the features that a CPU
// lacks, by the alternative that comes nearest; else what was wanted.
std::string device_phrase(const Reason& reason) {
  const bool here_cpu = reason.found.starts_with("cpu");
  const std::vector<std::string_view> there = features_in(reason.found);
  std::optional<std::vector<std::string_view>> least;
  bool cpus_alone = true;
  for (const std::string_view wanted : split(reason.wanted, " or ")) {
    const std::vector<std::string_view> features = features_in(wanted);
    if (!wanted.starts_with("cpu")) cpus_alone = false;
    if (!here_cpu || !wanted.starts_with("cpu") || features.empty()) continue;
    std::vector<std::string_view> missing;
    for (const std::string_view feature : features) {
      if (std::find(there.begin(), there.end(), feature) == there.end()) missing.push_back(feature);
    }
    if (!missing.empty() && (!least || missing.size() < least->size())) least = std::move(missing);
  }
  if (!here_cpu && cpus_alone) return "needs a CPU";
  if (!least) return "needs " + std::string(reason.wanted);
  std::string text;
  for (const std::string_view feature : *least) text.append(text.empty() ? "needs " : ", ").append(feature);
  return text;
}

bool is_override(const Reason& reason) {
  return reason.rule == Rule::override_;
}

}  // namespace

std::optional<std::size_t> used_candidate(const Decision& decision) {
  const auto winner = std::find_if(decision.trace.begin(), decision.trace.end(), [&](const Candidate& candidate) {
    return candidate.card != nullptr && candidate.card == decision.winner;
  });
  if (winner == decision.trace.end()) return decision.best_candidate;
  const auto place = static_cast<std::size_t>(winner - decision.trace.begin());
  return winner->card->any_device_of_host && decision.best_candidate ? decision.best_candidate : place;
}

std::vector<BackendEntry> fold_backends(const Decision& decision) {
  std::vector<BackendEntry> entries;
  for (std::size_t i = 0; i < decision.trace.size(); ++i) {
    const std::string_view backend = decision.trace[i].backend;
    auto entry = std::find_if(entries.begin(), entries.end(),
                              [&](const BackendEntry& known) { return known.backend == backend; });
    if (entry == entries.end()) entry = entries.insert(entries.end(), BackendEntry{backend, {}, {}});
    entry->variants.push_back(i);
  }
  const std::optional<std::size_t> used = used_candidate(decision);
  const auto rank = [&](std::size_t place) {
    const Candidate& candidate = decision.trace[place];
    return std::tuple(used != place, verdict_of(candidate, decision), candidate.reasons.size(), place);
  };
  for (BackendEntry& entry : entries) {
    std::sort(entry.variants.begin(), entry.variants.end(),
              [&](std::size_t a, std::size_t b) { return rank(a) < rank(b); });
    entry.verdict = verdict_of(decision.trace[entry.variants.front()], decision);
  }
  const auto lead = std::find_if(entries.begin(), entries.end(),
                                 [&](const BackendEntry& entry) { return used == entry.variants.front(); });
  if (lead != entries.end()) std::rotate(entries.begin(), lead, lead + 1);
  return entries;
}

std::vector<std::string_view> usable_backends(const Decision& decision) {
  std::vector<std::string_view> usable;
  for (const Candidate& candidate : decision.trace) {
    const bool can = std::all_of(candidate.reasons.begin(), candidate.reasons.end(), is_override);
    if (can && std::find(usable.begin(), usable.end(), candidate.backend) == usable.end())
      usable.push_back(candidate.backend);
  }
  return usable;
}

std::string reason_phrase(const Reason& reason, CardKind kind) {
  const std::string wanted(reason.wanted);
  const std::string found(reason.found);
  if (reason.rule == Rule::device) return device_phrase(reason);
  if (reason.rule == Rule::policy) return "needs --policy fast";
  if (reason.rule == Rule::override_) return "is not the backend that was asked for";
  if (reason.rule == Rule::quant_scheme) return "takes " + wanted;
  if (reason.rule != Rule::not_built) return "needs " + wanted + ", here: " + found;
  if (kind == CardKind::native && found != "none") return "needs " + found;
  const std::string known = kind.known.empty() ? "" : std::string(kind.known) + " known; ";
  return known + "this build has no kernel for it";
}

std::string needs_of(const Candidate& candidate) {
  std::string text;
  for (const Reason& reason : candidate.reasons) {
    if (reason.rule == Rule::not_built && candidate.reasons.size() > 1) continue;
    text += (text.empty() ? "" : "; ") + reason_phrase(reason, candidate.kind);
  }
  return text;
}

}  // namespace moracle
