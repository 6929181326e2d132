// The order in which a thread reads a range of panels.
#pragma once

#include <cstdint>

#include "kernels/cpu/weights/panel.h"

namespace moracle::cpu {

// Panels of one call of a kernel.
struct PanelGroup {
  std::int64_t count = 0;
  std::int64_t panel[kMaxPanels] = {};
};

// A range of panels read as `streams` streams: group i takes one panel of each stream, so that the addresses of a group
// lie far apart and memory serves them at the same time. With one stream, panel after panel.
class InterleavedPanels {
 public:
  InterleavedPanels(std::int64_t begin, std::int64_t end, std::int64_t streams)
      : begin_(begin), end_(end), length_((end - begin + streams - 1) / streams) {}
  [[nodiscard]] std::int64_t size() const { return length_; }  // groups
  [[nodiscard]] PanelGroup at(std::int64_t i) const {          // empty behind the last
    PanelGroup group;
    if (i >= length_) return group;
    for (std::int64_t panel = begin_ + i; panel < end_; panel += length_) group.panel[group.count++] = panel;
    return group;
  }

 private:
  std::int64_t begin_;
  std::int64_t end_;
  std::int64_t length_;
};

}  // namespace moracle::cpu
