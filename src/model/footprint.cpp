#include "model/footprint.h"

#include <algorithm>
#include <array>
#include <numeric>

#include "base/checked.h"
#include "kernels/vector/select.h"
#include "model/build.h"
#include "model/shard.h"

namespace moracle {

namespace {

constexpr std::array<int, 18> kDegrees{1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 32, 64};

std::size_t count(std::int64_t n) {
  return static_cast<std::size_t>(n);
}

// A matrix of which only the shape is known.
class ShapeOnly final : public MatrixSource {
 public:
  explicit ShapeOnly(MatrixSpec spec) : MatrixSource(std::move(spec)) {}
  [[nodiscard]] Result<> read(std::int64_t, std::int64_t, MatrixPanel&) const override {
    return Error{
        .code = "plan.shape_only", .where = spec_.name, .wanted = "a matrix with weights", .found = "its shape"};
  }
};

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

// A reference that computes on the host says nothing of another device's memory.
bool runs_on(const KernelCard* winner, const Machine& machine) {
  return winner != nullptr && (machine.device == DeviceKind::cpu || !winner->any_device_of_host);
}

// Stands for a module whose kernel is not in this build.
class PublishedLinear final : public PackedLinear {
 public:
  explicit PublishedLinear(std::size_t bytes) : bytes_(bytes) {}
  [[nodiscard]] std::size_t bytes() const override { return bytes_; }
  [[nodiscard]] std::size_t workspace_bytes(std::int64_t, int) const override { return 0; }
  void run(const RunContext&, std::int64_t, const float*, float*) const override {}

 private:
  std::size_t bytes_;
};
class PublishedExperts final : public PackedExperts {
 public:
  explicit PublishedExperts(std::size_t bytes) : bytes_(bytes) {}
  [[nodiscard]] std::size_t bytes() const override { return bytes_; }
  [[nodiscard]] std::size_t workspace_bytes(std::int64_t, std::int64_t, int) const override { return 0; }
  void run(const RunContext&, const ExpertsInput&, float*) const override {}

 private:
  std::size_t bytes_;
};

// The rows and columns that one rank holds of a matrix.
CanonicalLinear share_of(const CanonicalLinear& whole, std::int64_t rows, std::int64_t cols) {
  const MatrixSpec& stored = whole.weight->spec();
  if (stored.rows == rows && stored.cols == cols) return whole;
  MatrixSpec spec = stored;
  spec.rows = rows;
  spec.cols = cols;
  if (spec.key.quantized()) {
    const bool whole_rows = stored.group_cols >= stored.cols;
    spec.group_cols = whole_rows ? cols : std::gcd(stored.group_cols, cols);
    spec.groups = ceil_div(cols, spec.group_cols);
  }
  CanonicalLinear share = whole;
  if (!share.bias.empty()) share.bias.resize(count(rows));
  share.weight = std::make_shared<const ShapeOnly>(std::move(spec));
  return share;
}

// Lays modules out for one rank, without a weight.
class LaidOutModules final : public ModuleSource {
 public:
  LaidOutModules(const Plan& plan, const RankLayout& ranks, ThreadPool& pool)
      : plan_(plan), ranks_(ranks), pool_(pool) {}

  // Whether every module had a kernel whose layout is known.
  [[nodiscard]] bool packed() const { return packed_; }

  Result<Embedding> embedding(const LinearSpec& spec) override {
    MatrixSpec table = plan_.opened(plan_.index_of(spec.path)).linear.weight->spec();
    table.rows = spec.out;
    return Embedding::lay_out(table);
  }

  Result<std::unique_ptr<PackedLinear>> linear(const LinearSpec& spec) override {
    const std::size_t index = plan_.index_of(spec.path);
    const CanonicalLinear share = share_of(plan_.opened(index).linear, spec.out, spec.in);
    Problem problem = *plan_.modules()[index].problem;
    problem.hidden = spec.in;
    problem.intermediate = spec.out;
    MORACLE_ASSIGN(const KernelImplementation* const kernel, kernel_for(index, problem));
    if (kernel != nullptr) return kernel->pack_linear(share, {.pool = pool_, .layout_only = true});
    return std::unique_ptr<PackedLinear>(std::make_unique<PublishedLinear>(published_bytes(share)));
  }

  Result<std::unique_ptr<PackedExperts>> experts(const MoeSpec& spec) override {
    const std::size_t index = plan_.index_of(spec.experts.name);
    const CanonicalExperts share = share_of_experts(plan_.opened(index).experts, spec.experts);
    Problem problem = *plan_.modules()[index].problem;
    problem.intermediate = spec.experts.intermediate;
    problem.parallel = {.tp = ranks_.tp, .ep = ranks_.ep};
    MORACLE_ASSIGN(const KernelImplementation* const kernel, kernel_for(index, problem));
    if (kernel != nullptr) {
      return kernel->pack_experts(share, {.pool = pool_, .activation = spec.activation, .layout_only = true});
    }
    std::size_t bytes = 0;
    for (const auto& expert : share.experts) {
      bytes += published_bytes(expert.gate) + published_bytes(expert.up) + published_bytes(expert.down);
    }
    return std::unique_ptr<PackedExperts>(std::make_unique<PublishedExperts>(bytes));
  }

  Result<Router> router(const MoeSpec& spec) override {
    const CanonicalLinear& stored = plan_.opened(plan_.index_of(spec.router.front())).linear;
    return Router{.weight = std::vector<float>(count(spec.routing.experts * spec.experts.hidden)), .bias = stored.bias};
  }

  Result<LatentProjection> latent(const LatentAttentionSpec& spec) override {
    return LatentProjection::lay_out(spec.heads, spec.nope, spec.value, spec.latent);
  }

