#include <algorithm>
#include <optional>

#include "base/checked.h"
#include "base/generic/count.h"
#include "base/memory.h"
#include "kernels/args/experts.h"
#include "kernels/cuda/common/arithmetic.h"
#include "kernels/cuda/common/tile_layout.h"
#include "kernels/cuda/host/kernels.h"
#include "kernels/cuda/host/load.h"
#include "kernels/cuda/host/pack.h"
#include "kernels/cuda/host/pack_tiles.h"
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

// Variants of the layer's input that gate and up see; see RoutedExperts::input_variants.
std::int32_t input_variants_of(const CanonicalExperts& experts, const PackForm& form, bool order) {
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
};

// Persistent scratch of the pass for few tokens.
std::size_t kept_bytes(const RoutedExperts& routed, const Layout& layout) {
  if (!layout.decodes || layout.records == RecordKind::none) return 0;
  return decode_scratch_bytes(decode_row_words(routed.pack.input, routed.gate.cols, routed.gate.rows));
}

void lay_out_pairs(BumpArena& arena, RoutedExperts& routed, std::int64_t pairs) {
  routed.offsets = arena.take<std::int32_t>(count(routed.experts + 1)).data();
  routed.pairs = arena.take<std::int32_t>(count(pairs)).data();
  routed.inverse = arena.take<std::int32_t>(count(pairs)).data();
}

// Of a call of routed.tokens and top_k.
void lay_out_scratch(BumpArena& arena, ExpertsArgs& args) {
  RoutedExperts& routed = args.routed;
  const std::int64_t pairs = std::int64_t{routed.tokens} * routed.top_k;
  lay_out_pairs(arena, routed, pairs);
  const int parts = input_parts(routed.pack.input);
  const std::int64_t variants = std::max(routed.input_variants, 1);
  const std::int64_t rows = routed.input_variants == 0 ? routed.tokens : pairs;
  const std::int64_t x_groups = input_groups(routed.pack.input, routed.gate.padded);
  const std::int64_t h_groups = input_groups(routed.pack.input, routed.down.padded);
  args.tiles = arena.take<std::int32_t>(count(2 * most_tiles(pairs, routed.experts, kFewTileRows) + 1)).data();
  args.x_codes = arena.take<std::uint16_t>(count(variants * parts * rows * routed.gate.padded)).data();
  args.x_scales = arena.take<float>(count(variants * rows * x_groups)).data();
  args.h = arena.take<float>(count(pairs * routed.gate.rows)).data();
  args.h_codes = arena.take<std::uint16_t>(count(parts * pairs * routed.down.padded)).data();
  args.h_scales = arena.take<float>(count(pairs * h_groups)).data();
  args.y = arena.take<float>(count(pairs * routed.down.rows)).data();
}

void lay_out_scratch(BumpArena& arena, StreamedExpertsArgs& args) {
  RoutedExperts& routed = args.routed;
  const std::int64_t pairs = std::int64_t{routed.tokens} * routed.top_k;
  lay_out_pairs(arena, routed, pairs);
  const std::int64_t inputs = routed.input_variants > 0 ? pairs : routed.tokens;
  args.counts = arena.take<std::int32_t>(count(pair_shares(pairs) * routed.experts)).data();
  args.tiles = arena.take<std::int32_t>(count(4 * (1 + most_row_tiles(pairs, routed.experts)))).data();
  args.x_codes = arena.take<std::uint16_t>(count(inputs * routed.gate.cols)).data();
  if (routed.pack.input != InputKind::bf16) {
    const bool blocks = routed.pack.input == InputKind::e4m3_group;
    args.x_scales = arena.take<float>(count(inputs * (blocks ? routed.gate.cols / 128 : 1))).data();
    args.h_scales = arena.take<float>(count(pairs * (blocks ? routed.down.cols / 128 : 1))).data();
    args.h = arena.take<float>(count(pairs * routed.gate.rows)).data();
  }
  args.h_codes = arena.take<std::uint16_t>(count(pairs * routed.gate.rows)).data();
  args.y = arena.take<std::uint16_t>(count(pairs * routed.down.rows)).data();
}

