// Models by their name on the hub: those that its local cache holds.
#pragma once

#include <filesystem>
#include <string>

#include "base/result.h"

namespace moracle::cli {

// Where the hub's tools keep what they downloaded: $HF_HUB_CACHE, else hub/ below $HF_HOME, else
// ~/.cache/huggingface/hub.
[[nodiscard]] std::filesystem::path hub_cache_root();

// The folder that MODEL names: a path that exists, else the folder in the hub's cache that "org/name", its address on
// the hub, or "models--org--name" stands for. Nothing is downloaded. Error: "hub.missing", with the command that
// downloads it.
[[nodiscard]] Result<std::filesystem::path> locate_model(const std::string& model);

}  // namespace moracle::cli
