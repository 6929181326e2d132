// Canonical experts in records (records.h).
#pragma once

#include <cstddef>
#include <span>

#include "base/result.h"
#include "device/launch_args.h"
#include "kernels/cuda/pack.h"
#include "scheme/canonical.h"

namespace moracle::cuda {

// Places the matrices of an expert: args.gate, up, down, pack.expert_bytes and pack.records. Errors: "shape" for sizes
// that are no whole steps of records, "quant.unsupported" for weights or parts that records do not have.
Result<> lay_out_records(const CanonicalExperts& experts, const PackForm& form, const MatrixParts& parts,
                         ExpertsArgs& args);

// Writes an expert to `block`, which is zeroed. Errors: "scale.range" for scales that kernels would lose, those of
// MatrixSource::read.
Result<> pack_records(const CanonicalExperts::Expert& expert, const ExpertsArgs& args, std::span<std::byte> block);

}  // namespace moracle::cuda
