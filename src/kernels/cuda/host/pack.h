// Canonical weights in the layout that the CUDA kernels read: matrix after matrix, expert after expert, each expert at
// the same distance and with the same offsets inside, so that an expert can lie anywhere.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "base/result.h"
#include "kernels/args/matrix.h"
#include "scheme/canonical.h"

namespace moracle::cuda {

// What the codes, scales and inputs of a scheme become on the device.
struct PackForm {
  DeviceCode code = DeviceCode::bf16;
  DeviceScale scale = DeviceScale::none;
  InputKind input = InputKind::bf16;
};
// Errors: "quant.unsupported", for a scheme that no card names.
Result<PackForm> form_of(const Scheme& scheme);

// What one matrix of a pack has beside codes and scales.
struct MatrixParts {
  bool bias = false;
  bool order = false;  // columns lie in the order of their groups
};

// Places a matrix behind `end` and moves `end` behind it. Errors: "quant.group", for groups that no fold can meet.
Result<MatrixArgs> lay_out(const MatrixSpec& spec, const PackForm& form, const MatrixParts& parts, std::uint64_t& end);

// Writes a matrix to its place in `expert`, which is zeroed. Errors: those of MatrixSource::read.
Result<> pack_matrix(const CanonicalLinear& linear, const PackForm& form, const MatrixArgs& to,
                     std::span<std::byte> expert);

}  // namespace moracle::cuda
