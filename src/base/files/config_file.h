// The small JSON files of a model folder: config.json and what lies beside it.
#pragma once

#include <filesystem>

#include "base/json.h"

namespace moracle {

// Lists of all modules of the largest models have some 500,000 values.
inline constexpr JsonLimits kConfigFile{.values = std::size_t{2} << 20U};

// read_json() within kConfigFile.
inline Result<Json> read_config_file(const std::filesystem::path& path) {
  return read_json(path, kConfigFile);
}

}  // namespace moracle
