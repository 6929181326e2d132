// vLLM's oracles, one table each. The order of the rows is vLLM's; `why` says what moved a row.
#pragma once

#include <span>
#include <string_view>

#include "compat/vllm/decide.h"

namespace moracle::vllm {

extern const Table kWna16Table;
extern const Table kWna16RevertedTable;
extern const Table kInt8Table;
extern const Table kW4A8Table;
extern const Table kW4A8Int8Table;
extern const Table kFp8Table;
extern const Table kMxfp8Table;
extern const Table kNvfp4Table;
extern const Table kMxfp4Table;
extern const Table kMxfp4DeepseekV4Table;
extern const Table kUnquantizedTable;

[[nodiscard]] std::span<const Table* const> all_tables();
// The table of the same question whose rows are an order alone: no row looks at zero points, biases or who packed the
// checkpoint. Null: vLLM's oracle never was one.
[[nodiscard]] const Table* static_order_of(const Table& table);
// By the oracle's name, "wna16"; null: vLLM has no such oracle.
[[nodiscard]] const Table* table_named(std::string_view oracle);

}  // namespace moracle::vllm
