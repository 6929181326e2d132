#include "model/state/block_pool.h"

#include <algorithm>

#include "base/pages.h"

namespace moracle {

Result<std::shared_ptr<BlockPool>> BlockPool::make(const std::vector<std::size_t>& block_bytes, std::size_t budget) {
  auto pool = std::make_shared<BlockPool>();
  pool->budget_ = budget;
  for (const std::size_t bytes : block_bytes) {
    const std::size_t page = page_bytes();
    Kind kind{.bytes = bytes, .stride = (bytes + page - 1) / page * page};
    const std::size_t count = bytes == 0 ? 0 : std::min<std::size_t>(budget / kind.stride, kNoBlock);
    MORACLE_ASSIGN(kind.memory, PageBuffer::allocate(count * kind.stride));
    kind.count = count;
    kind.references.reserve(count);
    kind.free.reserve(count);
    kind.released.reserve(count);
    pool->kinds_.push_back(std::move(kind));
  }
  return pool;
}

std::optional<BlockId> BlockPool::take(std::size_t kind) {
  Kind& of = kinds_[kind];
  BlockId block = kNoBlock;
  if (!of.free.empty()) {
    block = of.free.back();
    of.free.pop_back();
  } else {
    if ((of.released.empty() && of.references.size() == of.count) || !make_room(of.stride)) return std::nullopt;
    if (!of.released.empty()) {
      block = of.released.back();
      of.released.pop_back();
    } else {
      block = static_cast<BlockId>(of.references.size());
      of.references.push_back(0);
    }
    committed_ += of.stride;
  }
  of.references[block] = 1;
  used_ += of.stride;
  return block;
}

void BlockPool::release(std::size_t kind, BlockId block) {
  Kind& of = kinds_[kind];
  if (--of.references[block] > 0) return;
  of.free.push_back(block);
  used_ -= of.stride;
}

bool BlockPool::make_room(std::size_t bytes) {
  if (used_ + bytes > budget_) return false;
  for (Kind& kind : kinds_) {
    while (committed_ + bytes > budget_ && !kind.free.empty()) {
      const BlockId block = kind.free.back();
      kind.free.pop_back();
      give_back_pages(kind.memory.data() + block * kind.stride, kind.stride);
      kind.released.push_back(block);
      committed_ -= kind.stride;
    }
  }
  return true;
}

}  // namespace moracle
