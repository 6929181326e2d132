// Turns a plan into a model: packs every module with the kernel that was decided on, and lets go of the file.
#include <algorithm>
#include <cstdlib>
#include <memory>
#include <optional>
#include <string_view>
#include <vector>

#include "base/guarded.h"
#include "checkpoint/prefetcher.h"
#include "device/host_device.h"
#include "format/rules/tensor_check.h"
#include "kernels/device_ops.h"
#include "kernels/pack_memory.h"
#include "machine/host_limits.h"
#include "model/forward/transformer.h"
#include "model/load/build.h"
#include "model/load/check_operations.h"
#include "model/load/device_room.h"
#include "model/load/expert_room.h"
#include "model/load/plan.h"

namespace moracle {

namespace {

// What the modules of one device share.
struct LoadDevice {
  LoadDevice(const PlacedDevice& placed, ThreadPool& pool) : gpu(placed.gpu) {
    if (gpu == nullptr) {
      host = std::make_shared<HostDevice>(placed.machine, pool);
      weights = std::make_shared<WeightStore>(host);
      return;
    }
    upload.emplace(*gpu);
    weights = std::make_shared<WeightStore>(gpu, &*upload);
    scratch = std::make_shared<PersistentScratch>(gpu);
  }

  // Of calls from another device: of the host those from `caller`.
  std::shared_ptr<DeviceWorkspace> make_workspace(const std::shared_ptr<GpuDevice>& caller) {
    if (workspace == nullptr) {
      workspace =
          gpu != nullptr ? std::make_shared<DeviceWorkspace>(gpu) : std::make_shared<DeviceWorkspace>(host, caller);
    }
    return workspace;
  }

  std::shared_ptr<GpuDevice> gpu;      // null: the host, which needs the weights alone
  std::shared_ptr<HostDevice> host{};  // null: a GPU
  std::optional<UploadBuffer> upload{};
  std::shared_ptr<WeightStore> weights{};
  std::shared_ptr<PersistentScratch> scratch{};
  std::shared_ptr<DeviceWorkspace> workspace{};  // null: nothing is called from another device
};

class PackedModules final : public ModuleSource {
 public:
  // `experts`: has routed experts, which are not read then; null: they are packed.
  PackedModules(const Plan& plan, ThreadPool& pool, const LoadOptions& options, ExpertPool* experts)
      : plan_(plan), pool_(pool), options_(options), experts_(experts), prefetcher_(tensors_to_read()) {
    for (std::size_t module = 0; module < plan.modules().size(); ++module) {
      if (is_read(module)) progress_.bytes_total += plan.modules()[module].bytes;
    }
    for (const PlacedDevice& device : plan.placement().devices) {
      devices_.push_back(std::make_unique<LoadDevice>(device, pool));
    }
  }

  Result<Embedding> embedding(const LinearSpec& spec) override {
    const std::size_t index = plan_.index_of(spec.path);
    MORACLE_ASSIGN(const CanonicalLinear linear, plan_.read_linear(index));
    const MatrixSource& weight = *linear.weight;
    MORACLE_ASSIGN(Embedding embedding, read_embedding(weight, pool_, store_of(index)));
    const bool tied = plan_.spec().head.path.empty();  // then the head still has to read it
    if (!tied) weight.release();
    MORACLE_TRY(advance(index));
    return embedding;
  }

  Result<std::unique_ptr<PackedLinear>> linear(const LinearSpec& spec) override { return pack(spec, false); }
  Result<std::unique_ptr<PackedLinear>> head(const LinearSpec& spec) override { return pack(spec, true); }

  Result<PlacedExperts> experts(const MoeSpec& spec) override {
    const std::size_t index = plan_.index_of(spec.experts.name);
    MORACLE_ASSIGN(const CanonicalExperts experts, plan_.read_experts(index));
    MORACLE_TRY(check_order(index, experts.act_order));
    const KernelCard& card = *plan_.opened(index).winner;
    PackOptions options = options_of(index);
    options.activation = spec.activation;
    options.batch_invariant = plan_.policy().batch_invariant;
    options.store = experts_;
    MORACLE_ASSIGN(std::unique_ptr<PackedExperts> packed, find_implementation(card.id)->pack_experts(experts, options));
    for (const auto& expert : experts.experts) {
      for (const CanonicalLinear* linear : matrices_of(expert)) linear->weight->release();
    }
    MORACLE_TRY(advance(index));
    const DeviceId caller = plan_.opened(plan_.index_of(spec.router.front())).device;
    LoadDevice& device = device_of(index);
    if (caller == plan_.opened(index).device) {
      PlacedExperts placed(std::move(packed));
      if (experts_ != nullptr) placed.set_read(experts_->newest());
      return placed;
    }
    auto workspace = device.make_workspace(plan_.placement().device(caller).gpu);
    if (device.gpu == nullptr) return PlacedExperts(std::move(packed), std::move(workspace), experts.hidden);
    return place(card, std::move(packed), experts.hidden, std::move(workspace));
  }

