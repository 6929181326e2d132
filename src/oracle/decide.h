// One pure function from problem, machine, policy and table to a decision with every reason.
#pragma once

#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/json.h"
#include "base/result.h"
#include "machine/machine.h"
#include "oracle/card.h"
#include "oracle/problem.h"

namespace moracle {

enum class Rule : std::uint8_t {
  device,
  quant_scheme,
  activation,
  no_act_and_mul,
  parallel_config,
  activation_format,
  shape,
  routing,
  bias,
  zero_points,
  act_order,
  dtype,
  library,
  policy,
  override_,
  hash_routing,
  decomposed_required,
  router_logits_dtype,
  batch_invariance,
  lora,
  source_layout,
  not_built,
};
[[nodiscard]] std::string_view to_string(Rule rule);  // the contract's spelling: "quant_scheme", "override", ...

struct Reason {
  Rule rule;
  std::string wanted;
  std::string found;
};

struct Candidate {
  const KernelCard* card;
  bool supported;
  std::vector<Reason> reasons;  // every mismatch, the first in check order first
};

struct Policy {
  Numerics numerics = Numerics::exact;
  bool batch_invariant = false;
  std::optional<std::string> pinned;     // backend name: must serve or the call fails with the trail
  std::optional<std::string> preferred;  // may fall back, with one warning
};

// One row of a priority table. The order of rows is the priority, `why` says what it rests on.
struct TableRow {
  const KernelCard* card;
  std::string_view why;
};
struct Table {
  std::string_view name;  // "wna16", "unquantized"
  std::span<const TableRow> rows;
  // Card ids this build can run; empty span with `all_built` = every card.
  bool (*built)(std::string_view card_id) = nullptr;
};

struct Decision {
  const KernelCard* winner = nullptr;  // null: nobody can serve, or the pinned one cannot
  std::vector<Candidate> trace;        // every card of the table, in priority order
  std::vector<std::string> warnings;
  std::string machine_fingerprint;
};

// Walks the table, checks every card against every rule, collects all mismatches. Never fails: a decision without a
// winner is a decision. An unknown pinned name yields no winner and an `override` reason on every candidate.
[[nodiscard]] Decision decide(const Problem& problem, const Machine& machine, const Policy& policy, const Table& table);

// The winner, or an error "oracle.no_backend" / "oracle.pinned" whose text carries the whole trail.
[[nodiscard]] Result<const KernelCard*> winner_of(const Decision& decision, const Problem& problem);

// Renderings. The one-line form is what a load prints; the table is what `explain` prints.
[[nodiscard]] std::string explain_line(const Problem& problem, const Decision& decision);
[[nodiscard]] Json trace_json(const Decision& decision);  // [{"backend","supported","kind","reasons":[...]}]

}  // namespace moracle
