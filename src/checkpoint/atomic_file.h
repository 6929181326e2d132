// A file that appears under its name whole or not at all.
#pragma once

#include <cstdint>
#include <filesystem>
#include <span>
#include <string>
#include <string_view>
#include <utility>

#include "base/result.h"
#include "checkpoint/mapped_file.h"

namespace moracle {

// Writes to a temporary file in the same folder; commit() makes it durable and renames it over `path`. Destroyed
// without a commit it removes the temporary file. Every error is "file.write" with path and the system's reason.
class AtomicFile {
 public:
  // `expected` bytes are reserved on the disk at once where the file system can, so that a full disk is told before
  // hours of work; 0 reserves nothing.
  static Result<AtomicFile> create(const std::filesystem::path& path, std::uint64_t expected);
  AtomicFile(AtomicFile&&) = default;
  AtomicFile& operator=(AtomicFile&& other) noexcept;
  AtomicFile(const AtomicFile&) = delete;
  AtomicFile& operator=(const AtomicFile&) = delete;
  ~AtomicFile();

  Result<> write(std::span<const std::byte> bytes);
  Result<> write(std::string_view text) { return write(std::as_bytes(std::span(text))); }
  // The same at a place of its own; does not move where write() goes on.
  Result<> write_at(std::uint64_t offset, std::span<const std::byte> bytes);
  Result<> commit();
  [[nodiscard]] const std::string& path() const { return path_; }

 private:
  AtomicFile(std::string path, std::string temporary, FileDescriptor fd)
      : path_(std::move(path)), temporary_(std::move(temporary)), fd_(std::move(fd)) {}

  std::string path_;
  std::string temporary_;
  FileDescriptor fd_;  // closed: nothing to remove
};

}  // namespace moracle