  Result<Router> router(const MoeSpec& spec) override {
    const std::size_t index = plan_.index_of(spec.router.front());
    MORACLE_ASSIGN(const CanonicalLinear stored, plan_.read_linear(index));
    MORACLE_ASSIGN(const std::vector<float> weight, dequantize(*stored.weight));
    stored.weight->release();
    Router router;
    MORACLE_ASSIGN(router.weight, store_of(index).add(std::span(weight)));
    MORACLE_ASSIGN(router.bias, store_of(index).add(std::span(stored.bias)));
    MORACLE_TRY(advance(index));
    return router;
  }

  Result<LatentProjection> latent(const LatentAttentionSpec& spec) override {
    const std::size_t index = plan_.index_of(spec.kv_b.path);
    MORACLE_ASSIGN(const CanonicalLinear linear, plan_.read_linear(index));
    MORACLE_ASSIGN(LatentProjection projection, read_latent(linear, spec.shape, pool_, store_of(index)));
    linear.weight->release();
    MORACLE_TRY(advance(index));
    return projection;
  }

  Result<DeviceArray<float>> array(const std::string& module, std::int64_t rows, std::int64_t /*cols*/, ArrayForm form,
                                   float factor) override {
    const std::size_t index = plan_.index_of(module);
    MORACLE_ASSIGN(std::vector<float> numbers, read_floats(*plan_.opened(index).tensor));
    bring_into(form, rows, numbers, factor);
    MORACLE_ASSIGN(const DeviceArray<float> array, store_of(index).add(std::span<const float>(numbers)));
    MORACLE_TRY(advance(index));
    return array;
  }

  Result<Rope> rope(const RopeSpec& spec) override {
    Rope rope{.scale = spec.scale};
    MORACLE_ASSIGN(rope.inv_freq, rope_store().add(std::span(spec.inv_freq)));
    return rope;
  }

  // What the parts need as long as they are.
  void hand_over(Transformer::Parts& parts) const {
    for (const std::unique_ptr<LoadDevice>& device : devices_) {
      parts.owners.push_back(device->weights);
      if (device->workspace != nullptr) parts.elsewhere.push_back(device->workspace);
    }
  }

 private:
  // By module, in the order of the plan, which is nearly that in which modules are asked for.
  [[nodiscard]] Prefetcher::Steps tensors_to_read() const {
    Prefetcher::Steps steps(plan_.modules().size());
    for (std::size_t module = 0; module < steps.size(); ++module) {
      if (!is_read(module)) continue;
      for (const TensorView* tensor : plan_.opened(module).tensors) steps[module].push_back(tensor->bytes);
    }
    return steps;
  }
  [[nodiscard]] bool is_read(std::size_t module) const {
    return experts_ == nullptr || plan_.modules()[module].kind != "experts";
  }

  Result<std::unique_ptr<PackedLinear>> pack(const LinearSpec& spec, bool head) {
    const std::size_t index = plan_.index_of(spec.path);
    MORACLE_ASSIGN(const CanonicalLinear linear, plan_.read_linear(index));
    MORACLE_TRY(check_order(index, !linear.weight->spec().g_idx.empty()));
    const KernelImplementation* const kernel = find_implementation(plan_.opened(index).winner->id);
    PackOptions options = options_of(index);
    options.head = head;
    options.batch_invariant = plan_.policy().batch_invariant;
    MORACLE_ASSIGN(std::unique_ptr<PackedLinear> packed, kernel->pack_linear(linear, options));
    linear.weight->release();
    MORACLE_TRY(advance(index));
    return packed;
  }

  [[nodiscard]] LoadDevice& device_of(std::size_t module) const {
    return *devices_[static_cast<std::size_t>(plan_.opened(module).device)];
  }
  [[nodiscard]] WeightStore& store_of(std::size_t module) const { return *device_of(module).weights; }
  [[nodiscard]] WeightStore& rope_store() const {
    return *devices_[static_cast<std::size_t>(plan_.placement().layers.front().mixer)]->weights;
  }
  [[nodiscard]] PackOptions options_of(std::size_t module) const {
    LoadDevice& device = device_of(module);
    PackOptions options{.pool = pool_};
    options.device = device.gpu;
    options.upload = device.upload ? &*device.upload : nullptr;
    options.scratch = device.scratch;
    return options;
  }

