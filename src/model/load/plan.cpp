#include "model/load/plan.h"

#include <algorithm>
#include <set>

#include "base/guarded.h"
#include "checkpoint/safetensors_file.h"
#include "format/decode/plain.h"
#include "format/decode/row_view.h"
#include "format/rules/tensor_check.h"
#include "model/load/parameters.h"
#include "model/load/unclaimed_tensors.h"
#include "model/spec/architecture.h"
#include "model/spec/validate.h"
#include "scheme/activation_codes.h"

namespace moracle {

namespace {

bool concerns(const Policy& policy, const Table& table, ProblemKind kind) {
  if (!policy.pinned) return true;
  return std::any_of(table.rows.begin(), table.rows.end(), [&](const TableRow& row) {
    const bool serves = kind == ProblemKind::experts ? row.card->serves_experts : row.card->serves_linear;
    return row.card->backend == *policy.pinned && serves;
  });
}

Problem linear_problem(const StoredLinear& linear) {
  const MatrixSpec& spec = linear.spec;
  Problem problem;
  problem.kind = ProblemKind::linear;
  problem.scheme = linear.scheme();
  problem.hidden = spec.cols;
  problem.intermediate = spec.rows;
  problem.bias = linear.bias.has_value();
  problem.zero_points = !spec.key.symmetric;
  problem.act_order = linear.act_order;
  return problem;
}

Problem experts_problem(const StoredExperts& experts, const MoeSpec& moe) {
  Problem problem;
  problem.kind = ProblemKind::experts;
  problem.scheme = experts.scheme;
  problem.experts = moe.routing.experts;
  problem.top_k = moe.routing.top_k;
  problem.hidden = experts.hidden;
  problem.intermediate = experts.intermediate;
  problem.activation = moe.activation;
  problem.bias = experts.bias;
  problem.zero_points = experts.zero_points;
  problem.act_order = experts.act_order;
  problem.interleaved = experts.interleaved;
  return problem;
}

}  // namespace

Result<Decision> decide_module(const std::string& name, const Problem& problem, const Machine& machine,
                               const Policy& policy) {
  MORACLE_ASSIGN(const Table* const table, table_for(problem.scheme));
  Policy own = policy;
  // A pin is about experts; other modules follow it where their table knows the backend.
  if (problem.kind == ProblemKind::linear && !concerns(policy, *table, problem.kind)) own.pinned.reset();
  Decision decision = decide(problem, machine, own, *table);
  if (decision.winner == nullptr && own.pinned) {
    Error error = winner_of(decision, problem).error();
    error.where = name;
    return error;
  }
  return decision;
}

// Walks a spec once, front to back: opens every module, asks the oracle, and claims every tensor.
class Planner {
 public:
  Planner(std::shared_ptr<const Checkpoint> checkpoint, const Place& place, const Policy& policy, GpuModules modules,
          std::int64_t expert_layers)
      : place_(place),
        policy_(policy),
        gpu_modules_(modules),
        expert_layers_(expert_layers),
        claims_(checkpoint),
        plan_(std::make_unique<Plan>()) {
    plan_->checkpoint_ = std::move(checkpoint);
    plan_->policy_ = policy;
  }

