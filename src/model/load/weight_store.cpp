#include "model/load/weight_store.h"

#include <algorithm>

namespace moracle {

namespace {

constexpr std::size_t kSharedBytes = std::size_t{1} << 20U;
constexpr std::size_t kSmallBytes = kSharedBytes / 8;  // of an array that shares

}  // namespace

Result<std::byte*> WeightStore::allocate(std::size_t bytes) {
  if (bytes == 0) return static_cast<std::byte*>(nullptr);
  const bool small = bytes <= kSmallBytes;
  if (small) {
    if (std::byte* const data = shared_.take<std::byte>(bytes).data(); data != nullptr) return data;
  }
  MORACLE_ASSIGN(PageBuffer pages, PageBuffer::allocate(small ? kSharedBytes : bytes));
  const std::span<std::byte> memory(pages.data(), pages.size());
  memory_.push_back(std::move(pages));
  if (!small) return memory.data();
  shared_ = BumpArena(memory);
  return shared_.take<std::byte>(bytes).data();
}

Result<const std::byte*> WeightStore::copy(std::span<const std::byte> bytes) {
  MORACLE_ASSIGN(std::byte* const data, allocate(bytes.size()));
  std::ranges::copy(bytes, data);
  return static_cast<const std::byte*>(data);
}

Result<const std::byte*> WeightStore::stage(std::size_t bytes, FunctionRef<Result<>(WeightSink&)> write) {
  MORACLE_ASSIGN(std::byte* const data, allocate(bytes));
  HostSink sink(data);
  MORACLE_TRY(write(sink));
  return static_cast<const std::byte*>(data);
}

}  // namespace moracle
