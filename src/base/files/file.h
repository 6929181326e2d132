// Files that are read.
#pragma once

#include <sys/stat.h>

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <span>
#include <string>
#include <utility>

#include "base/result.h"

namespace moracle {

// An open descriptor; closes it.
class FileDescriptor {
 public:
  explicit FileDescriptor(int fd = -1) : fd_(fd) {}
  FileDescriptor(FileDescriptor&& other) noexcept : fd_(std::exchange(other.fd_, -1)) {}
  FileDescriptor& operator=(FileDescriptor&& other) noexcept {
    std::swap(fd_, other.fd_);
    return *this;
  }
  FileDescriptor(const FileDescriptor&) = delete;
  FileDescriptor& operator=(const FileDescriptor&) = delete;
  ~FileDescriptor();
  [[nodiscard]] int get() const { return fd_; }
  // Bytes of the file from `offset` on, as many as `out` takes. Returns fewer where the file ends, with an errno of 0,
  // or cannot be read.
  std::size_t read_at(std::uint64_t offset, std::span<std::byte> out) const;
  int release() { return std::exchange(fd_, -1); }

 private:
  int fd_;
};

// A regular file, opened for reading, as it was then.
class InputFile {
 public:
  // Errors: "file.open" when it is absent, unreadable or not a regular file.
  static Result<InputFile> open(const std::filesystem::path& path);
  [[nodiscard]] const std::string& path() const { return path_; }
  [[nodiscard]] std::uint64_t size() const { return static_cast<std::uint64_t>(status_.st_size); }
  [[nodiscard]] const struct stat& status() const { return status_; }
  [[nodiscard]] int fd() const { return fd_.get(); }
  // The first `count` bytes. Errors: "file.read", "file.truncated" when there are fewer.
  [[nodiscard]] Result<std::string> read_start(std::size_t count) const;
  FileDescriptor release() { return std::move(fd_); }

 private:
  std::string path_;
  FileDescriptor fd_;
  struct stat status_{};
};

// "file.truncated": a file that has become shorter than it was when it was opened.
[[nodiscard]] Error truncated_error(const std::string& path, std::uint64_t wanted, std::uint64_t found);

// Reads a whole regular file of at most `limit` bytes. Errors: those of InputFile, "file.size".
Result<std::string> read_text(const std::filesystem::path& path, std::size_t limit = std::size_t{1} << 30);

}  // namespace moracle
