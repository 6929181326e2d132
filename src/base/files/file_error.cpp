#include "base/files/file_error.h"

#include <fmt/format.h>
#include <sys/stat.h>

#include <cerrno>
#include <cstring>

namespace moracle {

namespace {

struct Reason {
  int number;
  const char* advice;
};

constexpr const char* kDevice =
    "the disk or network share failed: see the system's log (dmesg), or copy the file elsewhere";

constexpr Reason kReasons[]{
    {ENOENT, "check the path"},
    {ENOTDIR, "check the path: a part of it is a file"},
    {EACCES, "let this user read it, and search the folders above (chmod, chown)"},
    {EPERM, "let this user read it, and search the folders above (chmod, chown)"},
    {EISDIR, "name the file, not the folder"},
    {ELOOP, "its symbolic links lead in a circle: put the file itself there"},
    {ENAMETOOLONG, "shorten the path"},
    {EMFILE, "raise the limit of open files (ulimit -n)"},
    {ENFILE, "raise the system's limit of open files (fs.file-max)"},
    {ENOMEM, "free memory"},
    {ESTALE, "the network share was mounted anew: open the folder again"},
    {EIO, kDevice},
    {ENXIO, kDevice},
    {ENODEV, kDevice},
    {ETIMEDOUT, kDevice},
    {EREMOTEIO, kDevice},
    {ENOSPC, "free space there, or write somewhere else"},
    {EDQUOT, "free space there, or write somewhere else"},
    {EFBIG, "free space there, or write somewhere else"},
    {EROFS, "write somewhere else: this file system is read-only"},
};

// A name that is there although what it names is not.
bool is_link(const std::filesystem::path& path) {
  struct stat status{};
  return lstat(path.c_str(), &status) == 0 && S_ISLNK(status.st_mode);
}

}  // namespace

Error file_error(std::string code, const std::filesystem::path& path, int reason) {
  Error error{.code = std::move(code), .file = path.string(), .found = std::strerror(reason)};
  if (reason == ENOENT && is_link(path)) {
    std::error_code ignored;
    const std::string target = std::filesystem::read_symlink(path, ignored).string();
    error.found = "a symbolic link to '" + target + "', which is not there";
    error.advice = "download the file again: a cache was cleared or a download was cut";
    return error;
  }
  for (const Reason& known : kReasons) {
    if (known.number == reason) error.advice = known.advice;
  }
  return error;
}

Result<bool> file_exists(const std::filesystem::path& path) {
  struct stat status{};
  if (stat(path.c_str(), &status) == 0) return true;
  const int reason = errno;
  if ((reason == ENOENT && !is_link(path)) || reason == ENOTDIR) return false;
  Error error = file_error("file.open", path, reason);
  error.wanted = "to look it up";
  return error;
}

}  // namespace moracle
