// The priority tables of the reference engine's oracles, one an oracle, so that Moracle's walk answers what that engine
// would. The rows' order is that engine's; `why` says what moved a row.
#pragma once

#include <span>
#include <string_view>

#include "oracle/decide.h"

namespace moracle {

extern const Table kReferenceWna16;
extern const Table kReferenceWna16Reverted;
extern const Table kReferenceInt8;
extern const Table kReferenceW4A8;
extern const Table kReferenceW4A8Int8;
extern const Table kReferenceFp8;
extern const Table kReferenceMxfp8;
extern const Table kReferenceNvfp4;
extern const Table kReferenceMxfp4;
extern const Table kReferenceMxfp4DeepseekV4;
extern const Table kReferenceUnquantized;

[[nodiscard]] std::span<const Table* const> reference_tables();
// The table of the same question whose rows are an order alone: no row looks at zero points, biases or who packed the
// checkpoint. Null: the reference's oracle never was one.
[[nodiscard]] const Table* static_order_of(const Table& table);
// By the oracle's name, "wna16"; null: the reference has no such oracle.
[[nodiscard]] const Table* reference_table(std::string_view oracle);

}  // namespace moracle
