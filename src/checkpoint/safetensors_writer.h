// Writes safetensors files and the index of a sharded checkpoint.
#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "checkpoint/atomic_file.h"
#include "checkpoint/dtype.h"

namespace moracle {

struct TensorSpec {
  std::string name;
  Dtype dtype = Dtype::u8;
  std::vector<std::int64_t> shape;
};

// Streams one file: the header is written at once, then the bytes of each tensor in the order of the specs, in as many
// chunks as the caller likes; nothing is buffered. The file appears under its name only with finish(). The header is
// padded so that the data starts at a multiple of 8; specs with wide elements first keep every tensor aligned.
//
//   MORACLE_ASSIGN(auto writer, SafetensorsWriter::create(path, specs));
//   for (...) MORACLE_TRY(writer.write(name, bytes));
//   MORACLE_TRY(writer.finish());
class SafetensorsWriter {
 public:
  // Errors: "file.write"; the rules of parse_header where the specs break them: "tensor.duplicate", "shape.overflow",
  // "dtype.misaligned", "header.length", "header.syntax" (a name that is not UTF-8, or "__metadata__").
  static Result<SafetensorsWriter> create(const std::filesystem::path& path, std::vector<TensorSpec> tensors);

  // The next bytes of tensor `name`. Errors: "file.write", "writer.order" (another tensor comes next), "writer.size"
  // (more bytes than the tensor has).
  Result<> write(std::string_view name, std::span<const std::byte> bytes);

  // Errors: "writer.size" when bytes are missing, "file.write".
  Result<> finish();

 private:
  explicit SafetensorsWriter(AtomicFile file) : file_(std::move(file)) {}

  AtomicFile file_;
  std::vector<TensorSpec> tensors_;
  std::vector<std::uint64_t> missing_;  // bytes still to come, per tensor
  std::size_t current_ = 0;             // first tensor with missing bytes
};

// Writes model.safetensors.index.json into `folder`: `weight_map` is tensor name -> file name, `total_size` the bytes
// of all tensors. Errors: "file.write", "header.syntax" (a name that is not UTF-8).
Result<> write_shard_index(const std::filesystem::path& folder, const std::map<std::string, std::string>& weight_map,
                           std::uint64_t total_size);

}  // namespace moracle
