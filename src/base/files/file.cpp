#include "base/files/file.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>

#include "base/files/file_error.h"

namespace moracle {

FileDescriptor::~FileDescriptor() {
  if (fd_ >= 0) close(fd_);
}

std::size_t FileDescriptor::read_at(std::uint64_t offset, std::span<std::byte> out) const {
  std::size_t done = 0;
  while (done < out.size()) {
    const ssize_t got = pread(fd_, out.data() + done, out.size() - done, static_cast<off_t>(offset + done));
    if (got < 0 && errno == EINTR) continue;
    if (got == 0) errno = 0;
    if (got <= 0) break;
    done += static_cast<std::size_t>(got);
  }
  return done;
}

Result<InputFile> InputFile::open(const std::filesystem::path& path) {
  const auto failed = [&](int reason) {
    Error error = file_error("file.open", path, reason);
    error.wanted = "a readable, regular file";
    return error;
  };
  InputFile file;
  file.path_ = path.string();
  int fd = -1;
  do {
    // Not to hang on a pipe that nobody writes.
    fd = ::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);
  } while (fd < 0 && errno == EINTR);
  if (fd < 0) return failed(errno);
  file.fd_ = FileDescriptor(fd);
  if (fstat(fd, &file.status_) != 0) return failed(errno);
  if (S_ISREG(file.status_.st_mode)) return file;
  Error error = failed(S_ISDIR(file.status_.st_mode) ? EISDIR : 0);
  error.found = S_ISDIR(file.status_.st_mode) ? "a folder" : "a device, pipe or socket";
  return error;
}

Result<std::string> InputFile::read_start(std::size_t count) const {
  std::string text(count, '\0');
  const std::size_t done = fd_.read_at(0, std::as_writable_bytes(std::span(text)));
  const int reason = errno;
  if (done == count) return text;
  if (reason == 0) return truncated_error(path_, count, done);
  Error error = file_error("file.read", path_, reason);
  error.where = "byte " + std::to_string(done);
  error.wanted = std::to_string(count) + " bytes";
  return error;
}

Error truncated_error(const std::string& path, std::uint64_t wanted, std::uint64_t found) {
  return Error{.code = "file.truncated",
               .file = path,
               .wanted = std::to_string(wanted) + " bytes",
               .found = std::to_string(found) + " bytes: the file was cut while it was read",
               .advice = "let the download finish, then load again"};
}

Result<std::string> read_text(const std::filesystem::path& path, std::size_t limit) {
  MORACLE_ASSIGN(const InputFile file, InputFile::open(path));
  if (file.size() > limit) {
    return Error{.code = "file.size",
                 .file = path.string(),
                 .wanted = "at most " + std::to_string(limit) + " bytes",
                 .found = std::to_string(file.size()) + " bytes"};
  }
  return file.read_start(file.size());
}

}  // namespace moracle
