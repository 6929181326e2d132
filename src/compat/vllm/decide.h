// vLLM's walk: which of its backends it would choose for a layer, with the first reason against each other one.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "compat/vllm/experts_class.h"

namespace moracle::vllm {

// Which activation key a row's class is asked about.
enum class RowActivation : std::uint8_t { as_asked, plain, given };

// One place in an oracle's order. A class whose place depends on the question has one row per place.
struct Row {
  const ExpertsClass* experts;
  std::string_view why;                 // what its place rests on
  std::string_view backend;             // what the oracle calls it
  std::span<const Condition> when{};    // the row exists only where one of these holds; none: everywhere
  std::span<const Condition> unless{};  // and where none of these does
  std::span<const Refusal> refusals{};  // asked before the class
  RowActivation activation = RowActivation::as_asked;
  QuantKey activation_key{};   // with RowActivation::given
  bool on_request = false;     // only for those who name it
  bool in_own_format = false;  // named, it is given tokens in its own activation format
};
// A name that users type. A name with several entries means all those backends, in the order of the entries.
struct BackendName {
  std::string_view typed;
  std::string_view backend;
  std::optional<Condition> when{};
};
// Refuses the question itself: nothing is walked.
struct Verdict {
  std::string_view code;  // "config:no_act_and_mul_platform"
  Condition when{};
  std::optional<Condition> unless{};
  std::string_view pinned{};  // only for those who typed this name
};
// Surroundings that demand one backend.
struct ForcedRule {
  std::string_view backend;
  Condition when{};
  std::optional<Condition> unless{};
  bool over_pin = false;  // also where the user named another
  bool fallback = false;  // the walk goes on where it cannot serve, with a warning
  // What is taken unchecked where it cannot serve.
  const ExpertsClass* otherwise = nullptr;
  std::string_view otherwise_backend{};
};
// What it means that no class can serve.
struct Exhausted {
  std::string_view code;  // "no_backend"
  Condition when{};
  std::string_view backend{};  // whose first reason is the error's; empty: none's
  std::string_view pinned{};   // only for those who typed this name
};
// One of vLLM's oracles.
struct Table {
  std::string_view name;  // "wna16"
  std::span<const Row> rows;
  std::span<const BackendName> names{};
  std::span<const std::string_view> names_as_auto{};  // typed names that mean no choice
  std::span<const Verdict> verdicts{};                // the first that holds counts
  std::span<const ForcedRule> forced{};               // the first that holds counts
  std::span<const Exhausted> exhausted{};             // the first that holds counts
};

struct Candidate {
  const Row* row;
  std::vector<LabelledReason> reasons{};  // every mismatch, the first in check order first
  bool by_row = false;                    // the first reason is the row's; the class was not the first to refuse
  bool asked = true;                      // false: another backend was asked for
  std::optional<QuantKey> activation{};   // the activation key that the class was asked about

  [[nodiscard]] bool can() const { return asked && reasons.empty(); }
};

struct Decision {
  std::string_view table;                   // that was walked
  std::vector<Candidate> trace;             // in the order of the walk
  std::optional<std::size_t> chosen{};      // place in the trace of what vLLM would run
  std::string_view verdict{};               // of a Verdict: why nothing was walked
  const ForcedRule* forced = nullptr;       // the surroundings demanded a backend
  const ExpertsClass* unchecked = nullptr;  // nothing is chosen, and this is taken without being asked
  const Exhausted* exhausted = nullptr;     // nobody can serve, and the table says what that means
  bool pin_unknown = false;                 // the table has no such name
  bool pin_without_variant = false;         // the name is known, but means nothing for this question
  std::string_view wanted{};                // the name or backend that restricted the walk; kept by `texts`
  std::vector<std::string> warnings{};
  std::shared_ptr<const ReasonTexts> texts{};  // of the reasons in the trace; copies of the decision share them

  // As the table calls it; empty: nothing is chosen.
  [[nodiscard]] std::string_view backend() const { return chosen ? trace[*chosen].row->backend : std::string_view(); }
};

// Never fails: a decision in which nobody can serve is a decision. Pure: reads its arguments and nothing else. The
// decision refers to the table.
[[nodiscard]] Decision decide(const Question& question, const Machine& machine, const Policy& policy,
                              const Table& table);

// For the renderings of oracle/explain.h: the same trace, in which no candidate is built here.
[[nodiscard]] moracle::Decision explained(const Decision& decision);

}  // namespace moracle::vllm