  // What visit_parameters() asks for.
  static Result<> divide(std::int64_t /*size*/, const std::string& /*module*/, const char* /*what*/) { return Ok{}; }
  static Result<> divide_kv_heads(std::int64_t /*size*/, const std::string& /*module*/) { return Ok{}; }
  using LinearPart = std::unique_ptr<PackedLinear>;
  Result<> rows(const LinearSpec& spec, const LinearPart& /*part*/, std::int64_t /*out*/) { return linear(spec); }
  Result<> columns(const LinearSpec& spec, const LinearPart& /*part*/, std::int64_t /*in*/) { return linear(spec); }
  Result<> whole(const LinearSpec& spec, const LinearPart& /*part*/) { return linear(spec); }
  Result<> norm(const NormSpec& spec, const Norm& /*part*/, std::int64_t /*size*/) { return norm(spec); }
  Result<> tensor(const std::string& module, const std::string& name, std::string_view kind,
                  const std::vector<std::int64_t>& shape, ArrayForm /*form*/, const DeviceArray<float>& /*part*/) {
    return tensor(module, name, kind, shape);
  }
  Result<> absorbed(const LatentAttentionSpec& spec, const LatentProjection& /*part*/, std::int64_t /*out*/) {
    return absorbed(spec.kv_b);
  }
  Result<> router(const MoeSpec& spec, const MoeLayer::Parts& /*parts*/) { return router(spec); }
  Result<> correction_bias(const MoeSpec& spec, const DeviceArray<float>& /*part*/) {
    const std::string& name = first_stored(spec.correction_bias);
    const TensorView* const stored = claims_.find(name);
    std::vector<std::int64_t> shape{spec.routing.rows()};
    if (stored != nullptr && stored->shape.size() == 2) shape.insert(shape.begin(), 1);  // one group's
    return tensor(spec.correction_bias.front(), name, "router", shape);
  }
  Result<> experts(const MoeSpec& spec, const PlacedExperts& /*part*/) {
    device_ = layer_->experts.front();
    MORACLE_TRY(open_experts_of(spec));
    device_ = layer_->shared;  // what follows them
    return Ok{};
  }
  Result<> shared_gate(const LinearSpec& spec, const LinearPart& /*part*/) { return shared_gate(spec); }

  Result<std::unique_ptr<Plan>> run() {
    if (Result<> done = make(); !done.ok()) {
      name_unread_file(*claims_.checkpoint(), done.error());
      add_warnings(done.error());
      return std::move(done).error();
    }
    return std::move(plan_);
  }

 private:
  Result<> make() {
    MORACLE_ASSIGN(const ModelConfig config, ModelConfig::of(*claims_.checkpoint()));
    config_.emplace(config);
    MORACLE_ASSIGN(const Architecture* const row, find_architecture(config));
    MORACLE_ASSIGN(format_, make_format(*claims_.checkpoint()));
    MORACLE_ASSIGN(plan_->spec_, describe(*row, config, claims_));
    MORACLE_TRY(validate(plan_->spec_, config));
    plan_->spec_.info.format = format_->name();
    plan_->placement_ = place_modules(plan_->spec_, place_, gpu_modules_, expert_layers_);
    note_experts_on_host();
    MORACLE_TRY(walk());
    for (const std::string& warning : config.warnings()) plan_->warnings_.push_back(warning);
    note_unasked_biases();
    MORACLE_ASSIGN(std::string left, sort_unclaimed_tensors(plan_->spec_, claims_, plan_->reports_));
    if (!left.empty()) plan_->warnings_.push_back(std::move(left));
    for (const std::string& note : format_->notes()) plan_->warnings_.push_back(note);
    for (std::string& warning : format_->warnings()) plan_->warnings_.push_back(std::move(warning));
    note_unread_files();
    return Ok{};
  }

  // What the config says twice may be what is wrong.
  void add_warnings(Error& error) const {
    std::vector<std::string> warnings;
    if (config_) warnings = config_->warnings();
    if (format_ != nullptr) warnings.insert(warnings.end(), format_->notes().begin(), format_->notes().end());
    for (const std::string& warning : warnings) error.advice += (error.advice.empty() ? "" : "; ") + warning;
  }

  // That a GPU lacks room for them is told wherever the plan is.
  void note_experts_on_host() {
    const std::shared_ptr<GpuDevice> gpu = plan_->placement_.main_gpu();
    std::size_t layers = 0;
    std::size_t there = 0;
    for (const LayerPlacement& layer : plan_->placement_.layers) {
      layers += layer.experts.empty() ? 0 : 1;
      there += layer.experts.empty() || layer.experts.front() == DeviceId::host ? 0 : 1;
    }
    if (gpu == nullptr || there == layers) return;
    plan_->warnings_.push_back(gpu->name() + " has room for the routed experts of " + std::to_string(there) + " of " +
                               std::to_string(layers) + " layers: the host computes those of the others");
  }

