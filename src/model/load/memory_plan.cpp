#include "model/load/memory_plan.h"

#include <algorithm>
#include <array>
#include <map>

#include "base/checked.h"
#include "base/generic/bisect.h"
#include "base/generic/count.h"
#include "base/generic/function_ref.h"
#include "kernels/device_ops.h"
#include "model/forward/transformer.h"
#include "model/load/build.h"
#include "model/load/parallel_cut.h"
#include "scheme/slice.h"

namespace moracle {

namespace {

constexpr std::array<int, 18> kDegrees{1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 32, 64};

// A matrix of which only the shape is known.
class ShapeOnly final : public MatrixSource {
 public:
  explicit ShapeOnly(MatrixSpec spec) : MatrixSource(std::move(spec)) {}
  [[nodiscard]] Result<> read(std::int64_t, std::int64_t, MatrixPanel&) const override {
    return Error{
        .code = "plan.shape_only", .where = spec_.name, .wanted = "a matrix with weights", .found = "its shape"};
  }
};

// A weight of zeros, for layouts that tell their size only of what they have packed.
class BlankMatrix final : public MatrixSource {
 public:
  explicit BlankMatrix(MatrixSpec spec) : MatrixSource(std::move(spec)) {}
  [[nodiscard]] Result<> read(std::int64_t begin, std::int64_t end, MatrixPanel& out) const override {
    out.rows = end - begin;
    const bool quantized = spec_.key.quantized();
    const std::size_t elements = count(out.rows * spec_.cols);
    const std::size_t scales = quantized ? count(out.rows * spec_.groups) : 0;
    out.codes.assign(quantized ? elements : 0, 0);
    out.values.assign(quantized ? 0 : elements, 0.0F);
    out.scales.assign(scales, 1.0F);
    out.zeros.assign(spec_.key.symmetric ? 0 : scales, 0);
    return Ok{};
  }
};

// Bytes of a layer in a layout of which every expert takes as much: one is packed.
Result<std::size_t> external_bytes(const KernelImplementation& kernel, const CanonicalExperts& layer,
                                   const PackOptions& options) {
  CanonicalExperts one = layer;
  one.experts.resize(1);
  for (CanonicalLinear* linear : matrices_of(one.experts[0]))
    linear->weight = std::make_shared<const BlankMatrix>(linear->weight->spec());
  MORACLE_ASSIGN(const std::unique_ptr<PackedExperts> packed, kernel.pack_experts(one, options));
  return layer.experts.size() * packed->bytes();
}

// Bytes of codes, scales and zero points at the width in which they are published.
std::size_t published_bytes(const CanonicalLinear& linear) {
  const MatrixSpec& spec = linear.weight->spec();
  const std::size_t bytes = count(ceil_div(spec.rows * spec.cols * bits_of(spec.key.element), std::int64_t{8}));
  if (!spec.key.quantized()) return bytes;
  const bool byte_scales = spec.key.scale == ScaleType::e4m3 || spec.key.scale == ScaleType::e8m0;
  const std::size_t scale = byte_scales ? 1 : (spec.key.scale == ScaleType::f32 ? 4 : 2);
  const std::size_t zero = spec.key.symmetric ? 0 : 1;
  const Granularity& granularity = spec.key.granularity;
  std::int64_t scales = spec.rows * spec.groups;
  if (granularity.kind == Granularity::Kind::block)
    scales = ceil_div(spec.rows, std::int64_t{granularity.rows}) * spec.groups;
  if (granularity.kind == Granularity::Kind::tensor) scales = 1;
  return bytes + count(scales) * (scale + zero);
}

// A `ref` kernel that computes on the host says nothing of another device's memory.
bool runs_on(const KernelCard* winner, const Machine& machine) {
  return winner != nullptr && (machine.device == DeviceKind::cpu || !winner->any_device_of_host);
}

// Stands for a module whose kernel is not in this build.
class PublishedLinear final : public PackedLinear {
 public:
  explicit PublishedLinear(std::size_t bytes) : bytes_(bytes) {}
  [[nodiscard]] std::size_t bytes() const override { return bytes_; }
  [[nodiscard]] std::size_t workspace_bytes(std::int64_t, int) const override { return 0; }
  void run(const RunContext&, std::int64_t, const ConstActivations&, const Activations&) const override {}

