// The experts that calls of a model chose, as a file that scripts/cache-sim replays.
#pragma once

#include <cstdint>
#include <fstream>
#include <span>
#include <string>
#include <vector>

#include "base/result.h"

namespace moracle {

// A line of JSON for the model, {"layers": L, "experts": E}, then one for each call: by layer, the experts that some
// token of the call chose, ascending.
class RoutingTrace {
 public:
  // Errors: "file.write".
  static Result<RoutingTrace> create(const std::string& path, std::int64_t layers, std::int64_t experts);

  // [layers, experts]: calls add to it, as of SequenceState::count_routing.
  [[nodiscard]] std::span<std::uint32_t> counts() { return counts_; }
  // The line of what was counted since the last one.
  void end_call();
  // Errors: "file.write".
  Result<> close();

 private:
  RoutingTrace(const std::string& path, std::int64_t layers, std::int64_t experts);

  std::string path_;
  std::size_t experts_;
  std::vector<std::uint32_t> counts_;
  std::ofstream file_;
};

}  // namespace moracle
