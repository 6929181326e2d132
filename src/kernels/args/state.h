// What sequences leave behind, in blocks that one table a sequence names.
#pragma once

#include <cstddef>
#include <cstdint>

#include "kernels/args/plain.h"

namespace moracle {

// The numbers in which keys, values and latents are kept.
enum class KvType : std::uint8_t {
  f32,
  bf16,
  int8,  // with one f32 scale for each key, each value and each part of a latent
};

// Positions of one block.
inline constexpr std::int64_t kKvBlock = 64;

// A layer's share of each block of a kind.
struct BlockMemory {
  std::byte* memory = nullptr;  // share of block 0
  std::uint64_t stride = 0;     // bytes from block to block

  [[nodiscard]] constexpr std::byte* block(std::uint32_t id) const { return memory + id * stride; }
};
static_assert(kPlain<BlockMemory>);

// Tokens [begin, begin + count) of the batch continue a sequence at position `start`. A span of no tokens is skipped;
// what operations give for tokens of no span has no meaning.
struct KvSpan {
  std::int64_t begin = 0;
  std::int64_t count = 0;
  std::int64_t start = 0;
  const std::uint32_t* table = nullptr;  // blocks of the sequence, in order
};
static_assert(kPlain<KvSpan>);

// Tokens [begin, begin + count) of the batch continue a recurrence, whose state moves from one block to another. Of no
// tokens: as of KvSpan.
struct RecurrentSpan {
  std::int64_t begin = 0;
  std::int64_t count = 0;
  std::uint32_t before = 0;
  std::uint32_t after = 0;
};
static_assert(kPlain<RecurrentSpan>);

}  // namespace moracle