 private:
  std::size_t bytes_;
};
class PublishedExperts final : public PackedExperts {
 public:
  explicit PublishedExperts(std::size_t bytes) : bytes_(bytes) {}
  [[nodiscard]] std::size_t bytes() const override { return bytes_; }
  [[nodiscard]] std::size_t workspace_bytes(std::int64_t, std::int64_t, int) const override { return 0; }
  void run(const RunContext&, const ExpertsInput&, const Activations&) const override {}

 private:
  std::size_t bytes_;
};

// What a layout looks at of one weight. Where gate and up have group indices or input scales, a kernel prepares one
// input for both if these are equal and two if they are not: then, and only then, they are read.
Result<CanonicalLinear> sized(const StoredLinear& stored) {
  if (stored.act_order || (stored.activation && !stored.activation->dynamic)) return stored.read();
  CanonicalLinear linear{.weight = std::make_shared<const ShapeOnly>(stored.spec), .activation = stored.activation};
  if (stored.bias) linear.bias.resize(count(stored.spec.rows));
  return linear;
}

// The rows and columns that one rank holds of a matrix.
Result<CanonicalLinear> share_of(const StoredLinear& stored_whole, std::int64_t rows, std::int64_t cols) {
  MORACLE_ASSIGN(CanonicalLinear whole, sized(stored_whole));
  const MatrixSpec& stored = whole.weight->spec();
  if (stored.rows == rows && stored.cols == cols) return whole;
  if (!whole.bias.empty()) whole.bias.resize(count(rows));
  whole.weight = std::make_shared<const ShapeOnly>(spec_of_share(stored, rows, cols));
  return whole;
}

// Lays modules out for one rank, without a weight.
class LaidOutModules final : public ModuleSource {
 public:
  LaidOutModules(const Plan& plan, const RankLayout& ranks, ThreadPool& pool)
      : plan_(plan),
        ranks_(ranks),
        pool_(pool),
        workspace_(std::make_shared<DeviceWorkspace>(plan.placement().gpu())),
        host_workspace_(
            std::make_shared<DeviceWorkspace>(std::make_shared<const HostDevice>(plan.placement().host(), pool))) {}

  // Of the GPU that has experts of a model of the host, if one has.
  [[nodiscard]] const DeviceWorkspace& workspace() const { return *workspace_; }
  // Of the host where it has experts of a model of a GPU.
  [[nodiscard]] const DeviceWorkspace& host_workspace() const { return *host_workspace_; }

  // What kernels keep on a GPU from call to call.
  [[nodiscard]] std::size_t persistent() const { return persistent_; }
  // Whether every module had a kernel whose layout is known.
  [[nodiscard]] bool packed() const { return packed_; }
  // Of the experts of this name, which have been laid out.
  [[nodiscard]] const ExpertsKernel& kernel_of(const std::string& experts) const { return kernels_.at(experts); }

  Result<Embedding> embedding(const LinearSpec& spec) override {
    MatrixSpec table = plan_.opened(plan_.index_of(spec.path)).linear.spec;
    table.rows = spec.out;
    return lay_out_embedding(table);
  }

  Result<std::unique_ptr<PackedLinear>> linear(const LinearSpec& spec) override { return lay_out(spec, false); }
  Result<std::unique_ptr<PackedLinear>> head(const LinearSpec& spec) override { return lay_out(spec, true); }

  Result<PlacedExperts> experts(const MoeSpec& spec) override {
    const std::size_t index = plan_.index_of(spec.experts.name);
    MORACLE_ASSIGN(const CanonicalExperts share, share_of_experts(plan_.opened(index).experts, spec.experts));
    Problem problem = *plan_.modules()[index].problem;
    problem.intermediate = spec.experts.intermediate;
    MORACLE_ASSIGN(const Choice choice, choice_for(index, problem));
    ExpertsKernel& named = kernels_[spec.experts.name];
    if (const KernelImplementation* const kernel = native(choice)) {
      MORACLE_ASSIGN(std::unique_ptr<PackedExperts> packed,
                     kernel->pack_experts(share, layout_options(spec.activation)));
      named = {.card = choice.winner, .packed = true, .bytes = packed->bytes(), .slot_bytes = packed->slot_bytes()};
      persistent_ = std::max(persistent_, packed->kept_bytes());
      const bool on_host = plan_.opened(index).device == DeviceId::host;
      if (plan_.placement().main_gpu() != nullptr) {
        return on_host ? PlacedExperts(std::move(packed), host_workspace_, share.hidden)
                       : PlacedExperts(std::move(packed));
      }
      return place(*choice.winner, std::move(packed), share.hidden, workspace_);
    }
    MORACLE_ASSIGN(named, elsewhere(problem, choice, share, spec.activation));
    return PlacedExperts(std::make_unique<PublishedExperts>(named.bytes));
  }

