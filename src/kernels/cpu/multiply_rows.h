// Prepared rows times packed panels: which kernel meets which rows, and what it asks memory for in the meantime.
#pragma once

#include <algorithm>
#include <cstdint>

#include "kernels/cpu/packed_matrix.h"

namespace moracle::cpu {

// A run of prepared rows as kernels read it. Without initializers: it stands on the stack, and to clear arrays for 64
// tokens took a fifth of a panel's time at one.
struct RunRows {
  std::int64_t count = 0;
  const void* x[kMaxRun];
  const void* sums[kMaxRun];
  const float* scales[kMaxRun];
  float token_scale[kMaxRun];

  void add(const PanelFormat& format, const PreparedRow& row);
};

// Panels of one format that meet the same rows.
struct PanelSet {
  std::int64_t count = 0;  // up to kMaxPanels
  const std::byte* panels[kMaxPanels];
  float scale[kMaxPanels];  // second-level scale
  float* out[kMaxPanels];   // [rows, 32], row stride out_stride
  std::int64_t out_stride = kPanelRows;
  std::int64_t ahead_count = 0;  // panels of the next set, to be asked for in the meantime
  const std::byte* ahead[kMaxPanels];
  const std::byte* after = nullptr;  // the panel to be read behind the last one, where it does not follow in memory

  void add(const std::byte* panel, float second_level, float* to) {
    panels[count] = panel;
    scale[count] = second_level;
    out[count++] = to;
  }
  void add_ahead(const std::byte* panel) { ahead[ahead_count++] = panel; }
};

// Rows times every panel of the set.
void multiply_rows(const PanelFormat& format, const RunRows& rows, const PanelSet& set);
// Whether so many rows take the kernels of runs.
[[nodiscard]] bool runs_from(const PanelFormat& format, std::int64_t rows);

// Panels that are worked on together.
struct PanelGroup {
  std::int64_t count = 0;
  std::int64_t panel[kMaxPanels] = {};
};

// A run of panels read as `streams` streams: group i takes one panel of each stream, so that the addresses of a group
// lie far apart and memory serves them at the same time. With one stream, panel after panel.
class PanelStreams {
 public:
  PanelStreams(std::int64_t begin, std::int64_t end, std::int64_t streams)
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

// Splits `count` tokens into near-equal parts of at most `most`, instead of full ones and a tail of one. The longer
// ones come first.
struct Parts {
  Parts(std::int64_t count, std::int64_t most)
      : parts_((count + most - 1) / most),
        length_(parts_ > 0 ? count / parts_ : 0),
        longer_(parts_ > 0 ? count % parts_ : 0) {}
  [[nodiscard]] std::int64_t size() const { return parts_; }
  [[nodiscard]] std::int64_t begin(std::int64_t part) const { return part * length_ + std::min(part, longer_); }

 private:
  std::int64_t parts_;
  std::int64_t length_;
  std::int64_t longer_;
};

}  // namespace moracle::cpu
