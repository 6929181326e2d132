#include "support/device_calls.h"

#include <gtest/gtest.h>

#include <cmath>

#include "base/memory.h"
#include "device/host_device.h"
#include "support/test_device.h"

namespace moracle::test {

namespace {

Result<> run_on(const Device& device, const PackedLinear& packed, int threads, std::int64_t tokens,
                const std::vector<float>& x, std::vector<float>& y) {
  MORACLE_ASSIGN(const Buffer x_there, device.allocate(x.size() * sizeof(float), "inputs"));
  MORACLE_ASSIGN(const Buffer y_there, device.allocate(y.size() * sizeof(float), "outputs"));
  MORACLE_ASSIGN(const Buffer workspace, device.allocate(packed.workspace_bytes(tokens, threads), "workspace"));
  MORACLE_ASSIGN(Stream stream, device.make_stream());
  stream.to_device(x_there.data(), x.data(), x_there.size());
  packed.run({.stream = stream, .workspace = {workspace.data(), workspace.size()}}, tokens,
             reinterpret_cast<const float*>(x_there.data()), reinterpret_cast<float*>(y_there.data()));
  stream.to_host(y.data(), y_there.data(), y_there.size());
  return stream.wait();
}

}  // namespace

std::vector<float> run_linear(const KernelCard& card, const CanonicalLinear& linear, const std::vector<float>& x,
                              ThreadPool& pool, bool batch_invariant) {
  const auto packed = find_implementation(card.id)->pack_linear(
      linear, {.pool = pool, .batch_invariant = batch_invariant, .device = device_for(card)});
  if (!packed.ok()) {
    ADD_FAILURE() << packed.error().message();
    return {};
  }
  const MatrixSpec& spec = linear.weight->spec();
  const std::int64_t tokens = std::ssize(x) / spec.cols;
  std::vector<float> y(static_cast<std::size_t>(tokens * spec.rows), std::nanf(""));
  const HostDevice host(probe_machine(), pool);
  // Foreign cards are run on the host.
  const std::shared_ptr<GpuDevice> gpu = card.kind == CardKind::own ? device_for(card) : nullptr;
  const Device& device = gpu != nullptr ? static_cast<const Device&>(*gpu) : host;
  const Result<> done = run_on(device, **packed, pool.threads(), tokens, x, y);
  EXPECT_TRUE(done.ok()) << done.error().message();
  return y;
}

}  // namespace moracle::test
