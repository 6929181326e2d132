#include <algorithm>
#include <optional>

#include "base/checked.h"
#include "base/generic/count.h"
#include "base/memory.h"
#include "kernels/args/experts.h"
#include "kernels/cuda/arithmetic.h"
#include "kernels/cuda/decode/pack_records.h"
#include "kernels/cuda/decode/records.h"
#include "kernels/cuda/kernels.h"
#include "kernels/cuda/load.h"
#include "kernels/cuda/pack.h"
#include "kernels/device_ops.h"
#include "kernels/pack_memory.h"

namespace moracle::cuda {

namespace {

Result<GateArgs> gate_args(const ActivationSpec& spec) {
  GateArgs args{.fn = GateFn::silu, .alpha = spec.alpha, .beta = spec.beta, .limit = spec.limit};
  switch (spec.fn) {
    case ActivationFn::silu:
      return args;
    case ActivationFn::gelu_tanh:
      args.fn = GateFn::gelu_tanh;
      return args;
    case ActivationFn::swigluoai:
      args.fn = GateFn::swigluoai;
      return args;
    case ActivationFn::swiglustep:
      args.fn = GateFn::swiglustep;
      return args;
    default:
      return Error{.code = "activation.unsupported",
                   .wanted = "silu, gelu_tanh, swigluoai or swiglustep",
                   .found = std::string(to_string(spec.fn))};
  }
}

// Whether gate and up of every expert have the input scale of the first.
bool one_input_scale(const CanonicalExperts& experts) {
  const std::optional<float> first = experts.experts.front().gate.input_scale;
  return std::all_of(experts.experts.begin(), experts.experts.end(), [&](const CanonicalExperts::Expert& expert) {
    return expert.gate.input_scale == first && expert.up.input_scale == first;
  });
}

// Forms of the layer's input that gate and up see; see ExpertsArgs::planes.
std::int32_t planes_of(const CanonicalExperts& experts, const PackForm& form, bool order) {
  const bool stored = has_stored_scale(form.input);
  if (!stored && !order) return 0;
  const bool alike = std::all_of(experts.experts.begin(), experts.experts.end(), [&](const auto& expert) {
    return expert.gate.weight->spec().g_idx == expert.up.weight->spec().g_idx &&
           (!stored || expert.gate.input_scale == expert.up.input_scale);
  });
  return alike ? 1 : 2;
}

// How the weights of a layer lie, and what writes an expert.
struct Layout {
  PackForm form;
  RecordKind records;  // none: rows one after the other
  bool decodes;        // calls of few tokens take a pass of their own, whose sums are rounded otherwise

  // Persistent scratch of the decoding pass.
  [[nodiscard]] std::size_t kept_bytes(const ExpertsArgs& args) const {
    if (!decodes || records == RecordKind::none) return 0;
    return decode_scratch_bytes(decode_row_words(args.pack.input, args.gate.cols, args.gate.rows));
  }
};

class Experts final : public PackedExperts {
 public:
  Experts(std::shared_ptr<GpuDevice> device, const KernelApi* kernels, const ExpertsArgs& args, std::size_t kept_bytes,
          std::string_view kernel, std::shared_ptr<PersistentScratch> scratch = nullptr)
      : device_(std::move(device)),
        kernels_(kernels),
        args_(args),
        kept_bytes_(kept_bytes),
        scratch_(std::move(scratch)),
        kernel_(kernel) {}

  void hold(Buffer weights) {
    weights_ = std::move(weights);
    args_.pack.weights = reinterpret_cast<const std::uint8_t*>(weights_.data());
  }

  [[nodiscard]] std::size_t bytes() const override {
    return static_cast<std::size_t>(args_.experts) * args_.pack.expert_bytes;
  }
  [[nodiscard]] std::span<const std::byte> expert(std::int64_t index) const override {
    return {weights_.data() + static_cast<std::uint64_t>(index) * args_.pack.expert_bytes, args_.pack.expert_bytes};
  }
  [[nodiscard]] std::size_t kept_bytes() const override { return kept_bytes_; }
  [[nodiscard]] std::size_t workspace_bytes(std::int64_t tokens, std::int64_t top_k, int) const override {
    BumpArena counting = BumpArena::counting();
    ExpertsArgs args = args_;
    lay_out_scratch(counting, tokens, top_k, args);
    return counting.used() + BumpArena::kAlignment;
  }

