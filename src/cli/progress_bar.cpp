#include "cli/progress_bar.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <vector>

#include "cli/screen.h"

namespace moracle::cli {

namespace {

constexpr std::size_t kLeastBar = 4;
constexpr std::size_t kWidestBar = 32;
constexpr double kJudgedAfter = 0.5;  // seconds

// "8 s", "1 min 20 s", "12 min", "2 h 05 min".
std::string duration_text(double seconds) {
  const auto whole = std::llround(std::min(seconds, 359999.0));
  if (whole < 60) return fmt::format("{} s", whole);
  if (whole < 600) return fmt::format("{} min {:02} s", whole / 60, whole % 60);
  if (whole < 3600) return fmt::format("{} min", whole / 60);
  return fmt::format("{} h {:02} min", whole / 3600, whole % 3600 / 60);
}

std::string rate_text(double bytes_per_second) {
  return bytes_per_second < 1e9 ? fmt::format("{:.0f} MB/s", bytes_per_second * 1e-6)
                                : fmt::format("{:.1f} GB/s", bytes_per_second * 1e-9);
}

}  // namespace

std::string progress_bar(const Progress& progress, std::size_t width) {
  const double share = progress.total > 0 ? std::clamp(progress.done / progress.total, 0.0, 1.0) : 0.0;
  std::vector<std::string> parts = {fmt::format(" {:3.0f} %", share * 100)};
  if (progress.of_bytes) {
    const bool giga = progress.total >= 1e9;
    const double unit = giga ? 1e9 : 1e6;
    parts.push_back(
        fmt::format("  {:.1f} of {:.1f} {}", progress.done / unit, progress.total / unit, giga ? "GB" : "MB"));
    if (progress.seconds > kJudgedAfter && progress.done > 0) {
      const double rate = progress.done / progress.seconds;
      parts.push_back("  " + rate_text(rate));
      parts.push_back("  " + duration_text((progress.total - progress.done) / rate) + " left");
    }
  }
  std::string text(progress.label);
  std::string behind;
  std::size_t columns = columns_of(text);
  for (const std::string& part : parts) {
    if (columns + part.size() >= width) break;
    columns += part.size();
    behind += part;
  }
  constexpr std::size_t kFrame = 3;  // " [" and "]"
  if (columns + kFrame + kLeastBar < width) {
    const std::size_t bar = std::min(width - columns - kFrame - 1, kWidestBar);
    const auto filled = static_cast<std::size_t>(share * static_cast<double>(bar));
    text += " [" + std::string(filled, '#') + std::string(bar - filled, ' ') + "]";
  }
  return text + behind;
}

}  // namespace moracle::cli
