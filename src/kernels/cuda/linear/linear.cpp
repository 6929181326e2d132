#include "kernels/args/linear.h"
#include "base/checked.h"
#include "base/generic/count.h"
#include "base/memory.h"
#include "kernels/cuda/arithmetic.h"
#include "kernels/cuda/kernels.h"
#include "kernels/cuda/load.h"
#include "kernels/cuda/pack.h"
#include "kernels/device_ops.h"
#include "kernels/pack_memory.h"

namespace moracle::cuda {

namespace {

class Linear final : public PackedLinear {
 public:
  Linear(std::shared_ptr<GpuDevice> device, const KernelApi* kernels, const LinearArgs& args)
      : device_(std::move(device)), kernels_(kernels), args_(args) {}

  void hold(Buffer weights) {
    weights_ = std::move(weights);
    args_.pack.weights = reinterpret_cast<const std::uint8_t*>(weights_.data());
  }

  [[nodiscard]] std::size_t bytes() const override { return args_.pack.expert_bytes; }
  [[nodiscard]] std::size_t workspace_bytes(std::int64_t tokens, int) const override {
    BumpArena counting = BumpArena::counting();
    LinearArgs args = args_;
    lay_out_scratch(counting, tokens, args);
    return counting.used() + BumpArena::kAlignment;
  }

  void run(const RunContext& context, std::int64_t tokens, const ConstActivations& x,
           const Activations& y) const override {
    if (tokens == 0) return;
    if (x.type() != Element::f32 || y.type() != Element::f32) {
      context.stream.fail(wrong_type());
      return;
    }
    if (context.workspace.size() < workspace_bytes(tokens, 0)) {
      context.stream.fail(unreserved_batch(*device_, tokens));
      return;
    }
    LinearArgs args = args_;
    args.tokens = narrow<std::int32_t>(tokens);
    args.x = x.f32();
    args.y = y.f32();
    BumpArena arena(context.workspace);
    lay_out_scratch(arena, tokens, args);
    context.stream.launch("linear", kernels_->linear, args);
  }

 private:
  static void lay_out_scratch(BumpArena& arena, std::int64_t tokens, LinearArgs& args) {
    const InputKind input = args.pack.input;
    const std::int32_t padded = args.matrix.padded;
    args.x_codes = arena.take<std::uint16_t>(count(input_parts(input) * tokens * padded)).data();
    args.x_scales = arena.take<float>(count(tokens * input_groups(input, padded))).data();
  }

  std::shared_ptr<GpuDevice> device_;
  const KernelApi* kernels_;
  Buffer weights_;
  LinearArgs args_;
};

}  // namespace

Result<std::unique_ptr<PackedLinear>> pack_linear(const CanonicalLinear& linear, const PackOptions& options) {
  MORACLE_ASSIGN(const PackForm form, form_of(linear.scheme()));
  const MatrixSpec& spec = linear.weight->spec();
  LinearArgs args{};
  args.pack = {.weights = nullptr,
               .expert_bytes = 0,
               .code = form.code,
               .scale = form.scale,
               .input = form.input,
               .records = RecordKind::none};
  args.batch_invariant = options.batch_invariant ? 1 : 0;
  std::uint64_t end = 0;
  MORACLE_ASSIGN(args.matrix, lay_out(spec, form, {.bias = !linear.bias.empty(), .order = !spec.g_idx.empty()}, end));
  args.pack.expert_bytes = end;
  if (options.layout_only) return std::unique_ptr<PackedLinear>(std::make_unique<Linear>(nullptr, nullptr, args));
  MORACLE_ASSIGN(std::shared_ptr<GpuDevice> device, device_of(options.device));
  MORACLE_ASSIGN(const KernelApi* const kernels, kernel_api(*device));
  auto packed = std::make_unique<Linear>(device, kernels, args);
  const auto write = [&](std::int64_t, std::span<std::byte> block) {
    return pack_matrix(linear, form, args.matrix, block);
  };
  MORACLE_ASSIGN(Buffer weights, load_blocks(options, 1, end, write));
  packed->hold(std::move(weights));
  return std::unique_ptr<PackedLinear>(std::move(packed));
}

}  // namespace moracle::cuda
