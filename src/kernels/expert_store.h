// Where the packed experts of a layer lie when memory does not hold them all: an expert is packed when it is asked for.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>

#include "base/result.h"
#include "base/thread_pool.h"
#include "scheme/canonical.h"

namespace moracle {

// One of several parts of a block that threads pack at a time.
struct BlockPart {
  std::int64_t index = 0;
  std::int64_t count = 1;
};

// How a kernel packs one expert of a layer: a part of `block`, which is as large as all of the layer's, and of which a
// part writes every byte that is its own. Called on several threads at a time. Errors: those of the kernel's
// pack_experts.
using PackExpert = std::function<Result<>(std::int64_t expert, const CanonicalExperts::Expert& stored,
                                          std::span<std::byte> block, const BlockPart& part)>;

// The experts of one layer, for one call after the other.
class LayerExperts {
 public:
  virtual ~LayerExperts() = default;
  // Begins a call that needs these experts, each once, numbers of the layer. Waits for nothing.
  virtual void begin(std::span<const std::int32_t> experts) = 0;
  // Those of them that are there now and were not given yet; they stay until the next call of a function. Packs on the
  // pool, and waits until there is one. Empty: all were given but those that could not be read or packed.
  virtual std::span<const std::int32_t> next(ThreadPool& pool) = 0;
  // Tells which experts the layer will probably need in the call behind the next begin() of another one, likeliest
  // first; they may repeat, and a number below 0 is none. They are read while nobody waits for the disk, and forgotten
  // by the begin() after that. Waits for nothing, gives up no expert.
  virtual void expect(std::span<const std::int32_t> experts) = 0;
  // [experts]: the block of each expert that next() has given last; of others null.
  [[nodiscard]] virtual std::span<const std::byte* const> blocks() const = 0;
};

// Memory that layers share. Layers are used in turn, from one thread.
class ExpertStore {
 public:
  virtual ~ExpertStore() = default;
  // `experts` is kept. Errors: "memory.slot" where a block is larger than the store's, or experts are not of a
  // checkpoint.
  virtual Result<std::unique_ptr<LayerExperts>> add(CanonicalExperts experts, std::size_t block_bytes,
                                                    PackExpert pack) = 0;
};

}  // namespace moracle
