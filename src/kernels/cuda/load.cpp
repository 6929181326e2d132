#include "kernels/cuda/load.h"

#include <algorithm>
#include <memory>
#include <vector>

#include "device/library.h"
#include "kernels/cuda/kernels.h"
#include "kernels/pack_memory.h"
#include "kernels/weight_sink.h"

namespace moracle::cuda {

namespace {

// Slots of the upload buffer for blocks of one size: two for each worker, so that it packs one block while its last one
// is copied, or as many as fit.
struct Slots {
  static constexpr std::size_t kAlignment = 4096;  // bytes

  Slots(const UploadBuffer& buffer, std::size_t block_bytes, int threads)
      : pitch((block_bytes + kAlignment - 1) / kAlignment * kAlignment),
        count(std::clamp<std::size_t>(buffer.limit() / pitch, 1, 2 * static_cast<std::size_t>(threads))),
        workers(std::min(count, static_cast<std::size_t>(threads))) {}

  std::size_t pitch;  // bytes
  std::size_t count;
  std::size_t workers;
};

// Blocks are packed in slots of the upload buffer and copied from there.
class UploadSink final : public WeightSink {
 public:
  UploadSink(UploadBuffer& upload, const Buffer& pack, Slots slots)
      : upload_(upload), pack_(pack), slots_(slots), staged_(slots.workers) {}
  UploadSink(const UploadSink&) = delete;
  UploadSink& operator=(const UploadSink&) = delete;
  ~UploadSink() override {
    if (!finished_) static_cast<void>(finish());
  }

  [[nodiscard]] int workers(int /*threads*/) const override { return static_cast<int>(slots_.workers); }

  std::span<std::byte> stage(std::uint64_t offset, std::size_t size, int worker) override {
    const auto first = static_cast<std::size_t>(worker);
    const std::size_t second = first + slots_.workers;
    Staged& staged = staged_[first];
    staged.slot = staged.slot == first && second < slots_.count ? second : first;
    Stream& stream = upload_.streams()[staged.slot];
    if (Result<> copied = stream.wait(); !copied.ok()) stream.fail(std::move(copied).error());
    staged.offset = offset;
    staged.bytes = {upload_.data() + staged.slot * slots_.pitch, size};
    std::ranges::fill(staged.bytes, std::byte{0});
    return staged.bytes;
  }

  Result<> commit(int worker) override {
    const Staged& staged = staged_[static_cast<std::size_t>(worker)];
    upload_.streams()[staged.slot].to_device(pack_.data() + staged.offset, staged.bytes.data(), staged.bytes.size());
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
  const Buffer& pack_;
  Slots slots_;
  std::vector<Staged> staged_;  // by each worker
  bool finished_ = false;
};

// A block larger than the buffer is packed in memory of its own and passes in parts.
Result<> load_large(UploadBuffer& upload, const Buffer& pack, std::int64_t count, std::size_t bytes,
                    FunctionRef<Result<>(std::int64_t, std::span<std::byte>)> write) {
  const Slots slots(upload, upload.limit() / 8, 1);
  MORACLE_TRY(upload.reserve(slots.count * slots.pitch, slots.count));
  UploadSink sink(upload, pack, slots);
  for (std::int64_t block = 0; block < count; ++block) {
    std::vector<std::byte> whole(bytes);
    MORACLE_TRY(write(block, whole));
    for (std::size_t at = 0; at < bytes; at += slots.pitch) {
      const auto part = std::span(whole).subspan(at, std::min(slots.pitch, bytes - at));
      std::ranges::copy(part, sink.stage(static_cast<std::uint64_t>(block) * bytes + at, part.size(), 0).begin());
      MORACLE_TRY(sink.commit(0));
    }
  }
  return sink.finish();
}

}  // namespace

Result<Buffer> load_blocks(const PackOptions& options, std::int64_t count, std::uint64_t bytes,
                           FunctionRef<Result<>(std::int64_t, std::span<std::byte>)> write) {
  const Device& device = *options.device;
  MORACLE_ASSIGN(Buffer buffer, device.allocate(static_cast<std::uint64_t>(count) * bytes, "packed weights"));
  UploadBuffer own(device);
  UploadBuffer& upload = options.upload != nullptr ? *options.upload : own;
  if (bytes > upload.limit()) {
    MORACLE_TRY(load_large(upload, buffer, count, bytes, write));
    return buffer;
  }
  const Slots slots(upload, bytes, options.pool.threads());
  MORACLE_TRY(upload.reserve(slots.count * slots.pitch, slots.count));
  UploadSink sink(upload, buffer, slots);
  MORACLE_TRY(write_blocks(sink, options.pool, count, bytes,
                           [&](std::int64_t block, std::span<std::byte> staged, int) { return write(block, staged); }));
  MORACLE_TRY(sink.finish());
  return buffer;
}

Error wrong_type() {
  return {.code = "device.type", .wanted = "f32 inputs and outputs", .found = "another type"};
}

Result<std::shared_ptr<GpuDevice>> device_of(const std::shared_ptr<GpuDevice>& device) {
  if (device != nullptr) return device;
  return Error{.code = "device.none",
               .wanted = "a CUDA device for kernels of backend sm90",
               .found = "none",
               .advice = "compute with --device cuda:0"};
}

std::string_view missing_device() {
  static const std::string missing = [] {
    const Result<const DriverApi*>& library = device_library();
    if (!library.ok()) {
      return library.error().code == "device.version" ? std::string("a CUDA object of this version")
                                                      : "the CUDA object " + std::string(kCudaLibraryName);
    }
    const auto devices = probe_devices(**library);
    return devices.ok() ? std::string() : devices.error().wanted + ": " + devices.error().found;
  }();
  return missing;
}

}  // namespace moracle::cuda
