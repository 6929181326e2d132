#include "device/stream.h"

#include <cstring>
#include <string>

#include "device/gpu_device.h"

namespace moracle {

void DropStream::operator()(const GpuDevice& device, void* stream) const {
  device.api().drop_stream(device.api().self, stream);
}
void DropEvent::operator()(const GpuDevice& device, void* event) const {
  device.api().drop_event(device.api().self, event);
}
void DropGraph::operator()(const GpuDevice& device, void* graph) const {
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

}  // namespace moracle
