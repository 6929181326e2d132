// Scales and zero points of a lane's two rows of weights, one group of columns after the other.
#pragma once

#include "kernels/cuda/common/linear/matrices.cuh"
#include "kernels/cuda/common/linear/numbers.cuh"
#include "kernels/cuda/common/linear/scales.cuh"

namespace moracle::cuda {

struct LaneTerms {
  std::uint32_t scales[2];  // as they are stored
  std::uint32_t zeros[2];
};

// Reads ahead of what is multiplied: where it reads is kept, not calculated anew.
template <class Code>
class TermReader {
 public:
  // Of rows `row` and `row` + 8, from slice `slice` on. Rows beyond the last read as the last.
  __device__ __forceinline__ TermReader(const LinearMatrix& of, int row, int slice)
      : bytes_(of.scale == DeviceScale::f32                                     ? 4
               : of.scale == DeviceScale::e4m3 || of.scale == DeviceScale::e8m0 ? 1
                                                                                : 2),
        group_slices_(of.matrix.group < of.matrix.padded ? of.matrix.group / kSlice : kWhole),
        left_(group_slices_ - slice % group_slices_),
        slices_(of.matrix.padded / kSlice - slice) {
    const int group = slice / group_slices_;
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const std::int64_t at =
          static_cast<std::int64_t>(min(row + 8 * half, of.matrix.rows - 1)) * of.matrix.groups + group;
      scales_[half] = of.matrix.scales == kAbsent ? nullptr : of.weights + of.matrix.scales + at * bytes_;
      zeros_[half] = of.matrix.zeros == kAbsent ? nullptr : of.weights + of.matrix.zeros + at;
    }
  }
  // Those of the next `slices` slices, which lie in one group. Behind the last: nothing.
  __device__ __forceinline__ LaneTerms next(int slices) {
    LaneTerms terms{};
    if constexpr (SliceForm<Code>::kScaled) {
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        terms.zeros[half] = neutral_zero(Code::kCode);
        if (slices_ <= 0) continue;
        if (scales_[half] != nullptr) terms.scales[half] = load(scales_[half]);
        if (neutral_zero(Code::kCode) != 0 && zeros_[half] != nullptr) terms.zeros[half] = __ldg(zeros_[half]);
      }
      slices_ -= slices;
      left_ -= slices;
      if (left_ == 0) {
        left_ = group_slices_;
#pragma unroll
        for (int half = 0; half < 2; ++half) {
          if (scales_[half] != nullptr) scales_[half] += bytes_;
          if (zeros_[half] != nullptr) ++zeros_[half];
        }
      }
    }
    return terms;
  }

 private:
  static constexpr int kWhole = 1 << 30;  // of a row that has one scale

  [[nodiscard]] __device__ __forceinline__ std::uint32_t load(const std::uint8_t* from) const {
    if (bytes_ == 2) return __ldg(reinterpret_cast<const std::uint16_t*>(from));
    return bytes_ == 4 ? __ldg(reinterpret_cast<const std::uint32_t*>(from)) : __ldg(from);
  }

  const std::uint8_t* scales_[2];  // null: there are none
  const std::uint8_t* zeros_[2];
  int bytes_;
  int group_slices_;
  int left_;    // of the group
  int slices_;  // of the row
};

}  // namespace moracle::cuda
