// A file of packed layers: a table, then the packs, cut into blocks that have a checksum each.
//
//   "moracle\n" | u64 bytes of the table | u64 checksum of the table | table | padding | packs, each from a whole page
//   on table: text key | u32 packs | packs x { text name | u64 offset | u64 bytes | a u64 checksum a block }
//
// Numbers are little endian, a text is a u32 length and its bytes, checksums are XXH3 of 64 bits. What is read is
// treated as hostile: what does not fit to the last byte of the table and of every block is not used.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "base/thread_pool.h"
#include "checkpoint/mapped_file.h"

namespace moracle {

// What goes into a file. The memory is not owned.
struct KeptPack {
  std::string name;
  std::span<const std::byte> memory;
};

class PackFile {
 public:
  // Opens a file of this user, which not everybody may write, and reads its table. Errors: "cache.absent",
  // "cache.other" when it was written under another key, "cache.broken".
  static Result<PackFile> open(const std::filesystem::path& path, std::string_view key);

  [[nodiscard]] bool has(std::string_view pack, std::size_t bytes) const;
  // Fills `memory` with a pack that it has, on all cores. Errors: "cache.broken", also where a checksum differs.
  Result<> read(std::string_view pack, std::span<std::byte> memory, ThreadPool& pool) const;
  // Marks the file as used now.
  void touch() const;
  [[nodiscard]] std::uint64_t bytes() const { return size_; }

 private:
  struct Entry {
    std::string name;
    std::uint64_t offset = 0;
    std::uint64_t bytes = 0;
    std::vector<std::uint64_t> sums;
  };
  friend class TableReader;

  [[nodiscard]] const Entry* find(std::string_view pack) const;
  [[nodiscard]] Error broken(std::string found) const;
  [[nodiscard]] std::size_t read_cached(std::uint64_t offset, std::span<std::byte> bytes) const;
  [[nodiscard]] bool read_block(const Entry& entry, std::size_t block, std::span<std::byte> memory) const;

  std::string path_;
  FileDescriptor fd_;
  std::uint64_t size_ = 0;
  std::vector<Entry> entries_;
};

// Writes a file that appears whole or not at all. `stop` is asked between blocks. Errors: "file.write",
// "cache.stopped".
Result<> write_pack_file(const std::filesystem::path& path, std::string_view key, std::span<const KeptPack> packs,
                         const std::function<bool()>& stop);
// The size it will have.
[[nodiscard]] std::uint64_t pack_file_bytes(std::string_view key, std::span<const KeptPack> packs);

}  // namespace moracle
