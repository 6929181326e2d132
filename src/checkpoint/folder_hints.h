// What people name, or have, in place of a whole model folder: the likely cause, for the errors about it.
#pragma once

#include <filesystem>
#include <string>

namespace moracle {

// Both empty where nothing tells.
struct FolderHint {
  std::string found;   // goes on behind what the error found
  std::string advice;  // takes the place of the error's own
};

// A file in place of a folder: the model folder that it lies in.
[[nodiscard]] FolderHint hint_of_file(const std::filesystem::path& file);

// A folder without config.json: the folders below that have one, the models of a hub cache, a cached repository that
// was never downloaded.
[[nodiscard]] FolderHint hint_without_config(const std::filesystem::path& folder);

// A folder without weights: those in a folder below, a GGUF file, a download that is not finished.
[[nodiscard]] FolderHint hint_without_weights(const std::filesystem::path& folder);

// What a download that is not finished leaves behind, empty where there is none.
[[nodiscard]] std::string unfinished_download(const std::filesystem::path& folder);

}  // namespace moracle
