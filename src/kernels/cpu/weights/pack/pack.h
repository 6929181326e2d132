// Canonical matrices to panels.
#pragma once

#include <span>
#include <vector>

#include "kernels/cpu/weights/format.h"
#include "scheme/raw_reader.h"

namespace moracle::cpu {

// One thread's memory for packing: what it has decoded, or fetched from the file.
struct PackScratch {
  MatrixPanel panel;
  RawReader words;
  RawReader scales;
  std::vector<std::byte> scale_lines;  // a panel's scales, turned
};

// Panels that are packed from one fetch. Matrices that lie among each other's rows are packed in turns of so many.
[[nodiscard]] std::int64_t panels_per_fetch(const MatrixSource& source, const PanelFormat& format,
                                            std::span<const std::int32_t> order);

// Packs panels [begin, end) of `source`; panel p goes to out + (p - begin) * stride.
Result<> pack_panels(const MatrixSource& source, const PanelFormat& format, std::span<const std::int32_t> order,
                     std::int64_t begin, std::int64_t end, std::byte* out, std::size_t stride, PackScratch& scratch);

}  // namespace moracle::cpu
