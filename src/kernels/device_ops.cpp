#include "kernels/device_ops.h"

#include <string>

#include "kernels/kv_type.h"

namespace moracle {

namespace {

constexpr const char* kUseOwn = "use the object that was built with this program";

std::string version_text(std::uint32_t version, std::uint32_t bytes) {
  return "version " + std::to_string(version) + " of " + std::to_string(bytes) + " bytes";
}

class DeviceOps final : public Ops {
 public:
  DeviceOps(const Device& device, const KernelApi& kernels) : name_(device.name()), kernels_(kernels) {}

  [[nodiscard]] std::string_view name() const override { return name_; }
  [[nodiscard]] std::int64_t block_bytes(const AttentionShape& shape, KvType kv) const override {
    return 2 * shape.kv_width() * kKvBlock * bytes_of(kv);
  }
  [[nodiscard]] std::int64_t block_bytes(const LatentAttentionShape& shape, KvType kv) const override {
    return shape.latent_width() * kKvBlock * bytes_of(kv);
  }
  [[nodiscard]] std::size_t workspace(const RankArgs& /*args*/, int /*threads*/) const override { return 0; }
  [[nodiscard]] std::size_t workspace(const RouteArgs& /*args*/, int /*threads*/) const override { return 0; }
  [[nodiscard]] std::size_t workspace(const AttentionArgs& /*args*/, int /*threads*/) const override { return 0; }
  [[nodiscard]] std::size_t workspace(const LatentAttentionArgs& /*args*/, int /*threads*/) const override { return 0; }
  [[nodiscard]] std::size_t workspace(const DeltaRuleArgs& /*args*/, int /*threads*/) const override { return 0; }
  [[nodiscard]] std::size_t workspace(const SampleArgs& /*args*/, int /*threads*/) const override { return 0; }

#define MORACLE_OPERATION(name, Args) \
  void name(const RunContext& context, const Args& args) const override { launch(context, #name, kernels_.name, args); }
  MORACLE_OPERATIONS(MORACLE_OPERATION)
#undef MORACLE_OPERATION

 private:
  template <class Args>
  void launch(const RunContext& context, std::string_view operation,
              int (*kernel)(void*, void*, const Args*, std::byte*), const Args& args) const {
    if (kernel != nullptr) return context.stream.launch(operation, kernel, args, context.workspace.data());
    context.stream.fail({.code = "device.operation",
                         .where = name_,
                         .wanted = "a kernel for " + std::string(operation),
                         .found = "none in the device object"});
  }

  std::string name_;
  const KernelApi& kernels_;
};

}  // namespace

Result<const KernelApi*> kernel_api(const Device& device) {
  const auto* const kernels = static_cast<const KernelApi*>(device.table(kKernelApiName));
  if (kernels == nullptr) {
    return Error{.code = "device.library",
                 .where = device.name(),
                 .wanted = "a device object with a table of kernels",
                 .found = "none",
                 .advice = kUseOwn};
  }
  if (kernels->version != kKernelApiVersion || kernels->bytes != sizeof(KernelApi)) {
    return Error{.code = "device.version",
                 .where = device.name(),
                 .wanted = "kernels of " + version_text(kKernelApiVersion, sizeof(KernelApi)),
                 .found = version_text(kernels->version, kernels->bytes),
                 .advice = kUseOwn};
  }
  return kernels;
}

Result<std::unique_ptr<Ops>> device_ops(const Device& device) {
  MORACLE_ASSIGN(const KernelApi* const kernels, kernel_api(device));
  return std::unique_ptr<Ops>(std::make_unique<DeviceOps>(device, *kernels));
}

}  // namespace moracle
