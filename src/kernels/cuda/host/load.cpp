#include "kernels/cuda/host/load.h"

#include <algorithm>
#include <memory>
#include <vector>

#include "device/library.h"
#include "kernels/cuda/host/kernels.h"
#include "kernels/upload.h"

namespace moracle::cuda {

namespace {

// A block larger than the buffer is packed in memory of its own and passes in parts.
Result<> load_large(UploadBuffer& through, const Buffer& pack, std::int64_t count, std::size_t bytes,
                    FunctionRef<Result<>(std::int64_t, std::span<std::byte>)> write) {
  const std::size_t part_bytes = staging_bytes(through.limit() / 8);
  return upload(through, 1, pack.data(), part_bytes, [&](WeightSink& sink) -> Result<> {
    for (std::int64_t block = 0; block < count; ++block) {
      std::vector<std::byte> whole(bytes);
      MORACLE_TRY(write(block, whole));
      for (std::size_t at = 0; at < bytes; at += part_bytes) {
        const auto part = std::span(whole).subspan(at, std::min(part_bytes, bytes - at));
        std::ranges::copy(part, sink.stage(static_cast<std::uint64_t>(block) * bytes + at, part.size(), 0).begin());
        MORACLE_TRY(sink.commit(0));
      }
    }
    return Ok{};
  });
}

}  // namespace

Result<Buffer> load_blocks(const PackOptions& options, std::int64_t count, std::uint64_t bytes,
                           FunctionRef<Result<>(std::int64_t, std::span<std::byte>)> write) {
  const Device& device = *options.device;
  MORACLE_ASSIGN(Buffer buffer, device.allocate(static_cast<std::uint64_t>(count) * bytes, "packed weights"));
  UploadBuffer own(device);
  UploadBuffer& through = options.upload != nullptr ? *options.upload : own;
  if (bytes > through.limit()) {
    MORACLE_TRY(load_large(through, buffer, count, bytes, write));
    return buffer;
  }
  MORACLE_TRY(upload(through, options.pool.threads(), buffer.data(), bytes, [&](WeightSink& sink) {
    return write_blocks(sink, options.pool, count, bytes,
                        [&](std::int64_t block, std::span<std::byte> staged, int) { return write(block, staged); });
  }));
  return buffer;
}

Error wrong_type() {
  return {.code = "device.type", .wanted = "f32 inputs and outputs", .found = "another type"};
}

Result<std::shared_ptr<GpuDevice>> device_of(const std::shared_ptr<GpuDevice>& device) {
  if (device != nullptr) return device;
  return Error{.code = "device.none",
               .wanted = "a CUDA device for CUDA kernels",
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
