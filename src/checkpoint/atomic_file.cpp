#include "checkpoint/atomic_file.h"

#include <fcntl.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <cstring>

namespace moracle {

namespace {

// `reason` is errno, read before anything that could change it; hence the plain `doing`.
Error write_error(int reason, const std::string& path, const char* doing) {
  const bool full = reason == ENOSPC || reason == EDQUOT || reason == EFBIG;
  return Error{.code = "file.write",
               .file = path,
               .wanted = std::string("to ") + doing,
               .found = std::string(std::strerror(reason)) + " (errno " + std::to_string(reason) + ")",
               .advice = full ? "free space there, or write somewhere else" : "check that the folder can be written"};
}

// A rename is durable once the folder that holds the name is.
bool sync_folder(const std::filesystem::path& path) {
  const std::filesystem::path folder = path.has_parent_path() ? path.parent_path() : std::filesystem::path(".");
  const FileDescriptor fd(open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  // Some file systems cannot sync a folder and say EINVAL; there is no more to be done there.
  return fd.get() >= 0 && (fsync(fd.get()) == 0 || errno == EINVAL);
}

}  // namespace

Result<AtomicFile> AtomicFile::create(const std::filesystem::path& path, std::uint64_t expected) {
  static std::atomic<unsigned> counter{0};
  const std::string suffix = ".partial-" + std::to_string(getpid()) + "-" + std::to_string(counter.fetch_add(1));
  const std::string temporary = path.string() + suffix;
  constexpr mode_t kMode = 0666;  // less the umask
  FileDescriptor fd(open(temporary.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, kMode));
  if (fd.get() < 0) return write_error(errno, path.string(), "create a file beside it");
  AtomicFile file(path.string(), temporary, std::move(fd));
  if (expected > 0 && fallocate(file.fd_.get(), 0, 0, static_cast<off_t>(expected)) != 0 && errno != EOPNOTSUPP &&
      errno != EINTR && errno != ENOSYS) {
    return write_error(errno, file.path_, "reserve its space");
  }
  return file;
}

AtomicFile& AtomicFile::operator=(AtomicFile&& other) noexcept {
  std::swap(path_, other.path_);
  std::swap(temporary_, other.temporary_);
  std::swap(fd_, other.fd_);
  return *this;
}

AtomicFile::~AtomicFile() {
  if (fd_.get() >= 0) unlink(temporary_.c_str());
}

Result<> AtomicFile::write(std::span<const std::byte> bytes) {
  while (!bytes.empty()) {
    const ssize_t done = ::write(fd_.get(), bytes.data(), bytes.size());
    if (done < 0 && errno == EINTR) continue;
    if (done < 0) return write_error(errno, path_, "write to it");
    bytes = bytes.subspan(static_cast<std::size_t>(done));
  }
  return Ok{};
}

Result<> AtomicFile::write_at(std::uint64_t offset, std::span<const std::byte> bytes) {
  while (!bytes.empty()) {
    const ssize_t done = ::pwrite(fd_.get(), bytes.data(), bytes.size(), static_cast<off_t>(offset));
    if (done < 0 && errno == EINTR) continue;
    if (done < 0) return write_error(errno, path_, "write to it");
    bytes = bytes.subspan(static_cast<std::size_t>(done));
    offset += static_cast<std::uint64_t>(done);
  }
  return Ok{};
}

Result<> AtomicFile::commit() {
  if (fsync(fd_.get()) != 0) return write_error(errno, path_, "flush it");
  if (rename(temporary_.c_str(), path_.c_str()) != 0) return write_error(errno, path_, "put it in its place");
  // From here on the name is taken. A failing close has nothing left to lose: the data is on the disk.
  fd_ = FileDescriptor();
  if (!sync_folder(path_)) return write_error(errno, path_, "flush its folder");
  return Ok{};
}

}  // namespace moracle
