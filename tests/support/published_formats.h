// Small checkpoints in every published format: the experts of a random model of any family, written as a publisher's
// tool writes them, beside the same numbers unquantized.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "support/mutable_checkpoint.h"
#include "support/published_matrices.h"

namespace moracle::test {

struct PublishedFormat {
  std::string name;
  std::function<PublishedMatrix(Random& random, std::int64_t out, std::int64_t in)> write;
  // The section of config.json, null where there is none; `others` are the modules that stay unquantized.
  std::function<Json(const std::vector<std::string>& others)> section;
  bool quantizes_inputs = false;  // the numbers of the model are then near those of the unquantized one
  bool stacked = false;           // experts in stacks, gate and up as one, as the blocks of gpt-oss
};

[[nodiscard]] const std::vector<PublishedFormat>& published_formats();
[[nodiscard]] const PublishedFormat& published_format(const std::string& name);

struct PublishedPair {
  MutableCheckpoint stored, plain;
};

// `family` is an unquantized model with experts numbered, or stacked with gate rows before up rows. Its experts' own
// weights are replaced by random ones, of at least 32 columns each.
[[nodiscard]] PublishedPair publish(const MutableCheckpoint& family, const PublishedFormat& format);

}  // namespace moracle::test