  // Stored biases are added, whatever config.json says of them.
  void note_unasked_biases() {
    if (unasked_biases_.empty()) return;
    const std::size_t more = unasked_biases_.size() - 1;
    plan_->warnings_.push_back("biases that config.json does not ask for are stored, and are added: " +
                               unasked_biases_.front() + (more > 0 ? " and " + std::to_string(more) + " more" : ""));
  }

  // Files with tensors of other names than a layer's are none of the model's.
  void note_unread_files() {
    std::string list;
    for (const std::string& file : claims_.checkpoint()->unread_files()) {
      const Result<SafetensorsFile> opened = SafetensorsFile::open(claims_.checkpoint()->folder() / file);
      const bool layers = opened.ok() && std::any_of(opened->tensors().begin(), opened->tensors().end(), [&](auto& t) {
                            return t.first.find("layers.") != std::string::npos && claims_.find(t.first) == nullptr;
                          });
      if (layers) list += (list.empty() ? "" : ", ") + file;
    }
    if (!list.empty()) plan_->warnings_.push_back("files with weights of layers are not read: " + list);
  }

  Result<> walk() {
    const ModelSpec& spec = plan_->spec_;
    const Placement& placement = plan_->placement_;
    device_ = placement.embedding;
    MORACLE_TRY(embedding(spec.embedding));
    for (std::size_t l = 0; l < spec.layers.size(); ++l) {
      const LayerSpec& layer = spec.layers[l];
      layer_ = &placement.layers[l];
      device_ = layer_->mixer;
      MORACLE_TRY(norm(layer.input_norm));
      MORACLE_TRY(std::visit([&](const auto& mixer) { return open(mixer); }, layer.mixer));
      MORACLE_TRY(norm(layer.mixer_norm));
      device_ = layer_->mlp;
      MORACLE_TRY(norm(layer.post_norm));
      MORACLE_TRY(std::visit([&](const auto& feed_forward) { return open(feed_forward); }, layer.feed_forward));
      device_ = layer_->mlp;
      MORACLE_TRY(norm(layer.feed_forward_norm));
      if (!layer.scalar.empty()) MORACLE_TRY(vector(layer.scalar, layer.scalar, "norm", 1));
    }
    device_ = placement.head;
    MORACLE_TRY(norm(spec.final_norm));
    return spec.head.path.empty() ? tied_head(spec.embedding) : linear(spec.head);
  }

  static Result<> open(const AbsentSpec& /*spec*/) { return Ok{}; }
  template <class Spec>
  Result<> open(const Spec& spec) {
    auto parts = parts_of(spec);
    return visit_parameters(*this, spec, parts);
  }

  Result<> open_experts_of(const MoeSpec& spec) {
    MORACLE_ASSIGN(StoredExperts experts, open_experts(*format_, spec.experts, claims_));
    if (spec.bias && !experts.bias) return missing_bias(spec.experts.name);
    bool own_up_order = false;
    if (experts.act_order) {
      MORACLE_ASSIGN(own_up_order, read_order(experts));
    }
    Problem problem = experts_problem(experts, spec);
    problem.own_up_order = own_up_order;
    ModuleReport report{.name = spec.experts.name, .kind = "experts", .scheme = experts.scheme};
    if (!experts.scheme.weight.quantized()) {
      ModuleRef ref;
      ref.path = experts.experts.front().gate.spec.name;
      ref.out = experts.intermediate;
      ref.in = experts.hidden;
      report.excluded_by = exclusion(ref);
    }
    report.bytes = experts_bytes(spec.experts);
    OpenedModule opened;
    MORACLE_TRY(decide_for(problem, report, opened));
    plan_->parameters_ += static_cast<std::uint64_t>((is_gated(spec.activation.fn) ? 3 : 2) * spec.routing.experts) *
                          static_cast<std::uint64_t>(experts.hidden * experts.intermediate);
    opened.experts = std::move(experts);
    return add(std::move(report), std::move(opened));
  }