  void run(const RunContext& context, const ExpertsInput& input, const Activations& out) const override {
    if (input.tokens == 0) return;
    if (input.x.type() != Element::f32 || out.type() != Element::f32) {
      context.stream.fail(wrong_type());
      return;
    }
    if (context.workspace.size() < workspace_bytes(input.tokens, input.top_k, 0)) {
      context.stream.fail(unreserved_batch(*device_, input.tokens));
      return;
    }
    ExpertsArgs args = args_;
    args.tokens = narrow<std::int32_t>(input.tokens);
    args.top_k = narrow<std::int32_t>(input.top_k);
    args.x = input.x.f32();
    args.ids = input.ids;
    args.weights = input.weights;
    args.out = out.f32();
    if (scratch_ != nullptr) {
      args.persistent_scratch = scratch_->data();
      args.row_words = decode_row_words_in(scratch_->size());
    }
    BumpArena arena(context.workspace);
    lay_out_scratch(arena, input.tokens, input.top_k, args);
    context.stream.launch(kernel_, kernels_->experts, args);
  }

 private:
  void lay_out_scratch(BumpArena& arena, std::int64_t tokens, std::int64_t top_k, ExpertsArgs& args) const {
    const std::int64_t pairs = tokens * top_k;
    args.offsets = arena.take<std::int32_t>(count(args.experts + 1)).data();
    args.pairs = arena.take<std::int32_t>(count(pairs)).data();
    args.inverse = arena.take<std::int32_t>(count(pairs)).data();
    if (args.pack.records != RecordKind::none) {
      const std::int64_t inputs = args.planes > 0 ? pairs : tokens;
      args.counts = arena.take<std::int32_t>(count(pair_shares(pairs) * args.experts)).data();
      args.tiles = arena.take<std::int32_t>(count(4 * (1 + most_row_tiles(pairs, args.experts)))).data();
      args.x_codes = arena.take<std::uint16_t>(count(inputs * args.gate.cols)).data();
      if (args.pack.input != InputKind::bf16) {
        const bool blocks = args.pack.input == InputKind::e4m3_group;
        args.x_scales = arena.take<float>(count(inputs * (blocks ? args.gate.cols / 128 : 1))).data();
        args.h_scales = arena.take<float>(count(pairs * (blocks ? args.down.cols / 128 : 1))).data();
        args.h = arena.take<float>(count(pairs * args.gate.rows)).data();
      }
      args.h_codes = arena.take<std::uint16_t>(count(pairs * args.gate.rows)).data();
      args.y = reinterpret_cast<float*>(arena.take<std::uint16_t>(count(pairs * args.down.rows)).data());
      return;
    }
    const int parts = input_parts(args.pack.input);
    const std::int64_t forms = std::max(args.planes, 1);
    const std::int64_t rows = args.planes == 0 ? tokens : pairs;
    const std::int64_t x_groups = input_groups(args.pack.input, args.gate.padded);
    const std::int64_t h_groups = input_groups(args.pack.input, args.down.padded);
    args.tiles = arena.take<std::int32_t>(count(2 * most_tiles(pairs, args.experts) + 1)).data();
    args.x_codes = arena.take<std::uint16_t>(count(forms * parts * rows * args.gate.padded)).data();
    args.x_scales = arena.take<float>(count(forms * rows * x_groups)).data();
    args.h = arena.take<float>(count(pairs * args.gate.rows)).data();
    args.h_codes = arena.take<std::uint16_t>(count(parts * pairs * args.down.padded)).data();
    args.h_scales = arena.take<float>(count(pairs * h_groups)).data();
    args.y = arena.take<float>(count(pairs * args.down.rows)).data();
  }

