#include "kernels/tables/reference_tables.h"

#include <algorithm>
#include <array>

namespace moracle {
namespace {

constexpr std::array kAll{
    &kReferenceWna16,      &kReferenceWna16Reverted, &kReferenceInt8,  &kReferenceW4A8,  &kReferenceW4A8Int8,
    &kReferenceFp8,        &kReferenceMxfp8,         &kReferenceNvfp4, &kReferenceMxfp4, &kReferenceMxfp4DeepseekV4,
    &kReferenceUnquantized};

}  // namespace

std::span<const Table* const> reference_tables() {
  return kAll;
}

const Table* static_order_of(const Table& table) {
  return &table == &kReferenceWna16 ? &kReferenceWna16Reverted : nullptr;
}

const Table* reference_table(std::string_view oracle) {
  const auto* it =
      std::find_if(kAll.begin(), kAll.end(), [oracle](const Table* table) { return table->name == oracle; });
  return it == kAll.end() ? nullptr : *it;
}

}  // namespace moracle
