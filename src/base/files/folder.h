// Folders that are read.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "base/result.h"

namespace moracle {

// The names of what lies in a folder, sorted. An iterator of the standard library ends the process where memory runs
// out (libstdc++ 12: _Dir::advance is noexcept). Errors: "file.open", "file.read".
[[nodiscard]] Result<std::vector<std::string>> names_in(const std::filesystem::path& folder);

}  // namespace moracle