  Result<std::vector<float>> floats(const std::string&, std::int64_t size) override {
    return std::vector<float>(count(size));
  }

 private:
  static CanonicalExperts share_of_experts(const CanonicalExperts& whole, const ExpertsRef& ref) {
    CanonicalExperts share = whole;
    share.experts.resize(count(ref.experts));
    share.intermediate = ref.intermediate;
    for (CanonicalExperts::Expert& expert : share.experts) {
      expert.gate = share_of(expert.gate, ref.intermediate, ref.hidden);
      expert.up = share_of(expert.up, ref.intermediate, ref.hidden);
      expert.down = share_of(expert.down, ref.hidden, ref.intermediate);
    }
    return share;
  }

  // Null where no kernel of this build serves. The oracle is asked again about a rank's share: its shape is another.
  Result<const KernelImplementation*> kernel_for(std::size_t module, const Problem& problem) {
    const KernelCard* winner = plan_.opened(module).winner;
    if (ranks_.tp * ranks_.ep > 1) {
      auto known = std::find_if(decided_.begin(), decided_.end(), [&](const auto& d) { return d.first == problem; });
      if (known == decided_.end()) {
        const std::string& name = plan_.modules()[module].name;
        MORACLE_ASSIGN(const Decision decision, decide_module(name, problem, plan_.machine(), plan_.policy()));
        decided_.emplace_back(problem, decision.winner);
        known = std::prev(decided_.end());
      }
      winner = known->second;
    }
    const KernelImplementation* const kernel =
        runs_on(winner, plan_.machine()) ? find_implementation(winner->id) : nullptr;
    packed_ = packed_ && kernel != nullptr;
    return kernel;
  }

  const Plan& plan_;
  RankLayout ranks_;
  ThreadPool& pool_;
  std::vector<std::pair<Problem, const KernelCard*>> decided_;
  bool packed_ = true;
};

Result<const Plan*> own_plan(const LoadPlan& plan) {
  const auto* const own = dynamic_cast<const Plan*>(&plan);
  if (own != nullptr) return own;
  return Error{.code = "model.plan", .wanted = "a plan made by LoadPlan::make", .found = "another implementation"};
}

LayerFootprint layer_footprint(const Plan& plan, std::size_t index, const TransformerLayer& layer,
                               std::int64_t context) {
  const LayerSpec& spec = plan.spec().layers[index];
  LayerFootprint row;
  row.name = spec.input_norm.path.substr(0, spec.input_norm.path.rfind('.'));
  row.mixer = layer.mixer->bytes();
  row.feed_forward = layer.feed_forward->bytes();
  row.norms = layer.input_norm.bytes() + layer.post_norm.bytes();
  row.state = StateLayout({layer.mixer->state()}).bytes(context);
  if (const auto* const moe = std::get_if<MoeSpec>(&spec.feed_forward)) {
    const auto& decision = plan.modules()[plan.index_of(moe->experts.name)].decision;
    if (runs_on(decision->winner, plan.machine())) row.experts_kernel = decision->winner->backend;
  }
  return row;
}

std::vector<Degree> degrees(const LoadPlan& plan, RankLayout (*layout)(int)) {
  const auto own = own_plan(plan);
  std::vector<Degree> result;
  for (const int degree : kDegrees) {
    Degree row{.degree = degree};
    const auto spec = own.ok() ? shard(*own.value(), layout(degree)) : Result<ModelSpec>(own.error());
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

std::uint64_t Footprint::weights() const {
  std::uint64_t bytes = embedding + head + final_norm;
  for (const LayerFootprint& layer : layers) bytes += layer.mixer + layer.feed_forward + layer.norms;
  return bytes;
}

Result<Footprint> footprint(const LoadPlan& plan, const FootprintOptions& options) {
  MORACLE_ASSIGN(const Plan* const own, own_plan(plan));
  const RankLayout ranks{.tp = options.tp, .ep = options.ep};
  MORACLE_ASSIGN(const ModelSpec spec, shard(*own, ranks));
  Footprint result;
  result.context = options.context == 0 ? spec.info.max_positions : options.context;
  if (result.context > spec.info.max_positions) {
    return Error{.code = "plan.context",
                 .wanted = "at most " + std::to_string(spec.info.max_positions) + " positions",
                 .found = std::to_string(result.context)};
  }
  result.batch_tokens = std::min(options.batch_tokens, result.context);
  ThreadPool pool(options.threads);
  LaidOutModules modules(*own, ranks, pool);
  MORACLE_ASSIGN(Transformer::Parts parts, build_transformer(spec, modules, scalar_vector_ops()));
  const Transformer transformer(std::move(parts), pool);
  result.packed = modules.packed();
  result.embedding = transformer.parts().embedding.bytes();
  result.head = transformer.parts().head->bytes();
  result.final_norm = transformer.parts().final_norm.bytes();
  for (std::size_t l = 0; l < spec.layers.size(); ++l) {
    result.layers.push_back(layer_footprint(*own, l, transformer.parts().layers[l], result.context));
  }
  result.state = transformer.state_bytes(result.context);
  result.workspace = transformer.workspace_bytes(result.batch_tokens);
  return result;
}

std::vector<Degree> tensor_degrees(const LoadPlan& plan) {
  return degrees(plan, [](int degree) { return RankLayout{.tp = degree, .ep = 1}; });
}

std::vector<Degree> expert_degrees(const LoadPlan& plan) {
  return degrees(plan, [](int degree) { return RankLayout{.tp = 1, .ep = degree}; });
}

}  // namespace moracle
