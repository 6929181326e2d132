// How a packed layer is walked where that moves no bit of a result, and the short measurement that chooses it at load.
//
// A value other than the default is in force only where it was faster by more than noise, in calls whose weights came
// from memory.
#pragma once

#include <cstdint>
#include <limits>
#include <span>
#include <string_view>

#include "base/function_ref.h"
#include "kernels/cpu/panel.h"
#include "kernels/kernel.h"
#include "kernels/tuning.h"

namespace moracle::cpu {

constexpr std::int64_t kNoRuns = std::numeric_limits<std::int64_t>::max();

struct Tuning {
  bool streams = false;               // up to kWideTiles tokens meet several panels at once, which lie far apart
  bool ahead = false;                 // more tokens ask for the next such panels while they meet these, one by one
  std::int64_t run_from = 0;          // tokens from which on a run meets decoded weights; 0: as the kernels say
  std::int64_t distance = kDistance;  // PanelArgs::distance

  // Whether so many tokens meet panels in groups.
  [[nodiscard]] bool together(std::int64_t tokens) const;
  bool operator==(const Tuning&) const = default;
};

// A value that may be chosen instead of a setting's default.
struct TuningCandidate {
  std::string_view setting;
  std::string_view value;
  std::string_view otherwise;
  std::int64_t tokens;    // of each expert, in calls that can tell
  std::int64_t run_from;  // the default that it is for; 0: any
  void (*apply)(Tuning&);
};
[[nodiscard]] std::span<const TuningCandidate> tuning_candidates();

// Seconds of one call with the tuning in force and, right beside it, with a candidate.
struct TimedPair {
  double in_force = 0;
  double candidate = 0;
};
struct TuningVerdict {
  double gain = 1;   // median of in_force / candidate
  double noise = 0;  // three standard errors of it
  bool taken = false;
};
// A candidate is taken where the median gain is above 1 by more than its noise and by more than 3 %.
[[nodiscard]] TuningVerdict judge(std::span<const TimedPair> pairs);

// A packed layer of experts, as the measurement sees it.
struct TunedLayer {
  const PackedExperts& packed;
  std::int64_t experts = 0;
  std::int64_t hidden = 0;
  std::int64_t run_from = 0;  // the kernels' own; 0: there are no runs, or they sum in another order than tiles do
  // run() under a tuning.
  FunctionRef<void(const Tuning&, const RunContext&, const ExpertsInput&, float*)> run;
};

// The tuning of a layer: what the store keeps for its kind, else what a measurement of about 0.1 s tells, of layers
// that are large enough. Without a store, and of smaller layers, the default.
[[nodiscard]] Tuning tune(const TunedLayer& layer, const PackOptions& options);

// Linears are too small to be measured. They are read as the first layer of experts that the process tuned is: as
// several streams or as one, and as far ahead.
[[nodiscard]] Tuning tuning_of_linears();
void choose_for_linears(const Tuning& tuning);

}  // namespace moracle::cpu