  // The one thing that a decision needs and no header has: whether gate and up are reordered alike, which only their
  // group indices tell. An order that turns out to be that of the groups is none. True where up has its own.
  static Result<bool> read_order(StoredExperts& experts) {
    MORACLE_ASSIGN(const CanonicalExperts read, experts.read());
    const auto reordered = [](const CanonicalLinear& linear) { return !linear.weight->spec().g_idx.empty(); };
    for (std::size_t e = 0; e < read.experts.size(); ++e) {
      experts.experts[e].gate.act_order = reordered(read.experts[e].gate);
      if (read.experts[e].gated()) experts.experts[e].up.act_order = reordered(read.experts[e].up);
      experts.experts[e].down.act_order = reordered(read.experts[e].down);
    }
    experts.act_order = read.act_order;
    return has_own_up_order(read);
  }

  // Left unquantized, listed as ignored or not, as routers are; one that is stored quantized runs so.
  Result<> shared_gate(const LinearSpec& spec) {
    const ModuleRef ref = ref_of(spec);
    if (!stored_plain(ref, claims_)) return linear(spec);
    OpenedModule opened;
    MORACLE_ASSIGN(opened.linear, open_plain(ref, claims_));
    opened.linear.excluded_by = exclusion(ref);
    return add_linear(spec.path, module_bytes(spec.path + "."), std::move(opened));
  }

  Result<> linear(const LinearSpec& spec) {
    if (spec.rows_of) return rows_of_linear(spec, *spec.rows_of);
    OpenedModule opened;
    MORACLE_ASSIGN(opened.linear, format_->open(ref_of(spec), claims_));
    if (spec.bias && !opened.linear.bias) return missing_bias(spec.path + ".bias");
    if (!spec.bias && opened.linear.bias) unasked_biases_.push_back(spec.path + ".bias");
    return add_linear(spec.path, module_bytes(spec.path + "."), std::move(opened));
  }

  // The first linear that has rows of a module opens it whole, whichever way its format packs rows.
  Result<> rows_of_linear(const LinearSpec& spec, const RowsOf& rows) {
    if (divided_.path != rows.module) {
      MORACLE_ASSIGN(
          divided_.whole,
          format_->open({.path = rows.module, .fused = spec.fused, .out = rows.total, .in = spec.in}, claims_));
      divided_.path = rows.module;
    }
    if (spec.bias && !divided_.whole.bias) return missing_bias(rows.module + ".bias");
    if (!spec.bias && divided_.whole.bias) unasked_biases_.push_back(rows.module + ".bias");
    OpenedModule opened;
    opened.linear = select_rows(divided_.whole, rows.begin, 1, spec.out);
    const std::uint64_t bytes = module_bytes(rows.module + ".");
    const auto share = static_cast<double>(spec.out) / static_cast<double>(rows.total);
    return add_linear(spec.path, static_cast<std::uint64_t>(share * static_cast<double>(bytes)), std::move(opened));
  }

  // A linear whose weights become part of others: no kernel packs it, so the oracle is not asked.
  Result<> absorbed(const LinearSpec& spec) {
    OpenedModule opened;
    MORACLE_ASSIGN(opened.linear, format_->open(ref_of(spec), claims_));
    const std::optional<QuantKey>& activation = opened.linear.activation;
    if (opened.linear.bias || (activation && !can_quantize_activation(*activation))) {
      return Error{.code = "quant.unsupported",
                   .file = claims_.checkpoint()->folder().string(),
                   .where = spec.path,
                   .wanted = "no bias, and activations quantized to int8, FP8, MXFP4 or NVFP4 if at all",
                   .found = opened.linear.bias ? "a bias" : to_string(*activation)};
    }
    count_parameters(opened.linear);
    ModuleReport report{.name = spec.path,
                        .kind = "linear",
                        .scheme = opened.linear.scheme(),
                        .excluded_by = opened.linear.excluded_by};
    report.bytes = module_bytes(spec.path + ".");
    return add(std::move(report), std::move(opened));
  }

