#include "support/device_calls.h"

#include <gtest/gtest.h>

#include <algorithm>
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

Result<> run_on(const Device& device, std::span<const std::unique_ptr<PackedLinear>> packed, std::int64_t tokens,
                const std::vector<float>& x, std::vector<std::vector<float>>& ys) {
  MORACLE_ASSIGN(const Buffer x_there, device.allocate(x.size() * sizeof(float), "inputs"));
  std::size_t workspace_bytes = 0;
  std::vector<Buffer> ys_there;
  std::vector<LinearRun> runs;
  for (std::size_t i = 0; i < packed.size(); ++i) {
    MORACLE_ASSIGN(ys_there.emplace_back(), device.allocate(ys[i].size() * sizeof(float), "outputs"));
    runs.push_back({.linear = packed[i].get(), .y = reinterpret_cast<float*>(ys_there.back().data())});
    workspace_bytes = std::max(workspace_bytes, packed[i]->workspace_bytes(tokens, 0));
  }
  MORACLE_ASSIGN(const Buffer workspace, device.allocate(workspace_bytes, "workspace"));
  MORACLE_ASSIGN(Stream stream, device.make_stream());
  stream.to_device(x_there.data(), x.data(), x_there.size());
  packed.front()->run_fused({.stream = stream, .workspace = {workspace.data(), workspace.size()}}, runs, tokens,
                            reinterpret_cast<const float*>(x_there.data()));
  for (std::size_t i = 0; i < ys.size(); ++i) stream.to_host(ys[i].data(), ys_there[i].data(), ys_there[i].size());
  return stream.wait();
}

}  // namespace

std::vector<std::vector<float>> run_fused(std::span<const KernelCard* const> cards,
                                          std::span<const CanonicalLinear> linears, const std::vector<float>& x,
                                          ThreadPool& pool, bool batch_invariant) {
  std::vector<std::unique_ptr<PackedLinear>> packed;
  std::vector<std::vector<float>> ys;
  const std::int64_t tokens = std::ssize(x) / linears.front().weight->spec().cols;
  for (std::size_t i = 0; i < linears.size(); ++i) {
    auto one = find_implementation(cards[i]->id)
                   ->pack_linear(linears[i],
                                 {.pool = pool, .batch_invariant = batch_invariant, .device = device_for(*cards[i])});
    if (!one.ok()) {
      ADD_FAILURE() << one.error().message();
      return {};
    }
    packed.push_back(std::move(*one));
    ys.emplace_back(static_cast<std::size_t>(tokens * linears[i].weight->spec().rows), std::nanf(""));
  }
  const Result<> done = run_on(*device_for(*cards.front()), packed, tokens, x, ys);
  EXPECT_TRUE(done.ok()) << done.error().message();
  return ys;
}

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
  const std::shared_ptr<GpuDevice> gpu = card.kind == CardKind::native ? device_for(card) : nullptr;
  const Device& device = gpu != nullptr ? static_cast<const Device&>(*gpu) : host;
  const Result<> done = run_on(device, **packed, pool.threads(), tokens, x, y);
  EXPECT_TRUE(done.ok()) << done.error().message();
  return y;
}

}  // namespace moracle::test
