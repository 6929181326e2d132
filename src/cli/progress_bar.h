// The text of a progress bar.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace moracle::cli {

struct Progress {
  std::string_view label;
  double done = 0;
  double total = 0;
  bool of_bytes = false;
  double seconds = 0;  // since the work began
};

// "loading [####    ]  50 %  8.0 of 15.9 GB  1.1 GB/s  7 s left", in fewer than `width` columns: the bar shrinks first
// and goes, then what stands at the end. Rate and time left are told of bytes alone, once half a second has passed.
[[nodiscard]] std::string progress_bar(const Progress& progress, std::size_t width);

}  // namespace moracle::cli