  // The head's weights are the embedding's, which the walk has opened first.
  Result<> tied_head(const LinearSpec& embedding) {
    OpenedModule opened;
    opened.linear = plan_->opened_[plan_->index_of(embedding.path)].linear;
    opened.linear.excluded_by.clear();
    return add_linear("lm_head", 0, std::move(opened));
  }

  Result<> add_linear(const std::string& name, std::uint64_t bytes, OpenedModule opened) {
    ModuleReport report{
        .name = name, .kind = "linear", .scheme = opened.linear.scheme(), .excluded_by = opened.linear.excluded_by};
    report.bytes = bytes;
    MORACLE_TRY(decide_for(linear_problem(opened.linear), report, opened));
    if (bytes != 0) count_parameters(opened.linear);
    return add(std::move(report), std::move(opened));
  }

  Result<> embedding(const LinearSpec& spec) {
    ModuleRef ref = ref_of(spec);
    ref.module_class = "Embedding";
    OpenedModule opened;
    if (stored_plain(ref, claims_)) {
      MORACLE_ASSIGN(opened.linear, open_plain(ref, claims_));
    } else {
      MORACLE_ASSIGN(opened.linear, format_->open(ref, claims_));
    }
    count_parameters(opened.linear);
    ModuleReport report{.name = spec.path, .kind = "embedding", .scheme = opened.linear.scheme()};
    report.bytes = module_bytes(spec.path + ".");
    return add(std::move(report), std::move(opened));
  }

  // Routers are left unquantized by every publisher, listed as ignored or not; one that is stored quantized all the
  // same is dequantized.
  Result<> router(const MoeSpec& spec) {
    std::vector<std::string> weights;
    for (const std::string& path : spec.router) weights.push_back(path + ".weight");
    std::string path = first_stored(weights);
    path.resize(path.size() - std::string_view(".weight").size());
    for (const std::string& candidate : spec.router) {
      if (claims_.find(path + ".weight") == nullptr && claims_.has_module(candidate)) path = candidate;
    }
    ModuleRef ref;
    ref.path = path;
    ref.out = spec.routing.rows();
    ref.in = spec.hidden();
    OpenedModule opened;
    std::string excluded_by = exclusion(ref);
    if (stored_plain(ref, claims_)) {
      MORACLE_ASSIGN(opened.linear, open_plain(ref, claims_));
    } else {
      MORACLE_ASSIGN(opened.linear, format_->open(ref, claims_));
    }
    if (spec.bias && !opened.linear.bias) return missing_bias(path + ".bias");
    count_parameters(opened.linear);
    ModuleReport report{.name = spec.router.front(),
                        .kind = "router",
                        .scheme = opened.linear.scheme(),
                        .excluded_by = std::move(excluded_by)};
    report.bytes = module_bytes(path + ".");
    return add(std::move(report), std::move(opened));
  }

  Result<> norm(const NormSpec& spec) {
    if (!spec.exists()) return Ok{};
    MORACLE_TRY(vector(spec.path, spec.path + ".weight", "norm", spec.size));
    const std::string bias = spec.path + ".bias";
    return spec.bias ? vector(bias, bias, "norm", spec.size) : Result<>(Ok{});
  }

  Result<> vector(const std::string& module, const std::string& name, std::string_view kind, std::int64_t size) {
    return tensor(module, name, kind, {size});
  }

