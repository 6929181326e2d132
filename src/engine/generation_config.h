// What the publisher says about generating: generation_config.json, else config.json.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <vector>

#include "base/json.h"
#include "base/result.h"
#include "engine/sampler.h"

namespace moracle {

struct GenerationConfig {
  std::vector<std::int32_t> eos_ids;  // generation stops at any of them; sorted
  std::optional<std::int32_t> bos_id;
  // The published sampling settings. Greedy unless the publisher asks for sampling and gives a temperature.
  SamplingOptions sampling;

  [[nodiscard]] bool stops(std::int32_t id) const;
};

// `config` is config.json; generation_config.json in `folder` may be absent. Ids outside [0, vocabulary) are errors
// ("config.range"), as are members of a wrong type ("config.type").
Result<GenerationConfig> load_generation_config(const std::filesystem::path& folder, const Json& config,
                                                std::int64_t vocabulary);

}  // namespace moracle
