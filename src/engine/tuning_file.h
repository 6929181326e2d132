// A small JSON file of measured settings: {"moracle": "tuning 1", "machine", "program", "layers": [{"kind", "threads",
// "measured", "trials": [{"setting", "value", "against", "tokens", "gain", "noise", "taken"}]}]}. What is read is
// treated as hostile, and used only where it is well-formed throughout.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include "base/json.h"
#include "base/result.h"
#include "kernels/tuning.h"

namespace moracle {

// Of one kind of layer.
struct RememberedTuning {
  std::string kind;
  int threads = 0;
  std::string measured;  // the day in UTC, "2026-11-22"; empty: the user has decided it
  TuningTrials trials;

  bool operator==(const RememberedTuning&) const = default;
};

// Settings that were measured on another machine or by another program are not read.
struct TuningKey {
  std::string machine;
  std::string program;
};

inline constexpr std::size_t kMostTunings = 128;

[[nodiscard]] Json to_json(const TuningTrial& trial);

// Oldest first. Errors: "cache.absent", "cache.other" when it was written under another key, "cache.broken".
Result<std::vector<RememberedTuning>> read_tunings(const std::filesystem::path& path, const TuningKey& key);

// Writes a file that appears whole or not at all, with the last kMostTunings. Errors: "file.write".
Result<> write_tunings(const std::filesystem::path& path, const TuningKey& key,
                       const std::vector<RememberedTuning>& tunings);

}  // namespace moracle
