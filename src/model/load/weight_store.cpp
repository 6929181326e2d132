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
  MORACLE_ASSIGN(Buffer buffer, device_->allocate(small ? kSharedBytes : bytes, "parameters"));
  const std::span<std::byte> memory(buffer.data(), buffer.size());
  memory_.push_back(std::move(buffer));
  if (!small) return memory.data();
  shared_ = BumpArena(memory);
  return shared_.take<std::byte>(bytes).data();
}

Result<const std::byte*> WeightStore::copy(std::span<const std::byte> bytes) {
  return stage(bytes.size(), bytes.size(), 1, [&](WeightSink& sink) {
    std::ranges::copy(bytes, sink.stage(0, bytes.size(), 0).begin());
    return sink.commit(0);
  });
}

Result<const std::byte*> WeightStore::stage(std::size_t bytes, std::size_t block_bytes, int threads,
                                            FunctionRef<Result<>(WeightSink&)> write) {
  MORACLE_ASSIGN(std::byte* const data, allocate(bytes));
  if (bytes == 0) return static_cast<const std::byte*>(data);
  if (upload_ == nullptr) {
    HostSink sink(data);
    MORACLE_TRY(write(sink));
  } else {
    MORACLE_TRY(upload(*upload_, threads, data, block_bytes, write));
  }
  return static_cast<const std::byte*>(data);
}

}  // namespace moracle
