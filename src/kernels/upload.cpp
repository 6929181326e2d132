#include "kernels/upload.h"

#include <algorithm>
#include <vector>

namespace moracle {

namespace {

// Slots of the upload buffer for blocks of one size: two for each worker, so that it fills one block while its last
// one is copied, or as many as fit.
struct StagingLayout {
  StagingLayout(const UploadBuffer& buffer, std::size_t block_bytes, int threads)
      : pitch(staging_bytes(block_bytes)),
        count(std::clamp<std::size_t>(buffer.limit() / pitch, 1, 2 * static_cast<std::size_t>(threads))),
        workers(std::min(count, static_cast<std::size_t>(threads))) {}

  std::size_t pitch;  // bytes
  std::size_t count;
  std::size_t workers;
};

// Blocks are filled in slots of the upload buffer and copied from there.
class UploadSink final : public WeightSink {
 public:
  UploadSink(UploadBuffer& upload, std::byte* to, StagingLayout layout)
      : upload_(upload), to_(to), layout_(layout), staged_(layout.workers) {}
  UploadSink(const UploadSink&) = delete;
  UploadSink& operator=(const UploadSink&) = delete;
  ~UploadSink() override {
    if (!finished_) static_cast<void>(finish());
  }

  [[nodiscard]] int workers(int /*threads*/) const override { return static_cast<int>(layout_.workers); }

  std::span<std::byte> stage(std::uint64_t offset, std::size_t size, int worker) override {
    const auto first = static_cast<std::size_t>(worker);
    const std::size_t second = first + layout_.workers;
    Staged& staged = staged_[first];
    staged.slot = staged.slot == first && second < layout_.count ? second : first;
    Stream& stream = upload_.streams()[staged.slot];
    if (Result<> copied = stream.wait(); !copied.ok()) stream.fail(std::move(copied).error());
    staged.offset = offset;
    staged.bytes = {upload_.data() + staged.slot * layout_.pitch, size};
    std::ranges::fill(staged.bytes, std::byte{0});
    return staged.bytes;
  }

  Result<> commit(int worker) override {
    const Staged& staged = staged_[static_cast<std::size_t>(worker)];
    upload_.streams()[staged.slot].to_device(to_ + staged.offset, staged.bytes.data(), staged.bytes.size());
    return Ok{};
  }

  // Waits for all copies. Errors: the first that any of them ran into.
  Result<> finish() {
    finished_ = true;
    Result<> result = Ok{};
    for (Stream& stream : upload_.streams()) {
      Result<> copied = stream.wait();
      if (result.ok()) result = std::move(copied);
    }
    return result;
  }

 private:
  struct Staged {
    std::size_t slot = 0;
    std::uint64_t offset = 0;
    std::span<std::byte> bytes{};
  };

  UploadBuffer& upload_;
  std::byte* to_;
  StagingLayout layout_;
  std::vector<Staged> staged_;  // by each worker
  bool finished_ = false;
};

}  // namespace

Result<> upload(UploadBuffer& through, int threads, std::byte* to, std::size_t block_bytes,
                FunctionRef<Result<>(WeightSink&)> write) {
  const StagingLayout layout(through, block_bytes, threads);
  MORACLE_TRY(through.reserve(layout.count * layout.pitch, layout.count));
  UploadSink sink(through, to, layout);
  MORACLE_TRY(write(sink));
  return sink.finish();
}

}  // namespace moracle
