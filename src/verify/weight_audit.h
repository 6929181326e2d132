// Looks for weights that cannot be right: values a reader refuses, scales of zero, saturated or dead matrices.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/thread_pool.h"
#include "scheme/canonical.h"

namespace moracle {

struct Finding {
  enum class Severity : std::uint8_t { warning, error };
  std::string tensor;   // module path on disk
  std::string finding;  // in words, with counts
  Severity severity = Severity::error;
};

// Counts over one whole matrix.
struct MatrixAudit {
  std::int64_t elements = 0;
  std::int64_t zero = 0;         // elements that decode to zero
  std::int64_t saturated = 0;    // codes at either end of their range; 0 for unquantized matrices
  std::int64_t non_finite = 0;   // scales or values
  std::int64_t zero_scales = 0;  // scales of zero
  std::int64_t lost = 0;         // non-zero codes under a scale of zero
};

// Share of saturated codes from which a matrix is called wrong. A symmetric quantizer puts one or two codes of a group
// at the ends: at most 1/16 for the narrowest group (16) and, for 4-bit floats under a power-of-two scale that rounds
// down, up to about 1/8 of normally distributed weights. Half is far from both; a scale that was read wrongly is not.
inline constexpr double kSaturatedShare = 0.5;

// Reads every panel of the matrix. Errors: those of MatrixSource::read.
Result<MatrixAudit> audit_matrix(const MatrixSource& matrix);

// What is wrong with one matrix; a read that fails is a finding too.
std::vector<Finding> examine(const MatrixSource& matrix, bool expert);

// The same for all matrices, spread over the pool, in their order.
std::vector<Finding> examine_all(const std::vector<const MatrixSource*>& matrices, bool experts, ThreadPool& pool);

}  // namespace moracle
