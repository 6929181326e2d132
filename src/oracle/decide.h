// One pure function from problem, machine, policy and table to a decision with every reason.
#pragma once

#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/json.h"
#include "base/result.h"
#include "machine/machine.h"
#include "oracle/card.h"
#include "oracle/problem.h"
#include "oracle/reason_texts.h"

namespace moracle {

// The views are into a ReasonTexts, or constant.
struct Reason {
  Rule rule;
  std::string_view wanted{};
  std::string_view found{};
  std::string_view label{};  // a narrower name for the cause, of a Refusal
  bool by_row = false;       // the table's row refuses, before the card was asked
};

struct Candidate {
  const KernelCard* card;
  bool supported;
  std::vector<Reason> reasons;           // every mismatch, the first in check order first
  std::string_view why{};                // what the row's place in the table rests on
  std::string_view backend{};            // as the table calls it
  std::optional<QuantKey> activation{};  // the activation key that the card was asked about
};

struct Policy {
  Numerics numerics = Numerics::exact;
  bool batch_invariant = false;
  std::optional<std::string> pinned{};     // backend name: must serve or the call fails with the trail
  std::optional<std::string> preferred{};  // may fall back, with one warning
  // What the surroundings say, by name: environment variables, and what a caller states about itself.
  std::vector<std::pair<std::string, std::string>> facts{};
  // false: the choice and its rules alone, without texts, fingerprint and names; for those who ask by the thousand.
  bool explain = true;
};

// Which activation key a row's card is asked about.
enum class RowActivation : std::uint8_t { as_asked, plain, given };

// One row of a priority table. The order of rows is the priority, `why` says what it rests on.
struct TableRow {
  const KernelCard* card;
  std::string_view why;
  std::string_view backend{};           // what the table calls it; empty: the card's backend
  std::span<const Condition> when{};    // the row exists only where one of these holds; none: everywhere
  std::span<const Condition> unless{};  // and where none of these does
  std::span<const Refusal> refusals{};  // asked before the card
  RowActivation activation = RowActivation::as_asked;
  QuantKey activation_key{};   // with RowActivation::given
  bool on_request = false;     // only for those who name it
  bool in_own_format = false;  // named, it is given tokens in its own activation format
};
// A name that users type where it is not a card's `backend`. A name with several rows means all those backends, in the
// order of the names.
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
  const KernelCard* otherwise = nullptr;
  std::string_view otherwise_backend{};
};
// What it means that no card can serve.
struct Exhausted {
  std::string_view code;  // "no_backend"
  Condition when{};
  std::string_view backend{};  // whose first reason is the error's; empty: none's
  std::string_view pinned{};   // only for those who typed this name
};
struct Table {
  std::string_view name;  // "wna16", "unquantized"
  std::span<const TableRow> rows;
  // Whether this build can run a card; null: it can run every card of kind `own`. Cards of other kinds never run.
  bool (*built)(std::string_view card_id) = nullptr;
  std::span<const BackendName> names{};  // empty: users type the cards' backends
  bool emulation_in_place = false;       // emulation is ranked where its row is; else behind every other card
  std::span<const std::string_view> names_as_auto{};  // typed names that mean no choice
  std::span<const Verdict> verdicts{};                // the first that holds counts
  std::span<const ForcedRule> forced{};               // the first that holds counts
  std::span<const Exhausted> exhausted{};             // the first that holds counts
};

// Accepted by --backend for this table, each once, in table order.
[[nodiscard]] std::vector<std::string_view> backend_names(const Table& table);

