#include "kernels/tuning.h"

#include <cstdlib>

#include "oracle/decide.h"

namespace moracle {

std::string tuning_kind(const Problem& problem, const KernelCard& card) {
  std::string text = std::string(card.id) + " " + shape_text(problem) + " " + scheme_text(problem.scheme);
  if (problem.zero_points) text += ", zero points";
  if (problem.act_order) text += ", act-order";
  return text;
}

std::optional<TuningTrials> decided_tuning() {
  // NOLINTBEGIN(concurrency-mt-unsafe): nothing here changes the environment
  const char* const streams = std::getenv("MORACLE_STREAMS");
  const char* const tuning = std::getenv("MORACLE_TUNING");
  // NOLINTEND(concurrency-mt-unsafe)
  if (streams != nullptr && std::string_view(streams) == "many") {
    return TuningTrials{{.setting = "streams", .value = "many", .against = "one", .taken = true},
                        {.setting = "ahead", .value = "on", .against = "off", .taken = true}};
  }
  const bool one = streams != nullptr && std::string_view(streams) == "one";
  const bool defaults = tuning != nullptr && std::string_view(tuning) == "default";
  return one || defaults ? std::optional<TuningTrials>(TuningTrials{}) : std::nullopt;
}

}  // namespace moracle
