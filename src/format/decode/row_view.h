// Part of the rows of a matrix as a matrix of its own: gate or up where one module holds both.
#pragma once

#include <cstdint>

#include "format/decode/stored_linear.h"

namespace moracle {

// Rows `begin`, `begin + stride`, ... of `whole`, `rows` of them, with their biases; all lie inside it.
[[nodiscard]] StoredLinear select_rows(const StoredLinear& whole, std::int64_t begin, std::int64_t stride,
                                       std::int64_t rows);

}  // namespace moracle
