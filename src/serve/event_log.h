// The server's log: one JSON document a line.
#pragma once

#include <cstdint>

#include "base/json.h"

namespace moracle::serve {

// Writes whole lines to a descriptor, and never waits for its reader: lines that it does not take are dropped and
// counted. Used on one thread at a time.
class EventLog {
 public:
  explicit EventLog(int descriptor) : descriptor_(descriptor) {}  // negative: nothing is written

  // Adds "time", seconds since 1970.
  void line(Json event);
  [[nodiscard]] std::uint64_t dropped() const { return dropped_; }

 private:
  int descriptor_;
  std::uint64_t dropped_ = 0;
};

}  // namespace moracle::serve
