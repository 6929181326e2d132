#include "base/generic/quantity.h"

#include <fmt/format.h>

#include <array>

namespace moracle {

namespace {

std::string scaled(double value, double step, const std::array<const char*, 5>& units) {
  std::size_t unit = 0;
  while (value >= step && unit + 1 < units.size()) {
    value /= step;
    ++unit;
  }
  return unit == 0 ? fmt::format("{:.0f}{}", value, units[0]) : fmt::format("{:.1f}{}", value, units[unit]);
}

}  // namespace

std::string human_bytes(std::uint64_t bytes) {
  return scaled(static_cast<double>(bytes), 1024, {" B", " KiB", " MiB", " GiB", " TiB"});
}

std::string human_count(std::uint64_t count) {
  return scaled(static_cast<double>(count), 1000, {"", " K", " M", " B", " T"});
}

}  // namespace moracle
