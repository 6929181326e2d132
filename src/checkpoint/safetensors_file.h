// One safetensors file, opened, validated and mapped.
#pragma once

#include <filesystem>
#include <map>
#include <memory>
#include <string>
#include <string_view>

#include "base/result.h"
#include "checkpoint/checkpoint.h"
#include "checkpoint/mapped_file.h"

namespace moracle {

// For single files that are not a model folder; a Checkpoint is made of these.
class SafetensorsFile {
 public:
  using Tensors = std::map<std::string, TensorView, std::less<>>;

  // Reads and checks the header, then maps the file; touches no tensor byte. Errors: "file.open", "file.read",
  // "file.map" and those of parse_header.
  static Result<SafetensorsFile> open(const std::filesystem::path& path);

  [[nodiscard]] const Tensors& tensors() const { return tensors_; }  // valid as long as this object or its mapping
  [[nodiscard]] const TensorView* find(std::string_view name) const;
  [[nodiscard]] const MappedFile& mapping() const { return *mapping_; }

  // Gives both parts away, for an owner of several files.
  Tensors take_tensors() { return std::move(tensors_); }
  std::unique_ptr<MappedFile> take_mapping() { return std::move(mapping_); }

 private:
  std::unique_ptr<MappedFile> mapping_;
  Tensors tensors_;
};

}  // namespace moracle
