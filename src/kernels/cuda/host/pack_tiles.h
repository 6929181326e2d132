// Canonical experts in records (records.h).
#pragma once

#include <cstddef>
#include <span>
#include <string_view>

#include "base/result.h"
#include "kernels/args/experts.h"
#include "kernels/cuda/host/pack.h"
#include "scheme/canonical.h"

namespace moracle::cuda {

// The records that hold the weights of a scheme; "quant.unsupported" where none do. For mxfp4_row scales decide, which
// pack_records sees: where it answers kFarScales, mxfp4 holds them.
Result<RecordKind> record_kind(const CanonicalExperts& experts, const PackForm& form);
inline constexpr std::string_view kFarScales = "scale.far";

// Places the matrices of an expert: args.gate, up, down, pack.expert_bytes and pack.records. Errors: "shape" for sizes
// that are no whole steps of records, "quant.unsupported" for weights or parts that records do not have.
Result<> lay_out_records(const CanonicalExperts& experts, const PackForm& form, RecordKind kind,
                         const MatrixParts& parts, RoutedExperts& args);

// Writes an expert to `block`, which is zeroed. Errors: "scale.range" for scales that kernels would lose, kFarScales,
// those of MatrixSource::read.
Result<> pack_records(const CanonicalExperts::Expert& expert, const RoutedExperts& args, std::span<std::byte> block);

}  // namespace moracle::cuda