  // The kernel was chosen by what the config says of the columns' order.
  Result<> check_order(std::size_t module, bool act_order) const {
    if (!act_order || plan_.opened(module).winner->act_order) return Ok{};
    return Error{.code = "config.contradiction",
                 .where = plan_.modules()[module].name,
                 .wanted = "columns in the order of their groups, as the config says",
                 .found = "a group index of another order",
                 .advice = "desc_act or actorder in quantization_config tells of it"};
  }

  // Error: "interrupted".
  Result<> advance(std::size_t module) {
    prefetcher_.packed(module);
    if (is_read(module)) progress_.bytes_done += plan_.modules()[module].bytes;
    if (!options_.progress || options_.progress(progress_)) return Ok{};
    return Error{.code = "interrupted", .found = "a load under way"};
  }

  const Plan& plan_;
  ThreadPool& pool_;
  const LoadOptions& options_;
  ExpertPool* experts_;
  LoadProgress progress_{};
  Prefetcher prefetcher_;
  std::vector<std::unique_ptr<LoadDevice>> devices_;  // by DeviceId
};

// Everything that can be known to fail fails before the first byte is read. Returns the operations to use: those of the
// main GPU; on the host a model that runs on reference kernels alone is a reference throughout.
Result<std::shared_ptr<const Ops>> check_winners(const Plan& plan) {
  const std::shared_ptr<GpuDevice> gpu = plan.placement().main_gpu();
  const Machine host = probe_machine();
  bool reference = true;
  for (const ModuleReport& module : plan.modules()) {
    if (!module.decision) continue;
    MORACLE_ASSIGN(const KernelCard* const card, winner_of(*module.decision, *module.problem));
    if (find_implementation(card->id) == nullptr) {
      return Error{.code = "oracle.not_built",
                   .where = module.name,
                   .wanted = "a kernel that this build has",
                   .found = std::string(card->id)};
    }
    if ((card->cpu_features & ~host.cpu_features) != 0) {
      return Error{.code = "oracle.not_this_machine",
                   .where = module.name,
                   .wanted = "a kernel that this CPU can execute",
                   .found = std::string(card->id),
                   .advice = "the plan was made for another machine; load with --device cpu"};
    }
    const bool on_gpu = plan.opened(plan.index_of(module.name)).device != DeviceId::host;
    if (gpu != nullptr && on_gpu && card->device == DeviceKind::cpu) {
      return Error{.code = "device.kernel",
                   .where = module.name,
                   .wanted = "a kernel of " + gpu->name(),
                   .found = std::string(card->id),
                   .advice = "leave --backend out, or use --device cpu"};
    }
    reference = reference && card->backend == "ref";
  }
  if (gpu != nullptr) {
    MORACLE_ASSIGN(std::shared_ptr<const Ops> ops, device_ops(*gpu));
    return ops;
  }
  const Ops& ops = reference ? ref_ops() : host_ops(plan.placement().host().cpu_features & host.cpu_features);
  return std::shared_ptr<const Ops>(std::shared_ptr<const Ops>(), &ops);  // of the program
}

constexpr std::size_t kSequences = 64;

// Whether MORACLE_CUDA_GRAPHS leaves graphs on: 0 turns them off, so that the two can be compared.
bool wants_graphs() {
  const char* const value = std::getenv("MORACLE_CUDA_GRAPHS");
  return value == nullptr || std::string_view(value) != "0";
}

// Nine tenths of what the weights leave of a GPU, beside the workspace of a chunk and decode steps.
Result<std::size_t> gpu_kv_memory(const GpuDevice& gpu, const Transformer& model, const LoadOptions& options) {
  MORACLE_ASSIGN(const std::uint64_t free, gpu.room());
  const std::uint64_t workspace =
      model.workspace_bytes(model.prefill_chunk()) + model.decode_bytes() + model.graph_bytes();
  const std::uint64_t left = free > workspace ? (free - workspace) / 10 * 9 : 0;
  const std::int64_t context = options.context > 0 ? options.context : model.info().max_context;
  return std::min<std::size_t>(left, static_cast<std::size_t>(options.sequences) * model.state_bytes(context));
}

// What the weights leave of nine tenths of the host's memory, but never less than an eighth of it: a budget is address
// space until sequences grow. Where that is limited, kinds of blocks take half of what is left, for workspaces the
// rest.
Result<std::size_t> default_kv_memory(const Plan& plan, const Transformer& model, const LoadOptions& options) {
  if (const std::shared_ptr<GpuDevice> gpu = plan.placement().main_gpu()) return gpu_kv_memory(*gpu, model, options);
  std::size_t weights = 0;
  for (const ModuleReport& module : plan.modules()) weights += module.bytes;
  const std::size_t host = probe_machine().memory_bytes;
  const std::size_t most = host / 10 * 9;
  const std::size_t left = std::max(most > weights ? most - weights : 0, host / 8);
  const std::size_t addresses = address_space_left() / 2 / std::max<std::size_t>(model.state_kinds(), 1);
  return std::min({left, addresses, kSequences * model.state_bytes(plan.spec().info.max_context)});
}

// Of a load under a bound, its caller's or that of the machine.
struct HostRoom {
  std::size_t state = 0;               // bytes for sequences; 0: there is no bound
  std::int64_t prefill_chunk = 0;      // as of ExpertRoom
  std::shared_ptr<ExpertPool> pool{};  // null: all experts fit
};

Result<HostRoom> host_room(const LoadPlan& plan, const LoadOptions& options, const MemoryPlanOptions& call) {
  const RoomOptions bound{
      .memory = options.memory, .kv_memory = options.kv_memory, .expert_slots = options.expert_slots};
  const bool asks = options.memory > 0 || options.expert_slots > 0;
  auto asked = guarded("plan the memory", [&] {
    return asks ? expert_room(plan, bound, call) : usual_room(plan, read_free_memory("/"), bound, call);
  });
  MORACLE_ASSIGN(const ExpertRoom room, unless_changed(plan.opened().checkpoint(), std::move(asked)));
  HostRoom host{.state = room.bound > 0 ? room.state : 0, .prefill_chunk = room.prefill_chunk};
  if (room.pool.slots == 0) return host;
  MORACLE_ASSIGN(host.pool, ExpertPool::make(plan.opened().shared_checkpoint(), room.pool));
  return host;
}

}  // namespace

KvType default_kv_type(const Policy& policy) {
  return policy.pinned == "ref" ? KvType::f32 : KvType::bf16;
}

Result<std::unique_ptr<Model>> load_model(LoadPlan& plan, ThreadPool& pool, const LoadOptions& options) {
  const Plan& own = plan.opened();
  MORACLE_ASSIGN(const std::shared_ptr<const Ops> ops, check_winners(own));
  const KvType kv = options.kv.value_or(default_kv_type(own.policy()));
  MORACLE_TRY(check_operations(own.spec(), *ops, kv));
  const MemoryPlanOptions call{.context = std::min(kUsualContext, own.spec().info.max_context),
                               .batch_tokens = plan.prefill_chunk(),
                               .threads = pool.threads(),
                               .kv = kv};
  auto asked = guarded("plan the memory", [&] { return check_device_room(plan, call); });
  MORACLE_ASSIGN(const MemoryOnDevice room, unless_changed(own.checkpoint(), std::move(asked)));
  MORACLE_ASSIGN(const HostRoom host, host_room(plan, options, call));
  PackedModules modules(own, pool, options, host.pool.get());
  auto built = guarded("load the weights", [&] {
    return build_transformer(own.spec(), modules, *ops, {.kv = kv, .batch_invariant = own.policy().batch_invariant});
  });
  if (!built.ok()) built = with_room(std::move(built).error(), room);
  MORACLE_ASSIGN(Transformer::Parts parts, unless_changed(own.checkpoint(), std::move(built)));
  modules.hand_over(parts);
  parts.pool = host.pool;
  parts.prefill_chunk = host.prefill_chunk;
  parts.owners.push_back(ops);
  parts.device = own.placement().main_gpu();
  // A GPU that has no room for a usual chunk takes prompts in shorter ones.
  if (parts.device != nullptr && room.call_tokens < std::min(call.batch_tokens, call.context)) {
    parts.prefill_chunk = room.call_tokens;
  }
  MORACLE_TRY(own.checkpoint().verify_unchanged());
  return guarded("load the weights", [&]() -> Result<std::unique_ptr<Model>> {
    auto model = std::make_unique<Transformer>(std::move(parts), pool);
    std::size_t bytes = options.kv_memory;
    if (bytes == 0) bytes = std::min(host.state, kSequences * model->state_bytes(own.spec().info.max_context));
    if (bytes == 0) {
      MORACLE_ASSIGN(bytes, default_kv_memory(own, *model, options));
    }
    MORACLE_TRY(model->make_pool(bytes));
    MORACLE_TRY(model->prepare_decode(kDecodeSizes, wants_graphs()));
    return std::unique_ptr<Model>(std::move(model));
  });
}

}  // namespace moracle
