#include "support/device_modules.h"

#include <functional>
#include <utility>

#include "support/fake_device.h"

namespace moracle::test {

namespace {

// `body` is given a stream of the host.
template <class Body>
void enqueue(const RunContext& context, ThreadPool& pool, Body body) {
  const std::function<void()> work = [&pool, body = std::move(body)] {
    Stream host(pool);
    body(host);
  };
  context.stream.launch("host_work", FakeDevice::enqueue_work, FakeDevice::HostWork{.work = &work});
}

class DeviceOps final : public Ops {
 public:
  DeviceOps(const Ops& host, ThreadPool& pool) : host_(host), pool_(pool) {}

  [[nodiscard]] std::string_view name() const override { return host_.name(); }
  [[nodiscard]] std::int64_t block_bytes(const AttentionShape& shape, KvType kv) const override {
    return host_.block_bytes(shape, kv);
  }
  [[nodiscard]] std::int64_t block_bytes(const LatentAttentionShape& shape, KvType kv) const override {
    return host_.block_bytes(shape, kv);
  }
  [[nodiscard]] std::size_t workspace(const RankArgs& args, int) const override { return size(args); }
  [[nodiscard]] std::size_t workspace(const RouteArgs& args, int) const override { return size(args); }
  [[nodiscard]] std::size_t workspace(const AttentionArgs& args, int) const override { return size(args); }
  [[nodiscard]] std::size_t workspace(const LatentAttentionArgs& args, int) const override { return size(args); }
  [[nodiscard]] std::size_t workspace(const DeltaRuleArgs& args, int) const override { return size(args); }
  [[nodiscard]] std::size_t workspace(const SampleArgs& args, int) const override { return size(args); }
  [[nodiscard]] std::size_t workspace(const IndexArgs& args, int) const override { return size(args); }

#define MORACLE_OPERATION(name, Args)                                                           \
  void name(const RunContext& context, const Args& args) const override {                       \
    enqueue(context, pool_, [&host = host_, memory = context.workspace, args](Stream& stream) { \
      host.name({.stream = stream, .workspace = memory}, args);                                 \
    });                                                                                         \
  }
  MORACLE_OPERATIONS(MORACLE_OPERATION)
  MORACLE_HOST_OPERATIONS(MORACLE_OPERATION)
#undef MORACLE_OPERATION

 private:
  template <class Args>
  [[nodiscard]] std::size_t size(const Args& args) const {
    return host_.workspace(args, pool_.threads());
  }

  const Ops& host_;
  ThreadPool& pool_;
};

class DeviceLinear final : public PackedLinear {
 public:
  DeviceLinear(std::unique_ptr<PackedLinear> linear, ThreadPool& pool) : linear_(std::move(linear)), pool_(pool) {}

  [[nodiscard]] std::size_t bytes() const override { return linear_->bytes(); }
  [[nodiscard]] std::size_t workspace_bytes(std::int64_t tokens, int /*threads*/) const override {
    return linear_->workspace_bytes(tokens, pool_.threads());
  }
  void run(const RunContext& context, std::int64_t tokens, const ConstActivations& x,
           const Activations& y) const override {
    enqueue(context, pool_, [&linear = *linear_, memory = context.workspace, tokens, x, y](Stream& stream) {
      linear.run({.stream = stream, .workspace = memory}, tokens, x, y);
    });
  }

 private:
  std::unique_ptr<PackedLinear> linear_;
  ThreadPool& pool_;
};

class DeviceExperts final : public PackedExperts {
 public:
  DeviceExperts(std::unique_ptr<PackedExperts> experts, ThreadPool& pool) : experts_(std::move(experts)), pool_(pool) {}

  [[nodiscard]] std::size_t bytes() const override { return experts_->bytes(); }
  [[nodiscard]] std::size_t workspace_bytes(std::int64_t tokens, std::int64_t top_k, int /*threads*/) const override {
    return experts_->workspace_bytes(tokens, top_k, pool_.threads());
  }
  void run(const RunContext& context, const ExpertsInput& input, const Activations& out) const override {
    enqueue(context, pool_, [&experts = *experts_, memory = context.workspace, input, out](Stream& stream) {
      experts.run({.stream = stream, .workspace = memory}, input, out);
    });
  }

 private:
  std::unique_ptr<PackedExperts> experts_;
  ThreadPool& pool_;
};

}  // namespace

std::unique_ptr<Ops> ops_on_device(const Ops& host, ThreadPool& pool) {
  return std::make_unique<DeviceOps>(host, pool);
}

std::unique_ptr<PackedLinear> on_device(std::unique_ptr<PackedLinear> linear, ThreadPool& pool) {
  return std::make_unique<DeviceLinear>(std::move(linear), pool);
}

std::unique_ptr<PackedExperts> on_device(std::unique_ptr<PackedExperts> experts, ThreadPool& pool) {
  return std::make_unique<DeviceExperts>(std::move(experts), pool);
}

}  // namespace moracle::test