  Result<Router> router(const MoeSpec& spec) override {
    const StoredLinear& stored = plan_.opened(plan_.index_of(spec.router.front())).linear;
    return Router{.weight = {.size = spec.routing.rows() * spec.hidden()},
                  .bias = {.size = stored.bias ? stored.spec.rows : 0}};
  }

  Result<LatentProjection> latent(const LatentAttentionSpec& spec) override { return lay_out_latent(spec.shape); }

  Result<DeviceArray<float>> array(const std::string&, std::int64_t rows, std::int64_t cols, ArrayForm,
                                   float) override {
    return DeviceArray<float>{.size = rows * cols};
  }

  Result<Rope> rope(const RopeSpec& spec) override {
    return Rope{.inv_freq = {.size = std::ssize(spec.inv_freq)}, .scale = spec.scale};
  }

 private:
  [[nodiscard]] PackOptions layout_options(const ActivationSpec& activation) const {
    return {.pool = pool_,
            .activation = activation,
            .layout_only = true,
            .batch_invariant = plan_.policy().batch_invariant};
  }

  Result<std::unique_ptr<PackedLinear>> lay_out(const LinearSpec& spec, bool head) {
    const std::size_t index = plan_.index_of(spec.path);
    MORACLE_ASSIGN(const CanonicalLinear share, share_of(plan_.opened(index).linear, spec.out, spec.in));
    Problem problem = *plan_.modules()[index].problem;
    problem.hidden = spec.in;
    problem.intermediate = spec.out;
    MORACLE_ASSIGN(const Choice choice, choice_for(index, problem));
    const KernelImplementation* const kernel = native(choice);
    if (kernel != nullptr) return kernel->pack_linear(share, {.pool = pool_, .layout_only = true, .head = head});
    return std::unique_ptr<PackedLinear>(std::make_unique<PublishedLinear>(published_bytes(share)));
  }

  static Result<CanonicalExperts> share_of_experts(const StoredExperts& whole, const ExpertsRef& ref) {
    CanonicalExperts share{.name = whole.name,
                           .hidden = whole.hidden,
                           .intermediate = ref.intermediate,
                           .scheme = whole.scheme,
                           .zero_points = whole.zero_points,
                           .act_order = whole.act_order,
                           .bias = whole.bias,
                           .interleaved = whole.interleaved,
                           .experts = std::vector<CanonicalExperts::Expert>(count(ref.experts))};
    for (std::size_t e = 0; e < share.experts.size(); ++e) {
      const StoredExperts::Expert& stored = whole.experts[e];
      MORACLE_ASSIGN(share.experts[e].gate, share_of(stored.gate, ref.intermediate, ref.hidden));
      if (stored.gated()) {
        MORACLE_ASSIGN(share.experts[e].up, share_of(stored.up, ref.intermediate, ref.hidden));
      }
      MORACLE_ASSIGN(share.experts[e].down, share_of(stored.down, ref.hidden, ref.intermediate));
    }
    return share;
  }

  struct Choice {
    const KernelCard* winner = nullptr;
    const KernelCard* best = nullptr;  // if this build had every kernel of the table
  };

  // The oracle is asked again about a rank's share: its shape is another.
  Result<Choice> choice_for(std::size_t module, const Problem& problem) {
    if (ranks_.tp * ranks_.ep == 1) {
      const Decision& decision = *plan_.modules()[module].decision;
      return Choice{decision.winner, decision.best_if_built};
    }
    auto known = std::find_if(decided_.begin(), decided_.end(), [&](const auto& d) { return d.first == problem; });
    if (known == decided_.end()) {
      const std::string& name = plan_.modules()[module].name;
      const Machine& machine = plan_.placement().device(plan_.opened(module).device).machine;
      MORACLE_ASSIGN(const Decision decision, decide_module(name, problem, machine, plan_.policy()));
      decided_.emplace_back(problem, Choice{decision.winner, decision.best_if_built});
      known = std::prev(decided_.end());
    }
    return known->second;
  }

