#include "base/files/folder.h"

#include <dirent.h>

#include <algorithm>
#include <cerrno>
#include <memory>
#include <string_view>
#include <utility>

#include "base/files/file_error.h"

namespace moracle {

Result<std::vector<std::string>> names_in(const std::filesystem::path& folder) {
  const auto failed = [&](std::string code) {
    Error error = file_error(std::move(code), folder, errno);
    error.wanted = "a readable folder";
    return error;
  };
  const std::unique_ptr<DIR, int (*)(DIR*)> open(opendir(folder.c_str()), closedir);
  if (open == nullptr) return failed("file.open");
  std::vector<std::string> names;
  for (;;) {
    errno = 0;
    const dirent* const entry = readdir(open.get());
    if (entry == nullptr && errno != 0) return failed("file.read");
    if (entry == nullptr) break;
    const std::string_view name(entry->d_name);
    if (name != "." && name != "..") names.emplace_back(name);
  }
  std::sort(names.begin(), names.end());
  return names;
}

}  // namespace moracle
