#include "device/device.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <cstring>

#include "base/generic/quantity.h"
#include "device/library.h"

namespace moracle {

namespace {

constexpr int kMostDevices = 64;

std::string error_number(const DriverApi& api, int error) {
  const char* const text = api.error_text(api.self, error);
  return "error " + std::to_string(error) + (text != nullptr ? std::string(": ") + text : "");
}

std::string version_text(std::int32_t version) {
  return std::to_string(version / 1000) + "." + std::to_string(version % 1000 / 10);
}

}  // namespace

void ReleaseMemory::operator()(const Device& device, void* memory) const {
  device.api().release(device.api().self, device.ordinal(), memory);
}
void ReleasePinned::operator()(const Device& device, void* memory) const {
  device.api().release_pinned(device.api().self, memory);
}
void DropStream::operator()(const Device& device, void* stream) const {
  device.api().drop_stream(device.api().self, stream);
}
void DropEvent::operator()(const Device& device, void* event) const {
  device.api().drop_event(device.api().self, event);
}
void DropGraph::operator()(const Device& device, void* graph) const {
  device.api().drop_graph(device.api().self, graph);
}

void* Stream::self() const {
  return handle_.device().api().self;
}

void Stream::keep(int error, std::string_view what) {
  if (error == 0 || failed_) return;
  failed_ = handle_.device().check(error, what).error();
}

void Stream::copy(void* to, const void* from, std::size_t bytes, CopyKind kind) {
  if (bytes == 0) return;
  if (on_host()) {
    std::memmove(to, from, bytes);
    return;
  }
  keep(handle_.device().api().copy(self(), handle_.get(), to, from, bytes, kind), "copy");
}

void Stream::fill(void* to, int byte, std::size_t bytes) {
  if (bytes == 0) return;
  if (on_host()) {
    std::memset(to, byte, bytes);
    return;
  }
  keep(handle_.device().api().fill(self(), handle_.get(), to, byte, bytes), "fill");
}

void Stream::record(const Event& event) {
  if (on_host()) return;
  keep(handle_.device().api().record(self(), event.get(), handle_.get()), "record an event");
}

void Stream::after(const Event& event) {
  if (on_host()) return;
  keep(handle_.device().api().after(self(), event.get(), handle_.get()), "wait for an event");
}

void Stream::launch(const Graph& graph) {
  if (on_host()) {
    graph.body_();
    return;
  }
  keep(handle_.device().api().launch_graph(self(), graph.handle_.get(), handle_.get()), "launch a graph");
}

Result<> Stream::wait() {
  const int waited = on_host() ? 0 : handle_.device().api().wait(self(), handle_.get());
  if (waited != 0) keep(waited, last_.empty() ? "wait" : "wait after kernel " + std::string(last_));
  last_ = {};
  if (!failed_) return Ok{};
  Error error = *std::move(failed_);
  failed_.reset();
  return error;
}

Result<Graph> Stream::capture(std::function<void()> body) {
  if (on_host()) return Graph(std::move(body));
  const DriverApi& api = handle_.device().api();
  if (failed_) return wait().error();
  keep(api.begin_capture(self(), handle_.get()), "begin a graph");
  if (!failed_) {
    body();
    void* graph = nullptr;
    keep(api.end_capture(self(), handle_.get(), &graph), "end a graph");
    Graph owned(DeviceHandle<DropGraph>(handle_.device(), graph));
    if (!failed_) return owned;
  }
  Error error = *std::move(failed_);
  failed_.reset();
  return error;
}

Result<std::vector<DeviceFacts>> probe_devices(const DriverApi& api) {
  std::array<DeviceFacts, kMostDevices> facts{};
  int count = 0;
  const int error = api.probe(api.self, facts.data(), kMostDevices, &count);
  if (error == kDeviceNoDriver) {
    return Error{.code = "device.driver",
                 .where = "CUDA",
                 .wanted = "an NVIDIA driver for CUDA 13.0 or newer",
                 .found = "none, or an older one (" + error_number(api, error) + ")",
                 .advice = "install the driver, or compute with --device cpu"};
  }
  if (error != 0 || count < 1) {
    return Error{.code = "device.driver",
                 .where = "CUDA",
                 .wanted = "an NVIDIA GPU",
                 .found = error != 0 ? error_number(api, error) : "none that the driver shows",
                 .advice = "CUDA_VISIBLE_DEVICES may hide one; --device cpu computes without"};
  }
  return std::vector<DeviceFacts>(facts.begin(), facts.begin() + std::min(count, kMostDevices));
}

Result<std::shared_ptr<Device>> Device::open(const DriverApi& api, int ordinal) {
  constexpr std::int32_t kCapability = 90;  // the object's machine code is of sm_90a, which no other capability runs
  MORACLE_ASSIGN(const std::vector<DeviceFacts> all, probe_devices(api));
  if (ordinal >= 0 && static_cast<std::size_t>(ordinal) < all.size()) {
    const DeviceFacts& facts = all[static_cast<std::size_t>(ordinal)];
    if (facts.capability == kCapability) return std::shared_ptr<Device>(new Device(api, ordinal, facts));
    return Error{.code = "device.capability",
                 .where = "cuda:" + std::to_string(ordinal),
                 .wanted = "a GPU of compute capability 9.0 (H100, H200)",
                 .found = std::string(facts.name) + ", of " + std::to_string(facts.capability / 10) + "." +
                          std::to_string(facts.capability % 10),
                 .advice = "use --device cpu, or a GPU of that capability: `moracle devices` lists them"};
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

Machine Device::machine() const {
  Machine machine;
  machine.name = name();
  machine.device = DeviceKind::cuda;
  machine.arch = "sm_" + std::to_string(facts_.capability);
  machine.capability = facts_.capability;
  machine.cpu_model = facts_.name;
  machine.cores = facts_.multiprocessors;
  machine.l2_bytes = facts_.l2_bytes;
  machine.memory_bytes = facts_.memory_bytes;
  machine.os_note = "driver for CUDA " + version_text(facts_.driver) + ", kernels of " + version_text(facts_.runtime);
  return machine;
}

Error Device::memory_error(std::size_t bytes, std::string_view what) const {
  const Result<std::uint64_t> free_bytes = free_memory();
  return {.code = "device.memory",
          .where = name(),
          .wanted = human_bytes(bytes) + " for " + std::string(what),
          .found = free_bytes.ok() ? human_bytes(*free_bytes) + " free of " + human_bytes(facts_.memory_bytes)
                                   : "too little free memory",
          .advice = "`moracle plan` tells what the model takes; end other programs on this GPU, or use --device cpu"};
}

Result<Buffer> Device::allocate(std::size_t bytes, std::string_view what) const {
  if (bytes == 0) return Buffer();
  void* memory = nullptr;
  const int error = api_.allocate(api_.self, ordinal_, bytes, &memory);
  if (error == kDeviceOutOfMemory) return memory_error(bytes, what);
  MORACLE_TRY(check(error, "allocate"));
  return Buffer({*this, memory}, bytes);
}

Result<PinnedBuffer> Device::allocate_pinned(std::size_t bytes, std::string_view what) const {
  if (bytes == 0) return PinnedBuffer();
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
  return PinnedBuffer({*this, memory}, bytes);
}

Result<std::uint64_t> Device::free_memory() const {
  std::uint64_t bytes = 0;
  MORACLE_TRY(check(api_.free_memory(api_.self, ordinal_, &bytes), "ask for free memory"));
  return bytes;
}

Result<Stream> Device::make_stream() const {
  void* stream = nullptr;
  MORACLE_TRY(check(api_.make_stream(api_.self, ordinal_, &stream), "make a stream"));
  return Stream(DeviceHandle<DropStream>(*this, stream));
}

Result<Event> Device::make_event() const {
  void* event = nullptr;
  MORACLE_TRY(check(api_.make_event(api_.self, ordinal_, &event), "make an event"));
  return Event(*this, event);
}

Result<double> Device::seconds_between(const Event& from, const Event& to) const {
  float milliseconds = 0.0F;
  MORACLE_TRY(check(api_.elapsed(api_.self, from.get(), to.get(), &milliseconds), "read events"));
  return static_cast<double>(milliseconds) / 1000.0;
}

Result<> Device::reserve_stage(std::size_t pinned, std::size_t scratch) {
  if (!stage_.made_) {
    MORACLE_ASSIGN(stage_.begin_, make_event());
    MORACLE_ASSIGN(stage_.end_, make_event());
    MORACLE_ASSIGN(stage_.stream_, make_stream());
    stage_.made_ = true;
  }
  if (pinned > stage_.pinned_.size()) {
    stage_.pinned_ = PinnedBuffer();
    MORACLE_ASSIGN(stage_.pinned_, allocate_pinned(pinned, "inputs and outputs"));
  }
  if (scratch > stage_.scratch_.size()) {
    stage_.scratch_ = Buffer();
    MORACLE_ASSIGN(stage_.scratch_, allocate(scratch, "intermediate results"));
  }
  return Ok{};
}

Result<std::byte*> Device::kernel_state(std::size_t bytes) {
  if (kernel_state_.size() < bytes) {
    MORACLE_TRY(reserve_stage(0, 0));
    MORACLE_ASSIGN(Buffer made, allocate(bytes, "what kernels keep between calls"));
    stage_.stream().fill(made.data(), 0xFF, bytes);
    MORACLE_TRY(stage_.stream().wait());
    kernel_state_ = std::move(made);
  }
  return kernel_state_.data();
}

std::shared_ptr<LoadRing> Device::load_ring() {
  std::shared_ptr<LoadRing> ring = load_ring_.lock();
  if (ring == nullptr) {
    ring = std::make_shared<LoadRing>(*this);
    load_ring_ = ring;
  }
  return ring;
}

Result<> LoadRing::reserve(std::size_t bytes, std::size_t streams) {
  if (bytes > memory_.size()) {
    memory_ = PinnedBuffer();
    MORACLE_ASSIGN(memory_, device_.allocate_pinned(bytes, "weights on their way to the device"));
  }
  while (streams_.size() < streams) {
    MORACLE_ASSIGN(Stream stream, device_.make_stream());
    streams_.push_back(std::move(stream));
  }
  return Ok{};
}

Result<double> Device::copy_rate() {
  constexpr std::size_t kBytes = std::size_t{64} << 20U;
  constexpr int kRounds = 8;
  const std::shared_ptr<LoadRing> ring = load_ring();
  MORACLE_TRY(ring->reserve(kBytes, 1));
  MORACLE_ASSIGN(const Buffer to, allocate(kBytes, "a measurement of copies"));
  MORACLE_ASSIGN(const Event begin, make_event());
  MORACLE_ASSIGN(const Event end, make_event());
  Stream& stream = ring->streams().front();
  std::fill_n(ring->data(), kBytes, std::byte{1});
  stream.to_device(to.data(), ring->data(), kBytes);
  stream.record(begin);
  for (int round = 0; round < kRounds; ++round) stream.to_device(to.data(), ring->data(), kBytes);
  stream.record(end);
  MORACLE_TRY(stream.wait());
  MORACLE_ASSIGN(const double seconds, seconds_between(begin, end));
  return static_cast<double>(kBytes) * kRounds / seconds;
}

Result<double> Stage::seconds() const {
  return begin_.device().seconds_between(begin_, end_);
}

Error Device::unreserved_batch(std::int64_t tokens) const {
  return {.code = "device.batch",
          .where = name(),
          .wanted = "a batch that was reserved",
          .found = std::to_string(tokens) + " tokens"};
}

Result<> Device::check(int error, std::string_view what) const {
  if (error == 0) return Ok{};
  return Error{.code = "device.call",
               .where = name() + " (" + facts_.name + ")",
               .wanted = std::string(what),
               .found = error_number(api_, error)};
}

bool names_device(std::string_view text) {
  return text == "cuda" || text.starts_with("cuda:");
}

Result<std::shared_ptr<Device>> open_device(std::string_view name) {
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
  return Device::open(**library, ordinal);
}

}  // namespace moracle
