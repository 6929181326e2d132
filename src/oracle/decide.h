// One pure function from problem, machine, policy and table to a decision with every reason.
#pragma once

#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/json/json_fwd.h"
#include "base/result.h"
#include "machine/machine.h"
#include "oracle/card.h"
#include "oracle/problem.h"
#include "oracle/reason_texts.h"
#include "oracle/rule.h"

namespace moracle {

// The views are into a ReasonTexts, or constant.
struct Reason {
  Rule rule;
  std::string_view wanted{};
  std::string_view found{};
};

struct Candidate {
  const KernelCard* card = nullptr;  // null: of another engine's selection, which is only shown
  std::string_view id{};             // of the card
  std::string_view backend{};
  CardKind kind = CardKind::native;
  bool supported = false;
  std::vector<Reason> reasons{};  // every mismatch, the first in check order first
  std::string_view why{};         // what the row's place in the table rests on
};

struct Policy {
  Numerics numerics = Numerics::exact;
  bool batch_invariant = false;
  std::optional<std::string> pinned{};     // backend name: must serve or the call fails with the trail
  std::optional<std::string> preferred{};  // may fall back, with one warning
  bool elsewhere = false;                  // nothing runs here: what this process lacks for kernels is not asked
};

// One row of a priority table. The order of rows is the priority, `why` says what it rests on.
struct TableRow {
  const KernelCard* card;
  std::string_view why;
};
struct Table {
  std::string_view name;  // "wna16", "unquantized"
  std::span<const TableRow> rows;
  // What a card of kind `own` lacks to run in this process, in constant words; empty: nothing. Null: none lacks
  // anything. Cards of other kinds never run.
  std::string_view (*missing)(std::string_view card_id) = nullptr;
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
  std::string_view if_built{};                  // backend of best_if_built, or of another engine's choice
  std::optional<std::size_t> best_candidate{};  // place in the trace of what would win if it were built
  std::string table;                            // name of the table that was walked
  std::optional<std::string> pinned;            // as asked for
  std::vector<std::string_view> backend_names;  // the table's, for messages
  std::shared_ptr<const ReasonTexts> texts;     // of the reasons in the trace; copies of the decision share them
};

// Every mismatch between one card and the question, in check order: device, no_act_and_mul, activation, quant_scheme,
// zero_points, act_order, bias, shape, source_layout, batch_invariance, policy. Pure. The reasons refer to `texts` and
// to the card.
[[nodiscard]] std::vector<Reason> mismatches(const Problem& problem, const Machine& machine, const Policy& policy,
                                             const KernelCard& card, ReasonTexts& texts);
[[nodiscard]] bool matches(const DeviceRule& rule, const Machine& machine);

// Walks the table, checks every card against every rule, collects all mismatches (`override` and `not_built` come after
// those above). Never fails: a decision without a winner is a decision. Pure: reads its arguments and nothing else.
//   pinned     every card of another name gets an `override` reason; the pinned ones keep their own. An unknown name
//              yields no winner and an `override` reason on every candidate.
//   preferred  its first supported card wins; if none is, the best other one does, with one warning.
//   reference  (any_device_of_host) ranks behind everything; when it wins without having been named, there is a
//   warning.
[[nodiscard]] Decision decide(const Problem& problem, const Machine& machine, const Policy& policy, const Table& table);

// The winner, or an error: "oracle.no_backend", whose details say what each backend lacks; "oracle.pinned", one
// sentence that says what the pinned one lacks and which are usable.
[[nodiscard]] Result<const KernelCard*> winner_of(const Decision& decision, const Problem& problem);

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
