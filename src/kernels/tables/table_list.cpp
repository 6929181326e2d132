#include "kernels/tables/table_list.h"

#include <array>

#include "kernels/cuda/host/kernels.h"
#include "kernels/kernel.h"

namespace moracle {
namespace {

constexpr std::array kTables{&kWna16Table, &kInt8Table,  &kW4A8Table,  &kFp8Table,        &kMxfp4Table,
                             &kMxfp6Table, &kMxfp8Table, &kNvfp4Table, &kUnquantizedTable};

}  // namespace

std::string_view missing(std::string_view card_id) {
  const KernelImplementation* const found = find_implementation(card_id);
  if (found == nullptr) return "none";
  return found->card->device == DeviceKind::cuda ? cuda::missing_device() : std::string_view();
}

Result<const Table*> table_for(const Scheme& scheme) {
  for (const SchemeTable* entry : kTables) {
    if (entry->serves(scheme)) return &entry->table;
  }
  std::string names;
  for (const SchemeTable* entry : kTables) names += (names.empty() ? "" : ", ") + std::string(entry->table.name);
  return Error{.code = "oracle.no_table",
               .wanted = "a scheme that one of the tables serves: " + names,
               .found = to_string(scheme)};
}

std::span<const Table* const> all_tables() {
  static constexpr auto kAll = [] {
    std::array<const Table*, kTables.size()> tables{};
    for (std::size_t i = 0; i < tables.size(); ++i) tables[i] = &kTables[i]->table;
    return tables;
  }();
  return kAll;
}

}  // namespace moracle
