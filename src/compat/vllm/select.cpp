#include "compat/vllm/select.h"

namespace moracle::vllm {
namespace {

class Selector {
 public:
  Selector(const Question& question, const Machine& machine, const Policy& policy, const Table& table)
      : question_(question), machine_(machine), policy_(policy), table_(table) {}

  RowSelection run() {
    give_verdict();
    if (!selection_.verdict.empty()) return selection_;
    force();
    if (!selection_.restricted && pinned()) take_pin();
    const bool named_first = selection_.restricted;
    if (named_first) take_named_rows();
    for (const Row& row : table_.rows) {
      if (named_first && selection_.takes(row.backend)) continue;
      if (!row.on_request && in_play(row)) selection_.rows.push_back(&row);
    }
    return selection_;
  }

 private:
  bool true_here(const Condition& when, const std::optional<Condition>& unless) const {
    return holds(when, question_, machine_, policy_) && !(unless && holds(*unless, question_, machine_, policy_));
  }
  bool pinned() const {
    const auto& none = table_.names_as_auto;
    return policy_.pinned && std::find(none.begin(), none.end(), *policy_.pinned) == none.end();
  }

  void give_verdict() {
    for (const Verdict& verdict : table_.verdicts) {
      if (!verdict.pinned.empty() && policy_.pinned != verdict.pinned) continue;
      if (!true_here(verdict.when, verdict.unless)) continue;
      selection_.verdict = verdict.code;
      return;
    }
  }

  void force() {
    for (const ForcedRule& rule : table_.forced) {
      if ((pinned() && !rule.over_pin) || !true_here(rule.when, rule.unless)) continue;
      selection_.forced = &rule;
      if (rule.fallback) return;
      selection_.restricted = true;
      selection_.wanted = rule.backend;
      selection_.backends = {rule.backend};
      return;
    }
  }

  void take_pin() {
    const std::string_view typed = *policy_.pinned;
    selection_.restricted = true;
    selection_.wanted = typed;
    bool known = false;
    for (const BackendName& name : table_.names) {
      if (name.typed != typed) continue;
      known = true;
      if (!name.when || holds(*name.when, question_, machine_, policy_)) selection_.backends.push_back(name.backend);
    }
    selection_.unknown = !known;
    selection_.without_variant = known && selection_.backends.empty();
  }

  // In the order of the names. A name reaches its backend wherever the machine is another one, so that the answer says
  // why it cannot; of several places of a backend, the one that counts here or else the first.
  void take_named_rows() {
    const std::span<const Row> rows = table_.rows;
    for (const std::string_view backend : selection_.backends) {
      std::size_t place = rows.size();
      bool counts = false;
      for (std::size_t i = 0; i < rows.size() && !counts; ++i) {
        if (rows[i].backend != backend) continue;
        counts = in_play(rows[i]);
        // Where none counts, one that could without being named says more than one that could not.
        if (counts || place == rows.size() || (rows[place].on_request && !rows[i].on_request)) place = i;
      }
      for (; place < rows.size() && rows[place].backend == backend; ++place) {
        if (!counts || in_play(rows[place])) selection_.rows.push_back(&rows[place]);
      }
    }
  }

  bool in_play(const Row& row) const {
    const auto true_now = [this](const Condition& condition) { return holds(condition, question_, machine_, policy_); };
    if (!row.when.empty() && std::none_of(row.when.begin(), row.when.end(), true_now)) return false;
    return std::none_of(row.unless.begin(), row.unless.end(), true_now);
  }

  const Question& question_;
  const Machine& machine_;
  const Policy& policy_;
  const Table& table_;
  RowSelection selection_;
};

}  // namespace

RowSelection select_rows(const Question& question, const Machine& machine, const Policy& policy, const Table& table) {
  return Selector(question, machine, policy, table).run();
}

}  // namespace moracle::vllm
