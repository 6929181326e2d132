// How fast the experts of a checkpoint can be read, measured.
#pragma once

#include <chrono>
#include <optional>
#include <span>

#include "checkpoint/checkpoint.h"
#include "scheme/canonical.h"

namespace moracle {

// Bytes a second: reads experts in drawn order as an ExpertPool does, for about `time`. `experts` are of the
// checkpoint. Empty where there are none, one cannot be read, or their files have holes.
[[nodiscard]] std::optional<double> measure_read_rate(const Checkpoint& checkpoint,
                                                      std::span<const CanonicalExperts::Expert> experts,
                                                      std::chrono::milliseconds time);

}  // namespace moracle
