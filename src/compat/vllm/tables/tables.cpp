#include "compat/vllm/tables/tables.h"

#include <algorithm>
#include <array>

namespace moracle::vllm {
namespace {

constexpr std::array kAll{&kWna16Table,      &kWna16RevertedTable, &kInt8Table,  &kW4A8Table,  &kW4A8Int8Table,
                          &kFp8Table,        &kMxfp8Table,         &kNvfp4Table, &kMxfp4Table, &kMxfp4DeepseekV4Table,
                          &kUnquantizedTable};

}  // namespace

std::span<const Table* const> all_tables() {
  return kAll;
}

const Table* static_order_of(const Table& table) {
  return &table == &kWna16Table ? &kWna16RevertedTable : nullptr;
}

const Table* table_named(std::string_view oracle) {
  const auto* it =
      std::find_if(kAll.begin(), kAll.end(), [oracle](const Table* table) { return table->name == oracle; });
  return it == kAll.end() ? nullptr : *it;
}

}  // namespace moracle::vllm
