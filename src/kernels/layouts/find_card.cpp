#include "kernels/layouts/find_card.h"

#include <algorithm>
#include <string>
#include <vector>

#include "kernels/kernel.h"

namespace moracle {

Machine device_of(const KernelCard& card) {
  const DeviceRule& rule = card.devices.front();
  Machine machine;
  machine.device = rule.device;
  machine.arch = rule.arch;
  machine.capability = rule.min_capability;
  return machine;
}

Result<const KernelCard*> layout_card_for(std::string_view backend, const Problem& problem) {
  MORACLE_ASSIGN(const Table* table, table_for(problem.scheme));
  std::string against;
  std::vector<std::string_view> known;
  for (const TableRow& row : table->rows) {
    const KernelCard& card = *row.card;
    if (card.kind != CardKind::external) continue;
    if (std::find(known.begin(), known.end(), card.backend) == known.end()) known.push_back(card.backend);
    if (card.backend != backend) continue;
    ReasonTexts texts;
    const std::vector<Reason> reasons = mismatches(problem, device_of(card), {}, card, texts);
    if (reasons.empty()) return &card;
    for (const Reason& reason : reasons) against += (against.empty() ? "" : "; ") + reason_text(reason);
  }
  std::string names;
  for (const std::string_view name : known) names += (names.empty() ? "" : ", ") + std::string(name);
  return Error{.code = "oracle.layout",
               .where = scheme_text(problem.scheme),
               .wanted = "a layout that holds these experts, of: " + (names.empty() ? "none" : names),
               .found = against.empty() ? "\"" + std::string(backend) + "\"" : std::string(backend) + ": " + against};
}

}  // namespace moracle
