// Settings of packed layers that move no bit of a result: what a kernel measured of them at load, and where that is
// kept until the next one. Settings and their values are the kernel's own words.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "oracle/card.h"
#include "oracle/problem.h"

namespace moracle {

// One value of one setting, timed in turn with the value that was in force.
struct TuningTrial {
  std::string setting{};    // "streams"
  std::string value{};      // "many"
  std::string against{};    // "one"
  std::int64_t tokens = 0;  // that met each expert in the calls that were timed
  double gain = 1;          // time with `against` over time with `value`: the median of the pairs
  double noise = 0;         // of `gain`: three standard errors
  bool taken = false;       // faster by more than noise, so `value` is in force from here on

  bool operator==(const TuningTrial&) const = default;
};

// What was measured for one kind of layer, in order. None: nothing was, and every setting has its default.
using TuningTrials = std::vector<TuningTrial>;

// Keeps what was measured. Layers are of one kind where they have the same kernel, scheme and shape, and share a name.
class TuningStore {
 public:
  virtual ~TuningStore() = default;
  // What is kept for layers of this kind; null: nothing. Valid until the next call of keep.
  [[nodiscard]] virtual const TuningTrials* recall(std::string_view kind) = 0;
  // `seconds`: that it took to measure them.
  virtual void keep(std::string_view kind, TuningTrials trials, double seconds) = 0;
};

// What layers of one kind have in common, in words.
[[nodiscard]] std::string tuning_kind(const Problem& problem, const KernelCard& card);

// What the user has decided instead: MORACLE_STREAMS=one|many, or MORACLE_TUNING=default for every setting. Empty: no
// such thing, or words that mean nothing.
[[nodiscard]] std::optional<TuningTrials> decided_tuning();

// Packed layers of fewer bytes are not measured: a cache could hold them.
inline constexpr std::int64_t kLeastTunedBytes = std::int64_t{128} << 20;

}  // namespace moracle
