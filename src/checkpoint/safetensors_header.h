// The header of a safetensors file: parsed and checked as a whole, from bytes alone.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "base/result.h"
#include "checkpoint/dtype.h"

namespace moracle {

inline constexpr std::uint64_t kSafetensorsPrefix = 8;  // the header's length, u64 little endian
inline constexpr std::uint64_t kMaxHeaderBytes = 100'000'000;
// Tensors, or keys of metadata. Published models have up to some 280,000 tensors in all their files.
inline constexpr std::size_t kMaxHeaderEntries = std::size_t{384} << 10U;

struct TensorEntry {
  std::string name;
  Dtype dtype = Dtype::u8;
  std::vector<std::int64_t> shape;
  std::uint64_t begin = 0;  // from the start of the data
  std::uint64_t end = 0;
};

struct SafetensorsHeader {
  std::vector<TensorEntry> tensors;  // by `begin`; they cover the data without hole or overlap
  std::uint64_t data_start = 0;      // from the start of the file
};

// Length of the JSON text after the prefix. `start` is the first min(1024, file_size) bytes or more: enough to tell a
// git-LFS pointer. Errors: "header.too_small", "lfs.pointer", "header.length" (above kMaxHeaderBytes or the file).
Result<std::uint64_t> header_length(std::span<const std::byte> start, std::uint64_t file_size, const std::string& path);

// `start` is prefix and header (more is ignored), `path` labels the errors. Pure: reads nothing else. The rules are
// those of the format's description and its reference implementation, by text where the two differ: starts with '{', no
// duplicate key, string-to-string metadata, offsets that cover the data exactly; and stricter: no unknown member of a
// tensor, no dimension of 0, at most 8 dimensions.
// Errors: those of header_length, "header.syntax" (with byte), "header.entries", "number.range", "tensor.duplicate",
// "dtype.unknown", "dtype.misaligned", "shape.overflow", "tensor.size", "offset.begin_end", "offset.hole",
// "offset.overlap", "offset.trailing", "file.truncated".
Result<SafetensorsHeader> parse_header(std::span<const std::byte> start, std::uint64_t file_size,
                                       const std::string& path);

}  // namespace moracle
