// Packed int4 and uint4 of AMD Quark: eight codes in 32 bits.
#pragma once

#include <memory>
#include <optional>

#include "format/decode/int_module.h"
#include "format/decode/stored_scheme.h"

namespace moracle {

struct QuarkInt4 {
  IntScheme weight{};       // a group size of -1: per channel
  bool reorder = false;     // nibble i of a word holds element {0, 2, 4, 6, 1, 3, 5, 7}[i]
  bool is_signed = false;   // codes and zero points in two's complement
  bool two_levels = false;  // the codes are those of FP8 codes, under a scale of the tensor
  std::optional<QuantKey> activation{};
};

std::shared_ptr<const StoredScheme> make_quark_int4(const QuarkInt4& scheme, std::shared_ptr<ValueNotes> notes);

}  // namespace moracle
