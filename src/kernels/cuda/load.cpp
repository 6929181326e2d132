#include "kernels/cuda/load.h"

#include <algorithm>
#include <mutex>
#include <vector>

#include "base/first_error.h"
#include "device/library.h"
#include "kernels/cuda/kernels.h"

namespace moracle::cuda {

namespace {

// Pinned memory that weights pass through.
constexpr std::uint64_t kPassage = std::uint64_t{32} << 20U;

Result<> copy_block(Stage& stage, std::span<const std::byte> block, std::byte* to) {
  for (std::size_t at = 0; at < block.size(); at += kPassage) {
    const auto part = block.subspan(at, std::min<std::size_t>(kPassage, block.size() - at));
    std::copy(part.begin(), part.end(), stage.pinned().begin());
    stage.stream().to_device(to + at, stage.pinned().data(), part.size());
    MORACLE_TRY(stage.stream().wait());
  }
  return Ok{};
}

}  // namespace

Result<Buffer> load_blocks(Device& device, ThreadPool& pool, std::int64_t count, std::uint64_t bytes,
                           FunctionRef<Result<>(std::int64_t, std::span<std::byte>)> write) {
  const auto blocks = static_cast<std::uint64_t>(count);
  MORACLE_ASSIGN(Buffer buffer, device.allocate(blocks * bytes, "packed weights"));
  MORACLE_TRY(device.reserve_stage(std::min(bytes, kPassage), 0));
  Stage& stage = device.stage();
  std::vector<std::vector<std::byte>> scratch(static_cast<std::size_t>(pool.threads()));
  std::mutex copying;  // the stage serves one at a time
  FirstError failed;
  pool.parallel_for(count, [&](std::int64_t block, int thread) {
    if (failed.failed()) return;
    std::vector<std::byte>& packed = scratch[static_cast<std::size_t>(thread)];
    packed.assign(bytes, std::byte{0});
    if (auto written = write(block, packed); !written.ok()) {
      failed.keep(block, std::move(written));
      return;
    }
    const std::lock_guard lock(copying);
    failed.keep(block, copy_block(stage, packed, buffer.data() + static_cast<std::uint64_t>(block) * bytes));
  });
  MORACLE_TRY(failed.take());
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
