// The layout of the Hugging Face hub cache: "models--org--name" holds refs/<branch>, a file with a revision, and
// snapshots/<revision>, a model folder.
#pragma once

#include <filesystem>
#include <string>
#include <string_view>

#include "base/result.h"

namespace moracle {

// "models--org--name" of "org/name".
[[nodiscard]] std::string hub_folder_name(std::string_view repository);

// "org/name" where a folder of the path is named "models--org--name", else empty.
[[nodiscard]] std::string hub_repository(const std::filesystem::path& path);

// What a model is called: "org/name" in the hub cache, else the folder's name, printable.
[[nodiscard]] std::string model_name(const std::filesystem::path& folder);

// The command that completes a folder of the hub cache; of other folders `words`, what is to be done.
[[nodiscard]] std::string download_advice(const std::filesystem::path& folder, std::string words);

// The model folder that a path stands for. Of a cached repository, or of its "snapshots", that is the snapshot of
// refs/main, else the only snapshot with a config.json; any other path stands for itself. Errors: "hub.snapshot", with
// the snapshots that are there.
Result<std::filesystem::path> resolve_model_folder(const std::filesystem::path& path);

}  // namespace moracle
