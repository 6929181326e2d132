// Bytes on their way to a GPU.
#pragma once

#include <cstddef>

#include "base/generic/function_ref.h"
#include "base/result.h"
#include "kernels/pack_memory.h"
#include "kernels/weight_sink.h"

namespace moracle {

// What a block takes of an upload buffer: whole pages.
[[nodiscard]] constexpr std::size_t staging_bytes(std::size_t block_bytes) {
  constexpr std::size_t kPage = 4096;
  return (block_bytes + kPage - 1) / kPage * kPage;
}

// Fills memory of the buffer's device: `write` stages up to `block_bytes` at a time on up to `threads` workers, whose
// blocks are copied while it goes on, and have been when this returns. Errors: those of `write` and of
// UploadBuffer::reserve, "device.call".
Result<> upload(UploadBuffer& through, int threads, std::byte* to, std::size_t block_bytes,
                FunctionRef<Result<>(WeightSink&)> write);

}  // namespace moracle