  // An unquantized tensor that is read whole.
  Result<> tensor(const std::string& module, const std::string& name, std::string_view kind,
                  const std::vector<std::int64_t>& shape) {
    OpenedModule opened;
    MORACLE_ASSIGN(opened.tensor, claims_.claim(name));
    if (!is_float(opened.tensor->dtype)) {
      return tensor_error("tensor.dtype", *opened.tensor, "BF16, F16 or F32",
                          std::string(to_string(opened.tensor->dtype)));
    }
    MORACLE_TRY(expect_shape(*opened.tensor, shape));
    std::uint64_t size = 1;
    for (const std::int64_t dim : shape) size *= static_cast<std::uint64_t>(dim);
    plan_->parameters_ += size;
    ModuleReport report{.name = module, .kind = std::string(kind)};
    const Dtype dtype = opened.tensor->dtype;
    report.scheme.weight.element = dtype == Dtype::f32   ? Element::f32
                                   : dtype == Dtype::f16 ? Element::f16
                                                         : Element::bf16;
    report.bytes = opened.tensor->bytes.size();
    return add(std::move(report), std::move(opened));
  }

  // Distinct problems are decided once a device: a model has a handful, in thousands of modules.
  Result<> decide_for(const Problem& problem, ModuleReport& report, OpenedModule& opened) {
    auto known = std::find_if(decided_.begin(), decided_.end(),
                              [&](const Decided& d) { return d.device == device_ && d.problem == problem; });
    if (known == decided_.end()) {
      const Machine& machine = plan_->placement_.device(device_).machine;
      MORACLE_ASSIGN(Decision decision, decide_module(report.name, problem, machine, policy_of(problem)));
      for (const std::string& warning : decision.warnings) plan_->warnings_.push_back(report.name + ": " + warning);
      decided_.push_back({.device = device_, .problem = problem, .decision = std::move(decision)});
      known = std::prev(decided_.end());
    }
    report.problem = problem;
    report.decision = known->decision;
    opened.winner = known->decision.winner;
    return Ok{};
  }

  // With a GPU a kernel is pinned for its experts: few of its backends serve linears, too, and none the host's experts.
  [[nodiscard]] Policy policy_of(const Problem& problem) const {
    Policy policy = policy_;
    const bool pinned = problem.kind == ProblemKind::experts && device_ != DeviceId::host;
    if (plan_->placement_.gpu() != nullptr && !pinned) policy.pinned.reset();
    return policy;
  }

  Result<> add(ModuleReport report, OpenedModule opened) {
    if (!plan_->indices_.emplace(report.name, plan_->reports_.size()).second) {
      return Error{.code = "tensor.duplicate", .where = report.name, .wanted = "each module once", .found = "it twice"};
    }
    opened.tensors = claims_.take_new();
    opened.device = device_;
    plan_->reports_.push_back(std::move(report));
    plan_->opened_.push_back(std::move(opened));
    return Ok{};
  }

  [[nodiscard]] Error missing_bias(std::string where) const {
    return Error{.code = "tensor.missing",
                 .file = claims_.checkpoint()->folder().string(),
                 .where = std::move(where),
                 .wanted = "a bias, which the model has",
                 .found = "no such tensor"};
  }

  static ModuleRef ref_of(const LinearSpec& spec) {
    return {.path = spec.path, .fused = spec.fused, .out = spec.out, .in = spec.in};
  }

  // The first of several names that is stored, or the first.
  [[nodiscard]] const std::string& first_stored(const std::vector<std::string>& names) const {
    const auto found = std::find_if(names.begin(), names.end(),
                                    [&](const std::string& name) { return claims_.find(name) != nullptr; });
    return found == names.end() ? names.front() : *found;
  }

  // Of a module that is read as it is stored, whatever the format says of it.
  [[nodiscard]] std::string exclusion(const ModuleRef& ref) const {
    const auto scheme = format_->scheme_of(ref, claims_);
    return scheme.ok() ? scheme->excluded_by : "";
  }

