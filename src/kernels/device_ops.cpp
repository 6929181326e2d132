#include "kernels/device_ops.h"

#include <initializer_list>
#include <optional>
#include <string>

#include "kernels/cuda/common/layout.h"
#include "kernels/kv_type.h"

namespace moracle {

namespace {

constexpr const char* kUseOwn = "use the object that was built with this program";

std::string version_text(std::uint32_t version, std::uint32_t bytes) {
  return "version " + std::to_string(version) + " of " + std::to_string(bytes) + " bytes";
}

// Bytes of the workspace that a kernel takes.
template <class Args>
constexpr std::size_t bytes_taken(const Args& /*args*/) {
  return 0;
}
constexpr std::size_t bytes_taken(const LatentAttentionArgs& args) {
  return cuda::LatentWork::lay_out(args).bytes;
}
constexpr std::size_t bytes_taken(const DeltaRuleArgs& args) {
  return cuda::DeltaWork::lay_out(args).bytes;
}
constexpr std::size_t bytes_taken(const SampleArgs& args) {
  return cuda::SampleWork::lay_out(args).bytes;
}

// What no kernel of the device computes.
struct Refusal {
  std::string wanted;
  std::string found;
};

std::optional<Refusal> refused_pages(KvType kv) {
  if (kv == KvType::bf16) return std::nullopt;
  return Refusal{"keys and values in bf16", std::string(to_string(kv))};
}
std::optional<Refusal> refused_size(std::string_view what, std::int64_t size, std::int64_t multiple,
                                    std::int64_t most) {
  if (size > 0 && size % multiple == 0 && size <= most) return std::nullopt;
  std::string wanted = std::string(what) + " of up to " + std::to_string(most);
  if (multiple > 1) wanted += " in multiples of " + std::to_string(multiple);
  return Refusal{wanted, std::to_string(size)};
}
std::optional<Refusal> first_of(std::initializer_list<std::optional<Refusal>> refusals) {
  for (const std::optional<Refusal>& refusal : refusals) {
    if (refusal) return refusal;
  }
  return std::nullopt;
}

Refusal no_kernel(std::string_view operation) {
  return {"a kernel for " + std::string(operation), "none in the device object"};
}

template <class Args>
std::optional<Refusal> refusal_of(const Args& /*args*/) {
  return std::nullopt;
}
std::optional<Refusal> refusal_of(const RouteArgs& args) {
  if (args.shape.zero_experts != 0) return Refusal{"experts with weights", "zero experts, which give what they read"};
  if (args.shape.biased_softmax != 0) return Refusal{"a bias on logits or sigmoids", "on probabilities"};
  if (args.shape.sum_floor != 0.0F) return Refusal{"weights divided by their sum", "by a larger number"};
  if (args.shape.scaled_experts != 0) return Refusal{"weights of routers alone", "scaled by expert"};
  if (args.shape.weight == RouteWeight::sparse_mixer) return Refusal{"weights of one choice", "a sparse mixer's"};
  return refused_size("experts", args.shape.experts, 1, kMostRouted);
}
// Forms of attention that no kernel of a GPU has yet.
std::optional<Refusal> refused_forms(const AttentionShape& shape) {
  constexpr const char* kWanted =
      "attention with pairs half the rotated part apart, norms before the rotation, sigmoid "
      "gates by heads or in q, and plain scores, values and windows";
  const std::initializer_list<std::pair<bool, const char*>> forms{
      {shape.wide_gate, "gates of their own array"},
      {shape.softplus_gates, "softplus gates"},
      {shape.chunked, "windows side by side"},
      {shape.pairwise, "pairs side by side"},
      {shape.norm_behind_rope, "norms behind the rotation"},
      {shape.scale != 0.0F, "a scale of scores"},
      {shape.value_dim != 0, "values of another size than keys"},
      {shape.value_scale != 1.0F, "a scale of values"},
      {shape.value_eps != 0.0F || shape.qk_eps != 0.0F, "norms without weights"},
      {shape.position_scale.beta != 0.0F, "queries scaled by position"}};
  for (const auto& [asked, form] : forms) {
    if (asked) return Refusal{kWanted, form};
  }
  return std::nullopt;
}
std::optional<Refusal> refusal_of(const AttentionArgs& args) {
  const AttentionShape& shape = args.shape;
  return first_of({refused_pages(args.kv), refused_forms(shape),
                   refused_size("a head size", shape.head_dim, 16, cuda::kMostHeadDim),
                   refused_size("query heads of a key head", shape.heads / shape.kv_heads, 1, cuda::kMostGroup)});
}
std::optional<Refusal> refusal_of(const LatentAttentionArgs& args) {
  const LatentAttentionShape& shape = args.shape;
  if (shape.position_scale.beta != 0.0F) return Refusal{"queries of one scale", "queries scaled by position"};
  if (shape.top_k != 0) return Refusal{"latent attention to all positions", "an indexer's choice"};
  if (!shape.rotated) return Refusal{"latent attention that turns by position", "one that does not"};
  if (shape.head_gate) return Refusal{"latent attention without gates", "gates by heads"};
  return first_of({refused_pages(args.kv), refused_size("a latent", shape.kv_lora_rank, 16, cuda::kMostRank),
                   refused_size("a latent with its rotated key", shape.latent_width(), 2, cuda::kMostLatentRow)});
}
std::optional<Refusal> refusal_of(const DeltaRuleArgs& args) {
  const DeltaNetShape& shape = args.shape;
  if (shape.decay_by_channel) return Refusal{"decays by head", "by channel"};
  if (shape.least_decay != 0.0F) return Refusal{"decays without a bound", "with one"};
  if (shape.apart) return Refusal{"q, k and v of one convolution", "one each"};
  if (shape.sigmoid_gate) return Refusal{"outputs gated by silu", "by sigmoid"};
  return refused_size("a key head", shape.key_dim, 1, cuda::kMostKeyDim);
}

class DeviceOps final : public Ops {
 public:
  DeviceOps(const Device& device, const KernelApi& kernels)
      : name_(device.name()), kernels_(kernels), clusters_(device.machine().capability == 90) {}

