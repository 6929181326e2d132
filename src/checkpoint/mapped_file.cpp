#include "checkpoint/mapped_file.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "base/files/file_error.h"

namespace moracle {

namespace {

// Nobody wrote to the file, and still a page of it did not come.
Error unreadable(const std::string& path) {
  Error error = file_error("file.read", path, EIO);
  error.wanted = "every page of the file";
  return error;
}

}  // namespace

Result<std::unique_ptr<MappedFile>> MappedFile::map(InputFile file) {
  const auto size = static_cast<std::size_t>(file.size());
  const auto failed = [&](std::string found) {
    return Error{.code = "file.map",
                 .file = file.path(),
                 .wanted = "a mapping of " + std::to_string(size) + " bytes",
                 .found = std::move(found)};
  };
  void* address = mmap(nullptr, size, PROT_READ, MAP_PRIVATE, file.fd(), 0);
  if (address == MAP_FAILED) return failed(std::strerror(errno));
  // Loading reads each tensor once, mostly front to back: read ahead further, and give up old pages first.
  madvise(address, size, MADV_SEQUENTIAL);
  // Most processes may have 1024 files open; a model of more shards is copied from its mappings.
  constexpr int kMaxOpen = 512;
  FileDescriptor kept = file.fd() < kMaxOpen ? file.release() : FileDescriptor();
  std::unique_ptr<MappedFile> mapped(
      new MappedFile(file.path(), std::move(kept), file.status(), {static_cast<const std::byte*>(address), size}));
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
    if (guard_.torn()) return truncated_error(path_, opened_size, 0);
    return changed("the file that was opened", std::strerror(errno));
  }
  const auto size = static_cast<std::uint64_t>(now.st_size);
  const bool same_time =
      now.st_mtim.tv_sec == identity_.st_mtim.tv_sec && now.st_mtim.tv_nsec == identity_.st_mtim.tv_nsec;
  if (guard_.torn() && size == opened_size && same_time) return unreadable(path_);
  if (guard_.torn()) return truncated_error(path_, opened_size, size);
  if (now.st_ino != identity_.st_ino || now.st_dev != identity_.st_dev) {
    return changed("inode " + std::to_string(identity_.st_ino), "another file, inode " + std::to_string(now.st_ino));
  }
  if (size < opened_size) return truncated_error(path_, opened_size, size);
  if (size > opened_size) return changed(std::to_string(opened_size) + " bytes", std::to_string(size) + " bytes");
  if (!same_time) return changed("the time of change it had when opened", "a later write to it");
  return Ok{};
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

Result<> MappedFile::open_direct() const {
  const std::scoped_lock lock(direct_mutex_);
  if (direct_.get() >= 0) return Ok{};
  constexpr int kFlags = O_RDONLY | O_CLOEXEC | O_NONBLOCK;
  FileDescriptor opened(open(path_.c_str(), kFlags | O_DIRECT));
  if (opened.get() < 0 && errno == EINVAL) {
    opened = FileDescriptor(open(path_.c_str(), kFlags));
    cached_ = true;
  }
  if (opened.get() < 0) return file_error("file.open", path_, errno);
  struct stat now{};
  if (fstat(opened.get(), &now) != 0) return file_error("file.open", path_, errno);
  if (now.st_ino != identity_.st_ino || now.st_dev != identity_.st_dev) return verify_unchanged();
  direct_ = std::move(opened);
  return Ok{};
}

Result<std::span<const std::byte>> MappedFile::read(std::span<const std::byte> part, std::span<std::byte> room) const {
  MORACLE_TRY(open_direct());
  const auto offset = static_cast<std::uint64_t>(part.data() - pages_.bytes.data());
  const std::uint64_t first = offset / kDiskBlock * kDiskBlock;
  const auto before = static_cast<std::size_t>(offset - first);
  const std::size_t blocks = (before + part.size() + kDiskBlock - 1) / kDiskBlock * kDiskBlock;
  const std::size_t got = direct_.read_at(first, room.first(blocks));
  const int reason = errno;
  if (cached_) posix_fadvise(direct_.get(), static_cast<off_t>(first), static_cast<off_t>(blocks), POSIX_FADV_DONTNEED);
  // Behind the read: what was written before or under it is found.
  MORACLE_TRY(verify_unchanged());
  if (got >= before + part.size()) return std::span<const std::byte>(room.subspan(before, part.size()));
  Error error = file_error("file.read", path_, reason == 0 ? EIO : reason);
  error.where = "byte " + std::to_string(first + got);
  error.wanted = std::to_string(part.size()) + " bytes from byte " + std::to_string(offset) + " on";
  return error;
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
