// A model folder, opened and validated: config.json and the tensors of its safetensors files, mapped, not copied.
#pragma once

#include <cstdint>
#include <cstring>
#include <filesystem>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/json/json_fwd.h"
#include "base/result.h"
#include "checkpoint/dtype.h"

namespace moracle {

// One tensor of a validated file. `bytes` points into the mapping and lives as long as the Checkpoint. Row-major,
// little endian, and not aligned: the format does not ask for it, so elements wider than a byte are read with memcpy.
struct TensorView {
  std::string name;
  Dtype dtype = Dtype::u8;
  std::vector<std::int64_t> shape;
  std::span<const std::byte> bytes;
  std::string file;          // path of the shard
  std::uint64_t offset = 0;  // of the first byte, from the start of the file

  [[nodiscard]] std::int64_t elements() const;
};

// Immutable after open; shared by whatever reads lazily from the mapping.
class Checkpoint {
 public:
  // Opens a folder in Hugging Face layout, or the snapshot that a folder of the hub cache stands for. Every header is
  // validated as a whole before anything is used: reliability rules "header.*", "tensor.*", "dtype.*", "number.range",
  // "shape.overflow", "offset.*", "shard.*", "lfs.pointer", "pickle.refused". Reads headers only; no tensor byte is
  // touched.
  static Result<std::shared_ptr<const Checkpoint>> open(const std::filesystem::path& path);

  // config.json of such a folder alone. Errors: "file.open" (no model folder), "config.type", those of read_json.
  static Result<Json> read_config(const std::filesystem::path& folder);

  virtual ~Checkpoint() = default;

  [[nodiscard]] virtual const std::filesystem::path& folder() const = 0;
  [[nodiscard]] virtual const Json& config() const = 0;  // config.json
  [[nodiscard]] virtual const std::map<std::string, TensorView, std::less<>>& tensors() const = 0;
  [[nodiscard]] virtual std::uint64_t total_bytes() const = 0;  // of all tensors

  [[nodiscard]] const TensorView* find(std::string_view name) const;

  // Tells whether the files are still those that were opened (size, mtime, inode) and whether a page vanished under a
  // reader. Called at the end of a load and before any error is told. Errors: "file.changed", "file.truncated",
  // "file.read".
  [[nodiscard]] virtual Result<> verify_unchanged() const = 0;

  // Files with tensors in the folder that were not read, by name, sorted.
  [[nodiscard]] virtual std::vector<std::string> unread_files() const { return {}; }

  // Copies bytes of a tensor without keeping them resident beside the copy, and faster than through `bytes`.
  virtual void copy(std::span<const std::byte> bytes, std::byte* to) const {
    std::memcpy(to, bytes.data(), bytes.size());
  }

  // Reads `bytes`, which lie in one file, anew from the disk, beside the page cache where the system can. `room` begins
  // and ends at a multiple of kDiskBlock and has two blocks more than `bytes`. Gives where they are in it: as far from
  // its begin as their address is from a multiple of kDiskBlock. Thread-safe. Errors: "file.open", "file.read" with the
  // offset, "file.truncated", "file.changed".
  [[nodiscard]] virtual Result<std::span<const std::byte>> read(std::span<const std::byte> bytes,
                                                                std::span<std::byte> room) const;
  // Whether they lie in one file: neighbours, or with what is between two tensors.
  [[nodiscard]] virtual bool in_one_file(std::span<const std::byte> /*bytes*/) const { return false; }

  // Tells the system that these bytes will not be read again soon, so that a load does not keep file and packed copy.
  // Small parts may wait for their neighbours, a few MiB in all.
  virtual void release(std::span<const std::byte> bytes) const = 0;
};

// To an error about a tensor that is not there: the file that holds it, where it is one that was not read.
void name_unread_file(const Checkpoint& checkpoint, Error& error);

// `result`, or where it is an error and the files are no longer those that were opened, that: whatever followed from a
// file that changed under its reader is not the checkpoint's fault.
template <class T>
Result<T> unless_changed(const Checkpoint& checkpoint, Result<T> result) {
  if (!result.ok()) MORACLE_TRY(checkpoint.verify_unchanged());
  return result;
}

}  // namespace moracle