PackEntry<ExpertsArgs> entry_of(const KernelApi& kernels, const ExpertsArgs& /*args*/) {
  return kernels.experts;
}
PackEntry<StreamedExpertsArgs> entry_of(const KernelApi& kernels, const StreamedExpertsArgs& /*args*/) {
  return kernels.streamed_experts;
}

void take_scratch(ExpertsArgs& /*args*/, const PersistentScratch& /*scratch*/) {}
void take_scratch(StreamedExpertsArgs& args, const PersistentScratch& scratch) {
  args.persistent_scratch = scratch.data();
  args.row_words = decode_row_words_in(scratch.size());
}

// A layer's pack, whose calls take arguments of this type.
template <class Args>
class Experts final : public PackedExperts {
 public:
  // Without a device and kernels it tells its sizes and must not run. `scratch`: null, or of kept_bytes.
  Experts(const PackOptions& options, const KernelApi* kernels, const RoutedExperts& routed, std::size_t kept_bytes,
          std::string_view kernel, std::shared_ptr<PersistentScratch> scratch)
      : device_(options.device),
        kernels_(kernels),
        routed_(routed),
        kept_bytes_(kept_bytes),
        scratch_(std::move(scratch)),
        kernel_(kernel) {}

  void hold(Buffer weights) {
    weights_ = std::move(weights);
    routed_.pack.weights = reinterpret_cast<const std::uint8_t*>(weights_.data());
  }

  [[nodiscard]] std::size_t bytes() const override {
    return static_cast<std::size_t>(routed_.experts) * routed_.pack.expert_bytes;
  }
  [[nodiscard]] std::span<const std::byte> expert(std::int64_t index) const override {
    return {weights_.data() + static_cast<std::uint64_t>(index) * routed_.pack.expert_bytes, routed_.pack.expert_bytes};
  }
  [[nodiscard]] std::size_t kept_bytes() const override { return kept_bytes_; }
  [[nodiscard]] std::size_t workspace_bytes(std::int64_t tokens, std::int64_t top_k, int) const override {
    BumpArena counting = BumpArena::counting();
    Args args = call(tokens, top_k);
    lay_out_scratch(counting, args);
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
    Args args = call(input.tokens, input.top_k);
    args.routed.x = input.x.f32();
    args.routed.ids = input.ids;
    args.routed.weights = input.weights;
    args.routed.out = out.f32();
    if (scratch_ != nullptr) take_scratch(args, *scratch_);
    BumpArena arena(context.workspace);
    lay_out_scratch(arena, args);
    context.stream.launch(kernel_, entry_of(*kernels_, args), args);
  }

 private:
  [[nodiscard]] Args call(std::int64_t tokens, std::int64_t top_k) const {
    Args args{};
    args.routed = routed_;
    args.routed.tokens = narrow<std::int32_t>(tokens);
    args.routed.top_k = narrow<std::int32_t>(top_k);
    return args;
  }

