#include "device/gpu_device.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <cstdlib>
#include <utility>

#include "base/generic/quantity.h"
#include "device/library.h"

namespace moracle {

namespace {

constexpr int kMaxDevices = 64;

std::string error_number(const DriverApi& api, int error) {
  const char* const text = api.error_text(api.self, error);
  return "error " + std::to_string(error) + (text != nullptr ? std::string(": ") + text : "");
}

std::string version_text(std::int32_t version) {
  return std::to_string(version / 1000) + "." + std::to_string(version % 1000 / 10);
}

Machine machine_of(const DeviceFacts& facts, int ordinal) {
  Machine machine;
  machine.name = "cuda:" + std::to_string(ordinal);
  machine.device = DeviceKind::cuda;
  machine.arch = "sm_" + std::to_string(facts.capability);
  machine.capability = facts.capability;
  machine.cpu_model = facts.name;
  machine.cores = facts.multiprocessors;
  machine.l2_bytes = facts.l2_bytes;
  machine.memory_bytes = facts.memory_bytes;
  machine.os_note = "driver for CUDA " + version_text(facts.driver) + ", kernels of " + version_text(facts.runtime);
  return machine;
}

}  // namespace

namespace {

// Whether kernels of the device object run there.
Result<> check_capability(const Machine& machine) {
  constexpr int kLeastCapability = 80;  // the first with products of bf16 and copies to shared memory
  if (machine.capability >= kLeastCapability) return Ok{};
  return Error{.code = "device.capability",
               .where = machine.name,
               .wanted = "a GPU of compute capability 8.0 or newer, which multiplies bf16",
               .found = machine.cpu_model + ", of " + std::to_string(machine.capability / 10) + "." +
                        std::to_string(machine.capability % 10),
               .advice = "use --device cpu, or a GPU of that capability: `moracle devices` lists them"};
}

// Whether kCapabilityVariable is a capability that the device object takes.
Result<> check_forced_capability() {
  const char* const text = std::getenv(kCapabilityVariable);
  if (text == nullptr) return Ok{};
  const std::string_view value = text;
  int capability = 0;
  const auto [end, error] = std::from_chars(value.data(), value.data() + value.size(), capability);
  if (error == std::errc{} && end == value.data() + value.size() && capability >= 80 && capability <= 999) return Ok{};
  return Error{.code = "device.arch",
               .where = kCapabilityVariable,
               .wanted = "a compute capability times ten, from 80 on",
               .found = std::string(value),
               .advice = "80 makes any GPU run what one of capability 8.0 runs; without the variable it runs its own"};
}

}  // namespace

Result<std::vector<DeviceFacts>> probe_devices(const DriverApi& api) {
  std::array<DeviceFacts, kMaxDevices> facts{};
  int count = 0;
  const int error = api.probe(api.self, facts.data(), kMaxDevices, &count);
  if (error == kDeviceNoDriver) {
    return Error{.code = "device.driver",
                 .where = "CUDA",
                 .wanted = kLeastDriver,
                 .found = facts.front().driver > 0 ? "one for CUDA " + version_text(facts.front().driver) : "none",
                 .advice = "install the driver, or compute with --device cpu"};
  }
  if (error != 0 || count < 1) {
    return Error{.code = "device.driver",
                 .where = "CUDA",
                 .wanted = "an NVIDIA GPU",
                 .found = error != 0 ? error_number(api, error) : "none that the driver shows",
                 .advice = "CUDA_VISIBLE_DEVICES may hide one; --device cpu computes without"};
  }
  return std::vector<DeviceFacts>(facts.begin(), facts.begin() + std::min(count, kMaxDevices));
}

Result<std::shared_ptr<GpuDevice>> GpuDevice::open(const DriverApi& api, int ordinal) {
  MORACLE_TRY(check_forced_capability());
  MORACLE_ASSIGN(const std::vector<DeviceFacts> all, probe_devices(api));
  if (ordinal >= 0 && static_cast<std::size_t>(ordinal) < all.size()) {
    Machine machine = machine_of(all[static_cast<std::size_t>(ordinal)], ordinal);
    MORACLE_TRY(check_capability(machine));
    return std::shared_ptr<GpuDevice>(new GpuDevice(api, ordinal, std::move(machine)));
  }
  std::string names;
  for (std::size_t i = 0; i < all.size(); ++i)
    names += (i == 0 ? "cuda:" : ", cuda:") + std::to_string(i) + " (" + all[i].name + ")";
  return Error{.code = "device.unknown",
               .where = "--device",
               .wanted = names,
               .found = "cuda:" + std::to_string(ordinal),
               .advice = "`moracle devices` lists the GPUs"};
}

Result<std::shared_ptr<GpuDevice>> GpuDevice::describe(const DriverApi& api, const Machine& machine) {
  MORACLE_TRY(check_capability(machine));
  return std::shared_ptr<GpuDevice>(new GpuDevice(api, 0, machine));
}

GpuDevice::GpuDevice(const DriverApi& api, int ordinal, Machine machine)
    : api_(api), ordinal_(ordinal), machine_(std::move(machine)) {}

Error GpuDevice::memory_error(std::size_t bytes, std::string_view what) const {
  const Result<std::uint64_t> free_bytes = room();
  return {.code = "device.memory",
          .where = name(),
          .wanted = human_bytes(bytes) + " for " + std::string(what),
          .found = free_bytes.ok() ? human_bytes(*free_bytes) + " free of " + human_bytes(machine_.memory_bytes)
                                   : "too little free memory",
          .advice = "`moracle plan` tells what the model takes; end other programs on this GPU, or use --device cpu"};
}

Result<Buffer> GpuDevice::allocate(std::size_t bytes, std::string_view what) const {
  if (bytes == 0) return Buffer();
  if (!take(bytes)) return memory_error(bytes, what);
  void* memory = nullptr;
  const int error = api_.allocate(api_.self, ordinal_, bytes, &memory);
  if (error == 0) return Buffer(*this, static_cast<std::byte*>(memory), bytes);
  given_out_ -= bytes;
  if (error == kDeviceOutOfMemory) return memory_error(bytes, what);
  return check(error, "allocate").error();
}

bool GpuDevice::take(std::size_t bytes) const {
  std::uint64_t before = given_out_;
  do {
    if (bytes > most_ - std::min(before, most_)) return false;
  } while (!given_out_.compare_exchange_weak(before, before + bytes));
  return true;
}

Result<StagingBuffer> GpuDevice::allocate_staging(std::size_t bytes, std::string_view what) const {
  if (bytes == 0) return StagingBuffer();
  void* memory = nullptr;
  const int error = api_.allocate_pinned(api_.self, ordinal_, bytes, &memory);
  if (error == kDeviceOutOfMemory) {
    return Error{.code = "device.pinned",
                 .where = name(),
                 .wanted = human_bytes(bytes) + " of pinned host memory for " + std::string(what),
                 .found = "less that the host can pin",
                 .advice = "end other programs on this machine, or use --device cpu"};
  }
  MORACLE_TRY(check(error, "allocate pinned memory"));
  return StagingBuffer(*this, static_cast<std::byte*>(memory), bytes);
}

void GpuDevice::release(MemoryKind kind, std::byte* data, std::size_t bytes) const {
  if (kind == MemoryKind::device) {
    api_.release(api_.self, ordinal_, data);
    given_out_ -= bytes;
  } else {
    api_.release_pinned(api_.self, data);
  }
}

Result<std::uint64_t> GpuDevice::free_memory() const {
  std::uint64_t bytes = 0;
  MORACLE_TRY(check(api_.free_memory(api_.self, ordinal_, &bytes), "ask for free memory"));
  return bytes;
}

Result<> GpuDevice::limit_memory(std::uint64_t most) {
  constexpr std::uint64_t kLeft = 50;  // a fiftieth, for what the driver takes beside allocations
  MORACLE_ASSIGN(const std::uint64_t free, free_memory());
  const std::uint64_t usable = free - free / kLeft;
  most_ = most == 0 ? usable : std::min(most, usable);
  return Ok{};
}

Result<std::uint64_t> GpuDevice::room() const {
  MORACLE_ASSIGN(const std::uint64_t free, free_memory());
  return std::min(free, most_ - std::min<std::uint64_t>(given_out_, most_));
}

Result<Stream> GpuDevice::make_stream() const {
  void* stream = nullptr;
  MORACLE_TRY(check(api_.make_stream(api_.self, ordinal_, &stream), "make a stream"));
  return Stream(DeviceHandle<DropStream>(*this, stream));
}

Result<Event> GpuDevice::make_event() const {
  void* event = nullptr;
  MORACLE_TRY(check(api_.make_event(api_.self, ordinal_, &event), "make an event"));
  return Event(*this, event);
}

Result<double> GpuDevice::seconds_between(const Event& from, const Event& to) const {
  float milliseconds = 0.0F;
  MORACLE_TRY(check(api_.elapsed(api_.self, from.get(), to.get(), &milliseconds), "read events"));
  return static_cast<double>(milliseconds) / 1000.0;
}

Result<> GpuDevice::check(int error, std::string_view what) const {
  if (error == 0) return Ok{};
  return Error{.code = "device.call",
               .where = name() + " (" + machine_.cpu_model + ")",
               .wanted = std::string(what),
               .found = error_number(api_, error)};
}

bool names_device(std::string_view text) {
  return text == "cuda" || text.starts_with("cuda:");
}

Result<std::shared_ptr<GpuDevice>> open_device(std::string_view name, std::uint64_t memory) {
  int ordinal = 0;
  if (name != "cuda") {
    const std::string_view digits = name.substr(std::min(name.size(), std::string_view("cuda:").size()));
    const auto [end, failed] = std::from_chars(digits.data(), digits.data() + digits.size(), ordinal);
    if (!names_device(name) || failed != std::errc{} || end != digits.data() + digits.size() || ordinal < 0) {
      return Error{.code = "device.unknown",
                   .where = "--device",
                   .wanted = "cuda:0, or another number of a GPU",
                   .found = "'" + std::string(name.substr(0, 80)) + "'"};
    }
  }
  const Result<const DriverApi*>& library = device_library();
  if (!library.ok()) return library.error();
  MORACLE_ASSIGN(std::shared_ptr<GpuDevice> device, GpuDevice::open(**library, ordinal));
  MORACLE_TRY(device->limit_memory(memory));
  return device;
}

}  // namespace moracle
