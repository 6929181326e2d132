// Experts under other names than the usual ones, in every spelling of the table (src/format/rules/spelling.h).
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "format/rules/spelling.h"
#include "support/mutable_checkpoint.h"

namespace moracle::test {

enum class Numbering : std::uint8_t { first, last, stacked };

struct Spelling {
  ProjectionNames names = kProjectionNames.front();
  Numbering numbering = Numbering::first;
  bool fused = false;   // gate and up are one
  bool joined = false;  // "_part"
  bool bare = false;    // without "weight_"

  [[nodiscard]] std::string text() const;
};

[[nodiscard]] std::vector<Spelling> all_spellings();

// The name of an expert's projection below `experts` ("model.layers.0.mlp.experts"); of all where they are stacked.
[[nodiscard]] std::string spelled(const std::string& experts, const Spelling& spelling, std::string_view projection,
                                  std::size_t expert);

// The experts below `experts`, which are numbered first under the usual names, under others. `words_along_out`: where
// gate and up are one, all their parts go on along the last dimension.
void respell(MutableCheckpoint& copy, const std::string& experts, const Spelling& spelling,
             bool words_along_out = false);

}  // namespace moracle::test