  // Null where no kernel of this build runs on the machine.
  const KernelImplementation* native(const Choice& choice) {
    const KernelImplementation* const kernel =
        runs_on(choice.winner, plan_.placement().host()) ? find_implementation(choice.winner->id) : nullptr;
    packed_ = packed_ && kernel != nullptr;
    return kernel;
  }

  // Experts whose kernel is not here: in that kernel's layout where it is known, else as published. Like layers are
  // laid out once.
  Result<ExpertsKernel> elsewhere(const Problem& problem, const Choice& choice, const CanonicalExperts& share,
                                  const ActivationSpec& activation) {
    const auto known =
        std::find_if(elsewhere_.begin(), elsewhere_.end(), [&](const auto& e) { return e.first == problem; });
    if (known != elsewhere_.end()) return known->second;
    ExpertsKernel named;
    if (runs_on(choice.best, plan_.placement().host())) named.card = choice.best;
    const KernelImplementation* const kernel =
        named.card != nullptr && named.card->kind == CardKind::external ? find_implementation(named.card->id) : nullptr;
    if (named.card != nullptr && named.card->kind == CardKind::native && named.card->device != DeviceKind::cpu) {
      MORACLE_ASSIGN(const auto packed,
                     find_implementation(named.card->id)->pack_experts(share, layout_options(activation)));
      named.bytes = packed->bytes();
      named.packed = true;
    } else if (kernel != nullptr) {
      MORACLE_ASSIGN(named.bytes, external_bytes(*kernel, share, {.pool = pool_, .activation = activation}));
      named.packed = true;
    } else {
      for (const auto& expert : share.experts) {
        for (const CanonicalLinear* linear : matrices_of(expert)) named.bytes += published_bytes(*linear);
      }
    }
    elsewhere_.emplace_back(problem, named);
    return named;
  }