  void count_parameters(const StoredLinear& linear) {
    const MatrixSpec& spec = linear.spec;
    plan_->parameters_ += static_cast<std::uint64_t>(spec.rows * spec.cols + (linear.bias ? spec.rows : 0));
  }

  // Stored bytes of all tensors whose name begins so.
  [[nodiscard]] std::uint64_t module_bytes(const std::string& prefix) const {
    std::uint64_t bytes = 0;
    const auto& tensors = claims_.checkpoint()->tensors();
    for (auto it = tensors.lower_bound(prefix); it != tensors.end() && it->first.starts_with(prefix); ++it) {
      bytes += it->second.bytes.size();
    }
    return bytes;
  }

  // The experts may lie under any of their layouts' names; a name within another's is not counted twice.
  [[nodiscard]] std::uint64_t experts_bytes(const ExpertsRef& ref) const {
    std::set<std::string> prefixes;
    for (const ExpertsLayout& layout : ref.layouts) {
      for (const std::string* name : {&layout.gate, &layout.up, &layout.down, &layout.gate_up, &layout.stacked_down}) {
        if (!name->empty()) prefixes.insert(name->substr(0, name->find("{e}")));
      }
    }
    std::uint64_t bytes = 0;
    std::string last;
    for (const std::string& prefix : prefixes) {
      if (!last.empty() && prefix.starts_with(last)) continue;
      bytes += module_bytes(prefix);
      last = prefix;
    }
    return bytes;
  }

  // A module of which several linears have rows.
  struct Divided {
    std::string path{};
    StoredLinear whole{};
  };

  struct Decided {
    DeviceId device = DeviceId::host;
    Problem problem{};
    Decision decision{};
  };

  const Place& place_;
  const Policy& policy_;
  GpuModules gpu_modules_;
  std::int64_t expert_layers_;
  TensorClaims claims_;
  std::optional<ModelConfig> config_;  // once it has been read
  std::unique_ptr<Format> format_;
  std::unique_ptr<Plan> plan_;
  Divided divided_{};                        // that was opened last
  std::vector<std::string> unasked_biases_;  // stored, of linears that have none by the config
  std::vector<Decided> decided_;
  const LayerPlacement* layer_ = nullptr;  // that is being walked
  DeviceId device_ = DeviceId::host;       // of the module that is
};

Result<std::unique_ptr<LoadPlan>> LoadPlan::make(std::shared_ptr<const Checkpoint> checkpoint, const Place& place,
                                                 const Policy& policy, GpuModules modules, std::int64_t expert_layers) {
  auto planned =
      guarded("plan the model", [&] { return Planner(checkpoint, place, policy, modules, expert_layers).run(); });
  MORACLE_ASSIGN(std::unique_ptr<Plan> plan, unless_changed(*checkpoint, std::move(planned)));
  return std::make_unique<LoadPlan>(std::move(plan));
}

LoadPlan::LoadPlan(std::unique_ptr<const Opened> opened) : opened_(std::move(opened)) {}
LoadPlan::~LoadPlan() = default;

const ModelInfo& LoadPlan::info() const {
  return opened_->spec().info;
}

const std::vector<ModuleReport>& LoadPlan::modules() const {
  return opened_->modules();
}

const std::vector<std::string>& LoadPlan::warnings() const {
  return opened_->warnings();
}

std::int64_t LoadPlan::prefill_chunk() const {
  return opened_->placement().main_gpu() == nullptr ? kHostPrefillChunk : kDevicePrefillChunk;
}

std::uint64_t LoadPlan::parameters() const {
  return opened_->parameters();
}

Result<CanonicalExperts> LoadPlan::read_experts(std::size_t module) const {
  return opened_->read_experts(module);
}

Result<CanonicalLinear> LoadPlan::read_linear(std::size_t module) const {
  return opened_->read_linear(module);
}

Result<> LoadPlan::verify_unchanged() const {
  return opened_->verify_unchanged();
}

}  // namespace moracle
