#include "kernels/args/linear.h"
#include "base/checked.h"
#include "base/generic/count.h"
#include "base/memory.h"
#include "kernels/cuda/common/arithmetic.h"
#include "kernels/cuda/host/kernels.h"
#include "kernels/cuda/host/load.h"
#include "kernels/cuda/host/pack.h"
#include "kernels/device_ops.h"
#include "kernels/pack_memory.h"

namespace moracle::cuda {

namespace {

class Linear final : public PackedLinear {
 public:
  Linear(std::shared_ptr<GpuDevice> device, const KernelApi* kernels, const PackArgs& pack, const MatrixArgs& matrix,
         bool batch_invariant)
      : device_(std::move(device)),
        kernels_(kernels),
        pack_(pack),
        matrix_(matrix),
        batch_invariant_(batch_invariant) {}

  void hold(Buffer weights) {
    weights_ = std::move(weights);
    pack_.weights = reinterpret_cast<const std::uint8_t*>(weights_.data());
  }

  [[nodiscard]] std::size_t bytes() const override { return pack_.expert_bytes; }
  [[nodiscard]] std::size_t workspace_bytes(std::int64_t tokens, int) const override {
    BumpArena counting = BumpArena::counting();
    LinearArgs args{};
    lay_out_scratch(counting, tokens, args);
    return counting.used() + BumpArena::kAlignment;
  }

  void run(const RunContext& context, std::int64_t tokens, const ConstActivations& x,
           const Activations& y) const override {
    const LinearRun alone{.linear = this, .y = y};
    run_fused(context, {&alone, 1}, tokens, x);
  }

  // Those alike with this one in one call, the others each in its own.
  void run_fused(const RunContext& context, std::span<const LinearRun> linears, std::int64_t tokens,
                 const ConstActivations& x) const override {
    if (tokens == 0) return;
    if (context.workspace.size() < workspace_bytes(tokens, 0)) {
      context.stream.fail(unreserved_batch(*device_, tokens));
      return;
    }
    LinearArgs args{};
    args.tokens = narrow<std::int32_t>(tokens);
    args.batch_invariant = batch_invariant_ ? 1 : 0;
    args.x = x.f32();
    for (const LinearRun& of : linears) {
      if (x.type() != Element::f32 || of.y.type() != Element::f32) {
        context.stream.fail(wrong_type());
        return;
      }
      const auto* const linear = dynamic_cast<const Linear*>(of.linear);
      if (linear != nullptr && args.count < kMostFused && is_like(*linear)) {
        args.parts[args.count++] = {.pack = linear->pack_, .matrix = linear->matrix_, .y = of.y.f32()};
      } else {
        of.linear->run(context, tokens, x, of.y);
      }
    }
    BumpArena arena(context.workspace);
    lay_out_scratch(arena, tokens, args);
    context.stream.launch("linear", kernels_->linear, args);
  }

 private:
  [[nodiscard]] bool is_like(const Linear& other) const {
    return other.device_ == device_ && other.pack_.code == pack_.code && other.pack_.input == pack_.input &&
           other.matrix_.cols == matrix_.cols && other.batch_invariant_ == batch_invariant_;
  }

  void lay_out_scratch(BumpArena& arena, std::int64_t tokens, LinearArgs& args) const {
    const InputKind input = pack_.input;
    const std::int32_t padded = matrix_.padded;
    args.x_codes = arena.take<std::uint16_t>(count(input_parts(input) * tokens * padded)).data();
    args.x_scales = arena.take<float>(count(tokens * input_groups(input, padded))).data();
  }

  std::shared_ptr<GpuDevice> device_;
  const KernelApi* kernels_;
  Buffer weights_;
  PackArgs pack_;
  MatrixArgs matrix_;
  bool batch_invariant_;
};

}  // namespace

Result<std::unique_ptr<PackedLinear>> pack_linear(const CanonicalLinear& linear, const PackOptions& options) {
  MORACLE_ASSIGN(const PackForm form, form_of(linear.scheme()));
  const MatrixSpec& spec = linear.weight->spec();
  PackArgs pack{.weights = nullptr,
                .expert_bytes = 0,
                .code = form.code,
                .scale = form.scale,
                .input = form.input,
                .records = RecordKind::none};
  MORACLE_ASSIGN(const MatrixArgs matrix,
                 lay_out(spec, form, {.bias = !linear.bias.empty(), .order = !spec.g_idx.empty()}, pack.expert_bytes));
  const bool one_order = options.batch_invariant;
  if (options.layout_only) {
    return std::unique_ptr<PackedLinear>(std::make_unique<Linear>(nullptr, nullptr, pack, matrix, one_order));
  }
  MORACLE_ASSIGN(std::shared_ptr<GpuDevice> device, device_of(options.device));
  MORACLE_ASSIGN(const KernelApi* const kernels, kernel_api(*device));
  auto packed = std::make_unique<Linear>(device, kernels, pack, matrix, one_order);
  const auto write = [&](std::int64_t, std::span<std::byte> block) { return pack_matrix(linear, form, matrix, block); };
  MORACLE_ASSIGN(Buffer weights, load_blocks(options, 1, pack.expert_bytes, write));
  packed->hold(std::move(weights));
  return std::unique_ptr<PackedLinear>(std::move(packed));
}

}  // namespace moracle::cuda
