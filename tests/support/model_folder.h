// A small model folder described in JSON, so that a mutation of its description is a mutation of the folder:
//
//   {"experts": 4, "files": {"config.json": {...}, ...}, "tensors": {NAME: [DTYPE, SHAPE, VALUES?], ...}}
//
// A NAME with "experts.#." stands for one tensor of each expert. Weights are made up; VALUES are integers that repeat,
// or {"every": N}: element i is i / N.
#pragma once

#include <cstddef>
#include <filesystem>
#include <map>
#include <optional>
#include <string>

#include "base/json.h"

namespace moracle::test {

struct ModelFolder {
  std::map<std::string, std::string> files;  // by name: the JSON texts and model.safetensors
};

// Nothing where the description is none, or more than `most_bytes` of tensors. What it says need not be right.
[[nodiscard]] std::optional<ModelFolder> make_folder(const Json& description, std::size_t most_bytes);

// Replaces what the folder held.
void write_folder(const ModelFolder& folder, const std::filesystem::path& path);

}  // namespace moracle::test