  std::shared_ptr<GpuDevice> device_;
  const KernelApi* kernels_;
  Buffer weights_;
  RoutedExperts routed_;
  std::size_t kept_bytes_;
  std::shared_ptr<PersistentScratch> scratch_;
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

Result<RoutedExperts> lay_out_experts(const CanonicalExperts& experts, const Layout& layout) {
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
  RoutedExperts routed{};
  routed.pack = {.weights = nullptr,
                 .expert_bytes = 0,
                 .code = layout.form.code,
                 .scale = layout.form.scale,
                 .input = layout.form.input,
                 .records = RecordKind::none};
  if (records) {
    MORACLE_TRY(lay_out_records(experts, layout.form, layout.records, parts, routed));
  } else {
    const CanonicalExperts::Expert& first = experts.experts.front();
    std::uint64_t end = 0;
    MORACLE_ASSIGN(routed.gate, lay_out(first.gate.weight->spec(), layout.form, parts, end));
    MORACLE_ASSIGN(routed.up, lay_out(first.up.weight->spec(), layout.form, parts, end));
    MORACLE_ASSIGN(routed.down, lay_out(first.down.weight->spec(), layout.form, parts, end));
    routed.pack.expert_bytes = end;
  }
  routed.experts = narrow<std::int32_t>(experts_count);
  routed.input_variants = input_variants_of(experts, layout.form, parts.order);
  // Kernels that stream quantize a token once where its experts agree on the scale.
  if (records && one_input_scale(experts)) routed.input_variants = 0;
  return routed;
}

Result<> write_expert(const CanonicalExperts::Expert& expert, const Layout& layout, const RoutedExperts& routed,
                      std::span<std::byte> block) {
  if (layout.records != RecordKind::none) return pack_records(expert, routed, block);
  MORACLE_TRY(pack_matrix(expert.gate, layout.form, routed.gate, block));
  MORACLE_TRY(pack_matrix(expert.up, layout.form, routed.up, block));
  return pack_matrix(expert.down, layout.form, routed.down, block);
}

template <class Args>
Result<std::unique_ptr<PackedExperts>> pack_as(const CanonicalExperts& experts, const PackOptions& options,
                                               const Layout& layout, const RoutedExperts& routed) {
  const std::string_view kernel = kernel_name(layout.form.code);
  const std::size_t kept = kept_bytes(routed, layout);
  if (options.layout_only) {
    return std::unique_ptr<PackedExperts>(
        std::make_unique<Experts<Args>>(options, nullptr, routed, kept, kernel, nullptr));
  }
  MORACLE_ASSIGN(const std::shared_ptr<GpuDevice> device, device_of(options.device));
  MORACLE_ASSIGN(const KernelApi* const kernels, kernel_api(*device));
  std::shared_ptr<PersistentScratch> scratch;
  if (kept > 0) {
    scratch = options.scratch != nullptr ? options.scratch : std::make_shared<PersistentScratch>(device);
    MORACLE_TRY(scratch->reserve(kept));
  }
  auto packed = std::make_unique<Experts<Args>>(options, kernels, routed, kept, kernel, std::move(scratch));
  const auto write = [&](std::int64_t e, std::span<std::byte> block) -> Result<> {
    Result<> written = write_expert(experts.experts[count(e)], layout, routed, block);
    if (written.ok() || !written.error().where.empty()) return written;
    Error error = std::move(written).error();
    error.where = experts.name + ", expert " + std::to_string(e);
    return error;
  };
  MORACLE_ASSIGN(Buffer weights, load_blocks(options, routed.experts, routed.pack.expert_bytes, write));
  packed->hold(std::move(weights));
  return std::unique_ptr<PackedExperts>(std::move(packed));
}

Result<std::unique_ptr<PackedExperts>> pack(const CanonicalExperts& experts, const PackOptions& options,
                                            const Layout& layout) {
  MORACLE_ASSIGN(RoutedExperts routed, lay_out_experts(experts, layout));
  MORACLE_ASSIGN(routed.activation, gate_args(options.activation));
  routed.batch_invariant = options.batch_invariant ? 1 : 0;
  if (layout.records == RecordKind::none) return pack_as<ExpertsArgs>(experts, options, layout, routed);
  return pack_as<StreamedExpertsArgs>(experts, options, layout, routed);
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
  if (input_variants_of(experts, form, false) == 2) return pack(experts, options, {form, RecordKind::none, false});
  MORACLE_ASSIGN(const RecordKind kind, record_kind(experts, form));
  const bool decodes = !options.batch_invariant;
  auto packed = pack(experts, options, {form, kind, decodes});
  if (kind == RecordKind::mxfp4_row && !packed.ok() && packed.error().code == kFarScales)
    return pack(experts, options, {form, RecordKind::mxfp4, decodes});
  return packed;
}

}  // namespace moracle::cuda