struct Decision {
  const KernelCard* winner = nullptr;  // null: nobody can serve, or the pinned one cannot
  std::vector<Candidate> trace;        // every card of the table, in priority order
  std::vector<std::string> warnings;
  std::string machine_fingerprint;
  // What would win if every card of the table had an implementation here: the answer to "what would that machine
  // choose". Equal to `winner` when nothing better is missing.
  const KernelCard* best_if_built = nullptr;
  std::string table;                            // name of the table that was walked
  std::optional<std::string> pinned;            // as asked for
  std::vector<std::string_view> backend_names;  // the table's, for messages
  std::string_view verdict{};                   // of a Verdict: why nothing was walked
  const ForcedRule* forced = nullptr;           // the surroundings demanded a backend
  const Exhausted* exhausted = nullptr;         // nobody can serve, and the table says what that means
  bool unchecked = false;                       // best_if_built was taken from ForcedRule::otherwise
  bool pin_unknown = false;                     // the table has no such name
  bool pin_without_variant = false;             // the name is known, but means nothing for this question
  std::optional<std::size_t> best_candidate{};  // best_if_built's place in the trace
  std::shared_ptr<const ReasonTexts> texts;     // of the reasons in the trace; copies of the decision share them
};

// Every mismatch between one card and the question, in check order: device, library, no_act_and_mul, activation,
// quant_scheme, zero_points, act_order, parallel_config, hash_routing, decomposed_required, routing,
// router_logits_dtype, dtype, bias, shape, activation_format, source_layout, batch_invariance, lora, policy. Pure.
// A card's refusals come before, with or after these, as each says. The reasons refer to `texts` and to the card.
[[nodiscard]] std::vector<Reason> mismatches(const Problem& problem, const Machine& machine, const Policy& policy,
                                             const KernelCard& card, ReasonTexts& texts);
[[nodiscard]] bool matches(const DeviceRule& rule, const Machine& machine);
[[nodiscard]] bool holds(const Condition& condition, const Problem& problem, const Machine& machine,
                         const Policy& policy);
// Null when it does not refuse.
[[nodiscard]] std::optional<Reason> refused(const Refusal& refusal, const Problem& problem, const Machine& machine,
                                            const Policy& policy, ReasonTexts& texts);

// Walks the table, checks every card against every rule, collects all mismatches (`override` and `not_built` come after
// those above). Never fails: a decision without a winner is a decision. Pure: reads its arguments and nothing else.
//   pinned     every card of another name gets an `override` reason; the pinned ones keep their own. An unknown name
//              yields no winner and an `override` reason on every candidate.
//   preferred  its first supported card wins; if none is, the best other one does, with one warning.
//   emulation  wins only where nothing else can, with a warning.
//   reference  (any_device_of_host) ranks behind everything; when it wins without having been named, there is a
//   warning.
[[nodiscard]] Decision decide(const Problem& problem, const Machine& machine, const Policy& policy, const Table& table);

// The winner, or an error "oracle.no_backend" / "oracle.pinned" whose `found` carries the whole trail, one line a
// candidate.
[[nodiscard]] Result<const KernelCard*> winner_of(const Decision& decision, const Problem& problem);

// Renderings. The one-line form is what a load prints; the table is what `explain` prints.
// `layers`: how many layers share the decision.
//   "experts x48 [128 experts, top-8, 2048 -> 768]: int4 g128 sym, 16-bit activations -> avx512bf16 (2 others can, 1
//   cannot)", on one line.
[[nodiscard]] std::string explain_line(const Problem& problem, const Decision& decision, std::size_t layers = 1);
// "int4 g128 sym, 16-bit activations"
[[nodiscard]] std::string scheme_text(const Scheme& scheme);
void append_scheme(std::string& out, const Scheme& scheme);
// "[128 experts, top-8, 2048 -> 768]", of a linear "[2048 -> 4096]"
[[nodiscard]] std::string shape_text(const Problem& problem);
// "device: wanted cpu with avx2, found cpu x86_64 with none"
[[nodiscard]] std::string reason_text(const Reason& reason);
// [{"backend", "card", "supported", "kind", "reasons": [{"rule", "wanted", "found"}]}]
[[nodiscard]] Json trace_json(const Decision& decision);

}  // namespace moracle
