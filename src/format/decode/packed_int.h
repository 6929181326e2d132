// Matrices of packed 4-bit and 8-bit integer codes with scales and zero points: one reader for every publisher, who
// differ only in how codes, scales and zero points lie in their tensors.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "checkpoint/checkpoint.h"
#include "format/format.h"
#include "scheme/canonical.h"

namespace moracle {

// Words are 32 bits; the lowest bits hold the lowest index unless `column_of_nibble` says otherwise.
struct PackedIntLayout {
  enum class Codes : std::uint8_t {
    words_along_in_by_in,   // [in / per_word, out]: GPTQ
    words_along_out_by_in,  // [in, out / per_word]: AWQ
    words_along_in_by_out   // [out, in / per_word]: compressed-tensors
  };
  enum class Zeros : std::uint8_t {
    none,
    by_group,     // [groups, out / per_word]
    by_out,       // [out / per_word, groups]
    bytes_by_out  // I8 [out, groups], two's complement
  };
  Codes codes = Codes::words_along_in_by_in;
  Zeros zeros = Zeros::none;
  bool scales_by_out = false;    // [out, groups], else [groups, out]
  int zero_offset = 0;           // added to a stored zero point
  bool twos_complement = false;  // codes and zero points; else unsigned
  // Element of nibble i within the eight of a word of 4-bit codes: of the codes where words run along the output or by
  // row, and of packed zero points.
  std::array<std::uint8_t, 8> column_of_nibble{0, 1, 2, 3, 4, 5, 6, 7};
};

struct PackedIntTensors {
  const TensorView* codes = nullptr;
  const TensorView* scales = nullptr;
  const TensorView* zeros = nullptr;  // for a symmetric scheme: checked to be neutral, where a publisher stores them
};

// What was odd but not wrong in the values read so far; shared by all matrices of a checkpoint.
struct ValueNotes {
  std::atomic<std::uint64_t> zero_scales{0};  // scales of zero over codes that are not
  std::atomic<std::uint64_t> stored_fp8{0};   // modules that the config leaves unquantized and that hold FP8 codes
};

// Shapes and dtypes have been checked by the caller. `spec.key.symmetric` says whether zero points are used.
std::shared_ptr<const MatrixSource> make_packed_int(MatrixSpec spec, const PackedIntLayout& layout,
                                                    const PackedIntTensors& tensors,
                                                    std::shared_ptr<const Checkpoint> checkpoint,
                                                    std::shared_ptr<ValueNotes> notes);

// What the header of a group index [in] says. Errors: "tensor.shape", "tensor.dtype".
Result<> expect_group_index(const TensorView& tensor, std::int64_t cols);
// Checks a stored group index [in] and returns what a MatrixSpec wants: empty when column k is in group k / group_cols
// anyway. Errors: "quant.act_order" when a group number is out of range or groups are of unequal size.
Result<std::vector<std::int32_t>> check_group_index(const TensorView& tensor, const Checkpoint& checkpoint,
                                                    std::int64_t cols, std::int64_t group_cols);

}  // namespace moracle