  std::shared_ptr<GpuDevice> device_;
  const KernelApi* kernels_;
  Buffer weights_;
  ExpertsArgs args_;
  std::size_t kept_bytes_;
  std::shared_ptr<PersistentScratch> scratch_;  // null: the kernel keeps nothing
  std::string_view kernel_;
};

std::string_view kernel_name(DeviceCode code) {
  switch (code) {
    case DeviceCode::int4:
      return "experts of int4 weights";
    case DeviceCode::int8:
      return "experts of int8 weights";
    case DeviceCode::e2m1:
      return "experts of E2M1 weights";
    case DeviceCode::e4m3:
      return "experts of E4M3 weights";
    case DeviceCode::bf16:
      return "experts of bf16 weights";
    case DeviceCode::f16:
      return "experts of f16 weights";
    case DeviceCode::f32:
      break;
  }
  return "experts of f32 weights";
}

Result<ExpertsArgs> lay_out_experts(const CanonicalExperts& experts, const Layout& layout) {
  const auto experts_count = std::ssize(experts.experts);
  const bool records = layout.records != RecordKind::none;
  const std::int64_t most = records ? kDecodeExperts : kMostExperts;
  if (experts_count < 1 || experts_count > most) {
    return Error{.code = "shape",
                 .where = experts.name,
                 .wanted = "1 to " + std::to_string(most) + " experts",
                 .found = std::to_string(experts_count)};
  }
  const auto any = [&](auto holds) {
    return std::any_of(experts.experts.begin(), experts.experts.end(), [&](const CanonicalExperts::Expert& expert) {
      return holds(expert.gate) || holds(expert.up) || holds(expert.down);
    });
  };
  const MatrixParts parts{
      .bias = any([](const CanonicalLinear& linear) { return !linear.bias.empty(); }),
      .order = any([](const CanonicalLinear& linear) { return !linear.weight->spec().g_idx.empty(); })};
  ExpertsArgs args{};
  args.pack = {.weights = nullptr,
               .expert_bytes = 0,
               .code = layout.form.code,
               .scale = layout.form.scale,
               .input = layout.form.input,
               .records = RecordKind::none};
  if (records) {
    MORACLE_TRY(lay_out_records(experts, layout.form, layout.records, parts, args));
  } else {
    const CanonicalExperts::Expert& first = experts.experts.front();
    std::uint64_t end = 0;
    MORACLE_ASSIGN(args.gate, lay_out(first.gate.weight->spec(), layout.form, parts, end));
    MORACLE_ASSIGN(args.up, lay_out(first.up.weight->spec(), layout.form, parts, end));
    MORACLE_ASSIGN(args.down, lay_out(first.down.weight->spec(), layout.form, parts, end));
    args.pack.expert_bytes = end;
  }
  args.experts = narrow<std::int32_t>(experts_count);
  args.planes = planes_of(experts, layout.form, parts.order);
  // Kernels that stream quantize a token once where its experts agree on the scale.
  if (records && one_input_scale(experts)) args.planes = 0;
  return args;
}

Result<> write_expert(const CanonicalExperts::Expert& expert, const Layout& layout, const ExpertsArgs& args,
                      std::span<std::byte> block) {
  if (layout.records != RecordKind::none) return pack_records(expert, args, block);
  MORACLE_TRY(pack_matrix(expert.gate, layout.form, args.gate, block));
  MORACLE_TRY(pack_matrix(expert.up, layout.form, args.up, block));
  return pack_matrix(expert.down, layout.form, args.down, block);
}

Result<std::unique_ptr<PackedExperts>> pack(const CanonicalExperts& experts, const PackOptions& options,
                                            const Layout& layout) {
  MORACLE_ASSIGN(ExpertsArgs args, lay_out_experts(experts, layout));
  MORACLE_ASSIGN(args.activation, gate_args(options.activation));
  const std::string_view kernel = kernel_name(layout.form.code);
  const std::size_t kept = layout.kept_bytes(args);
  if (options.layout_only)
    return std::unique_ptr<PackedExperts>(std::make_unique<Experts>(nullptr, nullptr, args, kept, kernel));
  MORACLE_ASSIGN(std::shared_ptr<GpuDevice> device, device_of(options.device));
  MORACLE_ASSIGN(const KernelApi* const kernels, kernel_api(*device));
  std::shared_ptr<PersistentScratch> scratch;
  if (kept > 0) {
    scratch = options.scratch != nullptr ? options.scratch : std::make_shared<PersistentScratch>(device);
    MORACLE_TRY(scratch->reserve(kept));
  }
  auto packed = std::make_unique<Experts>(device, kernels, args, kept, kernel, std::move(scratch));
  const auto write = [&](std::int64_t e, std::span<std::byte> block) -> Result<> {
    Result<> written = write_expert(experts.experts[count(e)], layout, args, block);
    if (written.ok() || !written.error().where.empty()) return written;
    Error error = std::move(written).error();
    error.where = experts.name + ", expert " + std::to_string(e);
    return error;
  };
  MORACLE_ASSIGN(Buffer weights, load_blocks(options, args.experts, args.pack.expert_bytes, write));
  packed->hold(std::move(weights));
  return std::unique_ptr<PackedExperts>(std::move(packed));
}

}  // namespace

Result<std::unique_ptr<PackedExperts>> pack_experts(const CanonicalExperts& experts, const PackOptions& options) {
  MORACLE_ASSIGN(const PackForm form, form_of(experts.scheme));
  return pack(experts, options, {form, RecordKind::none, false});
}

Result<std::unique_ptr<PackedExperts>> pack_streamed_experts(const CanonicalExperts& experts,
                                                             const PackOptions& options) {
  MORACLE_ASSIGN(const PackForm form, form_of(experts.scheme));
  // Gate and up share a tile, so that they see the same inputs: where each has an input scale of its own, rows lie one
  // after the other.
  if (planes_of(experts, form, false) == 2) return pack(experts, options, {form, RecordKind::none, false});
  MORACLE_ASSIGN(const RecordKind kind, record_kind(experts, form));
  const bool decodes = !options.batch_invariant;
  auto packed = pack(experts, options, {form, kind, decodes});
  if (kind == RecordKind::mxfp4_row && !packed.ok() && packed.error().code == kFarScales)
    return pack(experts, options, {form, RecordKind::mxfp4, decodes});
  return packed;
}

}  // namespace moracle::cuda