  const Plan& plan_;
  RankLayout ranks_;
  ThreadPool& pool_;
  std::shared_ptr<DeviceWorkspace> workspace_;
  std::shared_ptr<DeviceWorkspace> host_workspace_;
  std::vector<std::pair<Problem, Choice>> decided_;
  std::vector<std::pair<Problem, ExpertsKernel>> elsewhere_;
  std::map<std::string, ExpertsKernel> kernels_;
  std::size_t persistent_ = 0;
  bool packed_ = true;
};

LayerMemory layer_memory(const Plan& plan, std::size_t index, const Transformer& transformer,
                         const LaidOutModules& modules, std::int64_t context) {
  const TransformerLayer& layer = transformer.parts().layers[index];
  const LayerSpec& spec = plan.spec().layers[index];
  LayerMemory row;
  row.name = spec.path;
  if (layer.mixer != nullptr) row.mixer = layer.mixer->bytes();
  if (layer.feed_forward != nullptr) row.feed_forward = layer.feed_forward->bytes();
  row.norms =
      layer.input_norm.bytes() + layer.mixer_norm.bytes() + layer.post_norm.bytes() + layer.feed_forward_norm.bytes();
  const LayerState state = layer.state(*transformer.parts().ops);
  row.state = StateLayout({state}, transformer.prefill_chunk()).bytes(context);
  if (const auto* const moe = std::get_if<MoeSpec>(&spec.feed_forward))
    row.experts = modules.kernel_of(moe->experts.name);
  return row;
}

// Bytes of a layer's modules on the GPU.
std::uint64_t bytes_on_gpu(const LayerMemory& layer, bool main) {
  const KernelCard* const card = layer.experts.card;
  const bool experts = card != nullptr && card->device != DeviceKind::cpu;
  if (!main) return experts ? layer.experts.bytes : 0;
  const std::uint64_t on_host = card == nullptr || experts ? 0 : layer.experts.bytes;
  return layer.mixer + layer.feed_forward + layer.norms - on_host;
}

// `workspace`: of calls of so many tokens.
MemoryOnDevice memory_on_device(const MemoryPlan& plan, bool main, std::uint64_t free,
                                FunctionRef<std::uint64_t(std::int64_t)> workspace) {
  MemoryOnDevice result{.main = main, .workspace = workspace(plan.batch_tokens), .free = free};
  if (main) {
    result.weights = plan.embedding + plan.head + plan.final_norm;
    result.state = plan.state;
  }
  for (const LayerMemory& layer : plan.layers) {
    const std::uint64_t bytes = bytes_on_gpu(layer, main);
    if (bytes == 0) continue;
    result.weights += bytes;
    ++result.layers;
    if (result.weights + result.state + workspace(1) <= free) ++result.layers_held;
  }
  const std::uint64_t held = result.weights + result.state;
  result.least = held + workspace(1);
  result.call_tokens =
      largest_that(plan.batch_tokens, [&](std::int64_t tokens) { return held + workspace(tokens) <= free; });
  return result;
}

std::vector<Degree> degrees(const LoadPlan& plan, RankLayout (*layout)(int)) {
  std::vector<Degree> result;
  for (const int degree : kDegrees) {
    Degree row{.degree = degree};
    const auto spec = parallel_cut(plan.opened(), layout(degree));
    if (!spec.ok()) {
      row.module = spec.error().where;
      row.wanted = spec.error().wanted;
      row.found = spec.error().found;
    }
    result.push_back(std::move(row));
  }
  return result;
}

}  // namespace

std::uint64_t MemoryPlan::weights() const {
  std::uint64_t bytes = embedding + head + final_norm;
  for (const LayerMemory& layer : layers) bytes += layer.mixer + layer.feed_forward + layer.norms;
  return bytes;
}

Result<MemoryPlan> memory_plan(const LoadPlan& plan, const MemoryPlanOptions& options) {
  const Plan& own = plan.opened();
  const RankLayout ranks{.tp = options.tp, .ep = options.ep};
  MORACLE_ASSIGN(const ModelSpec spec, parallel_cut(own, ranks));
  MemoryPlan result;
  result.context = options.context == 0 ? spec.info.max_context : options.context;
  if (result.context > spec.info.max_context) {
    return Error{.code = "plan.context",
                 .wanted = "at most " + std::to_string(spec.info.max_context) + " positions",
                 .found = std::to_string(result.context)};
  }
  result.batch_tokens = std::min(options.batch_tokens, result.context);
  ThreadPool pool(options.threads);
  LaidOutModules modules(own, ranks, pool);
  const std::shared_ptr<GpuDevice> main = own.placement().main_gpu();
  std::unique_ptr<Ops> gpu_ops;
  if (main != nullptr) {
    MORACLE_ASSIGN(gpu_ops, device_ops(*main));
  }
  const Ops& ops = gpu_ops != nullptr ? *gpu_ops : ref_ops();
  MORACLE_ASSIGN(Transformer::Parts parts, build_transformer(spec, modules, ops,
                                                             {.kv = options.kv.value_or(default_kv_type(own.policy())),
                                                              .batch_invariant = own.policy().batch_invariant}));
  parts.device = main;
  parts.prefill_chunk = options.prefill_chunk;
  const Transformer transformer(std::move(parts), pool);
  result.packed = modules.packed();
  result.embedding = transformer.parts().embedding.bytes();
  result.head = transformer.parts().head->bytes();
  result.final_norm = transformer.parts().final_norm.bytes();
  for (std::size_t l = 0; l < spec.layers.size(); ++l) {
    result.layers.push_back(layer_memory(own, l, transformer, modules, result.context));
  }
  result.state = transformer.state_bytes(result.context);
  const std::shared_ptr<GpuDevice> gpu = own.placement().gpu();
  if (main == nullptr) result.workspace = transformer.workspace_bytes(result.batch_tokens);
  if (gpu == nullptr) return result;
  MORACLE_ASSIGN(const std::uint64_t free, gpu->room());
  const DeviceWorkspace& calls = modules.workspace();
  result.on_device = memory_on_device(result, main != nullptr, free, [&](std::int64_t tokens) -> std::uint64_t {
    if (main != nullptr) {
      return transformer.workspace_bytes(tokens) + transformer.decode_bytes() + transformer.graph_bytes() +
             modules.persistent();
    }
    const CallBytes bytes = transformer.call_bytes(calls, tokens);
    return bytes.device + bytes.persistent;
  });
  if (main == nullptr) {
    result.workspace += transformer.call_bytes(calls, result.batch_tokens).staging;
  } else {
    const CallBytes bytes = transformer.call_bytes(modules.host_workspace(), result.batch_tokens);
    result.workspace += bytes.device + bytes.staging;
  }
  return result;
}

std::vector<Degree> tensor_degrees(const LoadPlan& plan) {
  return degrees(plan, [](int degree) { return RankLayout{.tp = degree, .ep = 1}; });
}

std::vector<Degree> expert_degrees(const LoadPlan& plan) {
  return degrees(plan, [](int degree) { return RankLayout{.tp = 1, .ep = degree}; });
}

}  // namespace moracle
