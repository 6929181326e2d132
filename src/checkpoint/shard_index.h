// Which files of a model folder hold its weights.
#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"

namespace moracle {

inline constexpr std::string_view kIndexName = "model.safetensors.index.json";

// The index of a sharded checkpoint: tensor name -> index into `files`.
struct ShardIndex {
  std::string path;
  std::vector<std::string> files;  // relative to the folder, each inside it
  std::map<std::string, std::uint32_t, std::less<>> tensors;
};

// `text` of an index file. Errors: "json.syntax", "json.depth", "tensor.duplicate", "shard.path" (absolute, with "..",
// or not a .safetensors file), "shard.index" (no weight_map, or an empty one).
Result<ShardIndex> parse_shard_index(std::string_view text, const std::string& path);

struct WeightFiles {
  std::vector<std::string> files;   // relative to the folder
  std::vector<std::string> more;    // read as well, unless they hold what `files` hold
  std::vector<std::string> unread;  // left alone: of another purpose, or not in the index
  std::optional<ShardIndex> index;  // when the folder has one
};

// In this order: the index; model.safetensors; every *.safetensors, model-*.safetensors before others, none that holds
// an adapter, an optimizer or the weights in another layout. Errors: those of parse_shard_index, "shard.missing" (a set
// numbered i-of-n is not complete), "shard.ambiguous" (model.safetensors beside an index that does not know it),
// "pickle.refused", "checkpoint.missing", "file.open".
Result<WeightFiles> find_weight_files(const std::filesystem::path& folder);

}  // namespace moracle
