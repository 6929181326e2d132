// A regular file, mapped read-only.
#pragma once

#include <sys/stat.h>

#include <atomic>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <utility>

#include "base/files/file.h"
#include "base/result.h"
#include "checkpoint/mapping_guard.h"

namespace moracle {

// What reads beside the page cache are multiples of, in the file and in memory.
inline constexpr std::size_t kDiskBlock = 4096;

// The whole of a file in memory, under a MappingGuard.
class MappedFile {
 public:
  // `file` is not empty. Errors: "file.map".
  static Result<std::unique_ptr<MappedFile>> map(InputFile file);

  [[nodiscard]] std::span<const std::byte> bytes() const { return pages_.bytes; }
  [[nodiscard]] const std::string& path() const { return path_; }
  // Compares size, mtime and inode of what the path names now with what was opened. Errors: "file.changed",
  // "file.truncated" (also when a reader met a missing page), "file.read" when one is missing from a file that nobody
  // changed.
  [[nodiscard]] Result<> verify_unchanged() const;
  [[nodiscard]] bool holds(std::span<const std::byte> part) const;
  // `part`, which it holds, to memory: through the file where it is still open, so that no page of the mapping becomes
  // resident, which costs three times as much as to read; through the mapping, and its guard, what the file lacks.
  void copy(std::span<const std::byte> part, std::byte* to) const;
  // As of Checkpoint::read.
  [[nodiscard]] Result<std::span<const std::byte>> read(std::span<const std::byte> part,
                                                        std::span<std::byte> room) const;
  // Drops the resident pages that lie wholly within `part`, which it holds.
  void release(std::span<const std::byte> part) const;

 private:
  struct Pages {  // unmaps
    explicit Pages(std::span<const std::byte> mapped) : bytes(mapped) {}
    ~Pages();
    Pages(const Pages&) = delete;
    Pages& operator=(const Pages&) = delete;
    std::span<const std::byte> bytes;
  };
  MappedFile(std::string path, FileDescriptor fd, const struct stat& identity, std::span<const std::byte> mapped)
      : path_(std::move(path)),
        fd_(std::move(fd)),
        identity_(identity),
        pages_(mapped),
        guard_(mapped.data(), mapped.size()) {}
  // Opens the file anew for read().
  Result<> open_direct() const;

  std::string path_;
  FileDescriptor fd_;
  struct stat identity_;
  Pages pages_;
  MappingGuard guard_;  // after the pages: it ends before they do
  mutable std::mutex direct_mutex_;
  mutable FileDescriptor direct_;            // of read(), once it was called; written under the mutex
  mutable std::atomic<bool> cached_{false};  // whether what it reads goes through the page cache
};

}  // namespace moracle
