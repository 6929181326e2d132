// Maps of tensors, by which one thread copies a box of them to or from shared memory.
#pragma once

#include <cuda.h>
#include <cuda_runtime.h>

#include <cstddef>
#include <cstdint>

namespace moracle::cuda {

// The driver's function; null: this driver has none.
inline decltype(&cuTensorMapEncodeTiled) tensor_map_encoder() {
  static const auto encode = [] {
    void* entry = nullptr;
    cudaDriverEntryPointQueryResult found{};
    constexpr unsigned kCuda12 = 12000;
    const cudaError_t error =
        cudaGetDriverEntryPointByVersion("cuTensorMapEncodeTiled", &entry, kCuda12, cudaEnableDefault, &found);
    return error == cudaSuccess ? reinterpret_cast<decltype(&cuTensorMapEncodeTiled)>(entry) : nullptr;
  }();
  return encode;
}

// Rows of bytes, one after the other, and the box of a copy. What lies outside the rows is read as zero, and not
// written.
struct MappedRows {
  const void* first;  // a multiple of 16
  std::uint64_t rows;
  std::uint64_t bytes;     // of a row, a multiple of 16
  std::uint32_t box_rows;  // at most 256
  std::uint32_t box_bytes;
  bool swizzled;  // boxes of 128 bytes: 16-byte chunks lie at (chunk ^ row % 8)
};

// Returns the runtime's error.
inline int map_rows(const MappedRows& of, CUtensorMap& map) {
  const auto encode = tensor_map_encoder();
  if (encode == nullptr) return cudaErrorSymbolNotFound;
  const cuuint64_t sizes[2] = {of.bytes, of.rows};
  const cuuint64_t strides[1] = {of.bytes};
  const cuuint32_t box[2] = {of.box_bytes, of.box_rows};
  const cuuint32_t steps[2] = {1, 1};
  const CUresult result =
      encode(&map, CU_TENSOR_MAP_DATA_TYPE_UINT8, 2, const_cast<void*>(of.first), sizes, strides, box, steps,
             CU_TENSOR_MAP_INTERLEAVE_NONE, of.swizzled ? CU_TENSOR_MAP_SWIZZLE_128B : CU_TENSOR_MAP_SWIZZLE_NONE,
             CU_TENSOR_MAP_L2_PROMOTION_L2_256B, CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE);
  return result == CUDA_SUCCESS ? cudaSuccess : cudaErrorInvalidValue;
}

}  // namespace moracle::cuda
