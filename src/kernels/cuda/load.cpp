#include "kernels/cuda/load.h"

#include <algorithm>
#include <mutex>
#include <vector>

#include "device/library.h"
#include "kernels/cuda/kernels.h"
#include "kernels/weight_sink.h"

namespace moracle::cuda {

namespace {

// Pinned memory that weights pass through.
constexpr std::uint64_t kPassage = std::uint64_t{32} << 20U;

// Blocks are packed in memory of each worker, and pass the device's stage one after the other.
class DeviceSink final : public WeightSink {
 public:
  DeviceSink(Stage& stage, const Buffer& pack, int workers)
      : stage_(stage), pack_(pack), blocks_(static_cast<std::size_t>(workers)) {}

  std::span<std::byte> stage(std::uint64_t offset, std::size_t size, int worker) override {
    Block& block = blocks_[static_cast<std::size_t>(worker)];
    block.offset = offset;
    block.bytes.assign(size, std::byte{0});
    return block.bytes;
  }

  Result<> commit(int worker) override {
    const Block& block = blocks_[static_cast<std::size_t>(worker)];
    const std::lock_guard lock(copying_);
    for (std::size_t at = 0; at < block.bytes.size(); at += kPassage) {
      const auto part = std::span(block.bytes).subspan(at, std::min<std::size_t>(kPassage, block.bytes.size() - at));
      std::copy(part.begin(), part.end(), stage_.pinned().begin());
      stage_.stream().to_device(pack_.data() + block.offset + at, stage_.pinned().data(), part.size());
      MORACLE_TRY(stage_.stream().wait());
    }
    return Ok{};
  }

 private:
  struct Block {
    std::uint64_t offset = 0;
    std::vector<std::byte> bytes;
  };

  Stage& stage_;
  const Buffer& pack_;
  std::vector<Block> blocks_;  // of each worker
  std::mutex copying_;         // the stage serves one at a time
};

}  // namespace

Result<Buffer> load_blocks(Device& device, ThreadPool& pool, std::int64_t count, std::uint64_t bytes,
                           FunctionRef<Result<>(std::int64_t, std::span<std::byte>)> write) {
  MORACLE_ASSIGN(Buffer buffer, device.allocate(static_cast<std::uint64_t>(count) * bytes, "packed weights"));
  MORACLE_TRY(device.reserve_stage(std::min(bytes, kPassage), 0));
  DeviceSink sink(device.stage(), buffer, pool.threads());
  MORACLE_TRY(write_blocks(sink, pool, count, bytes,
                           [&](std::int64_t block, std::span<std::byte> staged, int) { return write(block, staged); }));
  return buffer;
}

Error wrong_type() {
  return {.code = "device.type", .wanted = "f32 inputs and outputs", .found = "another type"};
}

Result<std::shared_ptr<Device>> device_of(const std::shared_ptr<Device>& device) {
  if (device != nullptr) return device;
  return Error{.code = "device.none",
               .wanted = "a CUDA device for kernels of backend sm90",
               .found = "none",
               .advice = "compute with --device cuda:0"};
}

std::string_view missing_device() {
  static const std::string missing = [] {
    const Result<const DeviceApi*>& library = device_library();
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
