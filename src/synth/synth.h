// Writes a random-weight checkpoint of an architecture's real shapes, as its publisher's tools would.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <string>
#include <vector>

#include "base/result.h"

namespace moracle {

struct SynthOptions {
  std::string architecture;  // as synth_architectures names them
  std::string scheme;        // as `bench layer` names them; not each goes with each architecture
  std::int64_t layers = 0;   // 0: as many as the real model has
  std::filesystem::path out;
  std::uint64_t seed = 0;
  std::uint64_t shard_bytes = 4'000'000'000;
  std::function<void(std::uint64_t done, std::uint64_t total)> on_progress;  // bytes; may be empty
  std::function<bool()> interrupted;                                         // may be empty
};

struct SynthResult {
  std::uint64_t bytes = 0;  // of all tensors
  std::int64_t files = 0;   // shards
  double seconds = 0;
};

[[nodiscard]] std::vector<std::string> synth_architectures();
[[nodiscard]] std::vector<std::string> synth_schemes();

// The folder appears whole or not at all: everything is written beside it and renamed at the end. Errors:
// "synth.unsupported" (listing what is), "synth.exists" (a target that is not an empty folder), "synth.layers",
// "disk.space", "file.write", "interrupted".
Result<SynthResult> synthesize(const SynthOptions& options);

}  // namespace moracle
