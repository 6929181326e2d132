// What the system says of a file that cannot be used, with advice that fits the reason.
#pragma once

#include <filesystem>
#include <string>

#include "base/result.h"

namespace moracle {

// `reason` is an errno, read before anything could change it. `code`: "file.open", "file.read", "file.write", ...
[[nodiscard]] Error file_error(std::string code, const std::filesystem::path& path, int reason);

// Whether something has this name. A name that cannot be looked up is no answer: a link to nothing, a circle of links,
// a folder that may not be searched, a disk that fails. Errors: "file.open".
[[nodiscard]] Result<bool> file_exists(const std::filesystem::path& path);

}  // namespace moracle
