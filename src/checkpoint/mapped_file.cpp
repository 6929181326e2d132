#include "checkpoint/mapped_file.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

namespace moracle {

namespace {

Error open_error(const std::string& path, std::string found) {
  return Error{.code = "file.open", .file = path, .wanted = "a readable, regular file", .found = std::move(found)};
}

Error truncated(const std::string& path, std::uint64_t wanted, std::uint64_t found) {
  return Error{.code = "file.truncated",
               .file = path,
               .wanted = std::to_string(wanted) + " bytes",
               .found = std::to_string(found) + " bytes: the file was cut while it was read",
               .advice = "let the download finish, then load again"};
}

}  // namespace

std::string file_identity(const std::filesystem::path& path, const struct stat& status) {
  std::error_code code;
  const auto canonical = std::filesystem::canonical(path, code);
  const auto time = [](const struct timespec& t) { return std::to_string(t.tv_sec) + "." + std::to_string(t.tv_nsec); };
  return (code ? path : canonical).string() + " " + std::to_string(status.st_size) + " " + time(status.st_mtim) + " " +
         time(status.st_ctim) + " " + std::to_string(status.st_ino);
}

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
  InputFile file;
  file.path_ = path.string();
  int fd = -1;
  do {
    // Not to hang on a pipe that nobody writes.
    fd = ::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);
  } while (fd < 0 && errno == EINTR);
  if (fd < 0) return open_error(file.path_, std::strerror(errno));
  file.fd_ = FileDescriptor(fd);
  if (fstat(fd, &file.identity_) != 0) return open_error(file.path_, std::strerror(errno));
  if (!S_ISREG(file.identity_.st_mode)) {
    return open_error(file.path_, S_ISDIR(file.identity_.st_mode) ? "a folder" : "a device, pipe or socket");
  }
  return file;
}

Result<std::string> InputFile::read_start(std::size_t count) const {
  std::string text(count, '\0');
  const std::size_t done = fd_.read_at(0, std::as_writable_bytes(std::span(text)));
  const int failure = errno;
  if (done == count) return text;
  if (failure == 0) return truncated(path_, count, done);
  return Error{.code = "file.read",
               .file = path_,
               .where = "byte " + std::to_string(done),
               .wanted = std::to_string(count) + " bytes",
               .found = std::strerror(failure)};
}

Result<std::unique_ptr<MappedFile>> MappedFile::map(InputFile file) {
  const auto size = static_cast<std::size_t>(file.size());
  const auto failed = [&](std::string found) {
    return Error{.code = "file.map",
                 .file = file.path(),
                 .wanted = "a mapping of " + std::to_string(size) + " bytes",
                 .found = std::move(found)};
  };
  void* address = mmap(nullptr, size, PROT_READ, MAP_PRIVATE, file.fd_.get(), 0);
  if (address == MAP_FAILED) return failed(std::strerror(errno));
  // Loading reads each tensor once, mostly front to back: read ahead further, and give up old pages first.
  madvise(address, size, MADV_SEQUENTIAL);
  // Most processes may have 1024 files open; a model of more shards is copied from its mappings.
  constexpr int kMostOpen = 512;
  FileDescriptor kept = file.fd_.get() < kMostOpen ? std::move(file.fd_) : FileDescriptor();
  std::unique_ptr<MappedFile> mapped(
      new MappedFile(file.path_, std::move(kept), file.identity_, {static_cast<const std::byte*>(address), size}));
  if (!mapped->guard_.active()) return failed("too many files mapped at once");
  return mapped;
}

MappedFile::Pages::~Pages() {
  munmap(const_cast<std::byte*>(bytes.data()), bytes.size());
}

Result<> MappedFile::verify_unchanged() const {
  struct stat now{};
  const auto changed = [&](std::string wanted, std::string found) {
    return Error{.code = "file.changed",
                 .file = path_,
                 .wanted = std::move(wanted),
                 .found = std::move(found),
                 .advice = "load again when nothing writes to the folder"};
  };
  const auto opened_size = static_cast<std::uint64_t>(identity_.st_size);
  if (stat(path_.c_str(), &now) != 0) {
    if (guard_.torn()) return truncated(path_, opened_size, 0);
    return changed("the file that was opened", std::strerror(errno));
  }
  const auto size = static_cast<std::uint64_t>(now.st_size);
  if (guard_.torn()) return truncated(path_, opened_size, size);
  if (now.st_ino != identity_.st_ino || now.st_dev != identity_.st_dev) {
    return changed("inode " + std::to_string(identity_.st_ino), "another file, inode " + std::to_string(now.st_ino));
  }
  if (size < opened_size) return truncated(path_, opened_size, size);
  if (size > opened_size) return changed(std::to_string(opened_size) + " bytes", std::to_string(size) + " bytes");
  if (now.st_mtim.tv_sec != identity_.st_mtim.tv_sec || now.st_mtim.tv_nsec != identity_.st_mtim.tv_nsec) {
    return changed("the time of change it had when opened", "a later write to it");
  }
  return Ok{};
}

std::string MappedFile::identity() const {
  return file_identity(path_, identity_);
}

bool MappedFile::holds(std::span<const std::byte> part) const {
  const auto base = reinterpret_cast<std::uintptr_t>(pages_.bytes.data());
  const auto begin = reinterpret_cast<std::uintptr_t>(part.data());
  return begin >= base && begin - base <= pages_.bytes.size() && part.size() <= pages_.bytes.size() - (begin - base);
}

void MappedFile::copy(std::span<const std::byte> part, std::byte* to) const {
  const auto offset = static_cast<std::uint64_t>(part.data() - pages_.bytes.data());
  const std::size_t got = fd_.get() < 0 ? 0 : fd_.read_at(offset, {to, part.size()});
  std::memcpy(to + got, part.data() + got, part.size() - got);
}

void MappedFile::release(std::span<const std::byte> part) const {
  const auto page = static_cast<std::uintptr_t>(sysconf(_SC_PAGESIZE));
  const auto begin = reinterpret_cast<std::uintptr_t>(part.data());
  const std::uintptr_t first = (begin + page - 1) / page * page;
  const std::uintptr_t last = (begin + part.size()) / page * page;
  // NOLINTNEXTLINE(performance-no-int-to-ptr): the address was rounded as a number
  if (first < last) madvise(reinterpret_cast<void*>(first), last - first, MADV_DONTNEED);
}

}  // namespace moracle