  [[nodiscard]] std::string_view name() const override { return name_; }
  [[nodiscard]] std::int64_t block_bytes(const AttentionShape& shape, KvType /*kv*/) const override {
    return cuda::share_bytes(shape);
  }
  [[nodiscard]] std::int64_t block_bytes(const LatentAttentionShape& shape, KvType /*kv*/) const override {
    return cuda::share_bytes(shape);
  }
  [[nodiscard]] std::size_t workspace(const RankArgs& args, int) const override { return bytes_taken(args); }
  [[nodiscard]] std::size_t workspace(const RouteArgs& args, int) const override { return bytes_taken(args); }
  [[nodiscard]] std::size_t workspace(const AttentionArgs& args, int) const override { return bytes_of(args); }
  [[nodiscard]] std::size_t workspace(const LatentAttentionArgs& args, int) const override { return bytes_taken(args); }
  [[nodiscard]] std::size_t workspace(const DeltaRuleArgs& args, int) const override { return bytes_taken(args); }
  [[nodiscard]] std::size_t workspace(const SampleArgs& args, int) const override { return bytes_taken(args); }
  [[nodiscard]] std::size_t workspace(const IndexArgs& /*args*/, int) const override { return 0; }

  [[nodiscard]] Result<> check(const RouteArgs& args) const override { return result("route", kernels_.route, args); }
  [[nodiscard]] Result<> check(const AttentionArgs& args) const override {
    return result("attention", kernels_.attention, args);
  }
  [[nodiscard]] Result<> check(const LatentAttentionArgs& args) const override {
    return result("latent_attention", kernels_.latent_attention, args);
  }
  [[nodiscard]] Result<> check(const DeltaRuleArgs& args) const override {
    return result("delta_rule", kernels_.delta_rule, args);
  }

#define MORACLE_OPERATION(name, Args) \
  void name(const RunContext& context, const Args& args) const override { launch(context, #name, kernels_.name, args); }
  MORACLE_OPERATIONS(MORACLE_OPERATION)
#undef MORACLE_OPERATION

  [[nodiscard]] Result<> check_host_operation(std::string_view name) const override { return error(no_kernel(name)); }
#define MORACLE_HOST_OPERATION(name, Args)                                    \
  void name(const RunContext& context, const Args& /*args*/) const override { \
    context.stream.fail(error(no_kernel(#name)));                             \
  }
  MORACLE_HOST_OPERATIONS(MORACLE_HOST_OPERATION)
#undef MORACLE_HOST_OPERATION

 private:
  template <class Args>
  [[nodiscard]] std::size_t bytes_of(const Args& args) const {
    return bytes_taken(args);
  }
  // Blocks of a cluster pass on what they sum.
  [[nodiscard]] std::size_t bytes_of(const AttentionArgs& args) const {
    return clusters_ ? 0 : cuda::AttentionWork::lay_out(args).bytes;
  }

  template <class Args>
  void launch(const RunContext& context, std::string_view operation, KernelEntry<Args> kernel, const Args& args) const {
    if (const auto refusal = refusal_by(operation, kernel, args)) return context.stream.fail(error(*refusal));
    if (const std::size_t bytes = bytes_of(args); context.workspace.size() < bytes) {
      return context.stream.fail(
          error({"a workspace of " + std::to_string(bytes) + " bytes", std::to_string(context.workspace.size())}));
    }
    context.stream.launch(operation, kernel, args, context.workspace.data());
  }

  template <class Args>
  static std::optional<Refusal> refusal_by(std::string_view operation, KernelEntry<Args> kernel, const Args& args) {
    if (kernel == nullptr) return no_kernel(operation);
    return refusal_of(args);
  }
  template <class Args>
  [[nodiscard]] Result<> result(std::string_view operation, KernelEntry<Args> kernel, const Args& args) const {
    if (const auto refusal = refusal_by(operation, kernel, args)) return error(*refusal);
    return Ok{};
  }
  [[nodiscard]] Error error(const Refusal& refusal) const {
    return {.code = "device.operation", .where = name_, .wanted = refusal.wanted, .found = refusal.found};
  }

  std::string name_;
  const KernelApi& kernels_;
  bool clusters_;  // the kernels that need them run here
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
