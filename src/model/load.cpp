// Turns a plan into a model: packs every module with the kernel that was decided on, and lets go of the file.
#include <algorithm>

#include "format/tensor_check.h"
#include "kernels/vector/select.h"
#include "model/attention.h"
#include "model/delta_net.h"
#include "model/mla.h"
#include "model/plan.h"
#include "model/transformer.h"

namespace moracle {

namespace {

class Loader {
 public:
  Loader(const Plan& plan, ThreadPool& pool, const std::function<void(const LoadProgress&)>& progress)
      : plan_(plan), pool_(pool), report_(progress) {
    for (const ModuleReport& module : plan.modules()) progress_.bytes_total += module.bytes;
  }

  Result<std::unique_ptr<Model>> run() {
    MORACLE_TRY(check_winners());
    const ModelSpec& spec = plan_.spec();
    Transformer::Parts parts;
    parts.info = spec.info;
    parts.ropes = spec.ropes;
    parts.ops = ops_;
    const bool tied = spec.head.path.empty();
    const std::size_t table = plan_.index_of(spec.embedding.path);
    MORACLE_ASSIGN(parts.embedding, Embedding::load(*plan_.opened(table).linear.weight, pool_));
    if (!tied) plan_.opened(table).linear.weight->release();
    advance(table);
    for (std::size_t l = 0; l < spec.layers.size(); ++l) {
      const LayerSpec& layer = spec.layers[l];
      TransformerLayer built;
      MORACLE_ASSIGN(built.input_norm, norm(layer.input_norm));
      MORACLE_ASSIGN(built.mixer, std::visit([&](const auto& mixer) { return build(mixer, l); }, layer.mixer));
      MORACLE_ASSIGN(built.post_norm, norm(layer.post_norm));
      MORACLE_ASSIGN(built.feed_forward, std::visit([&](const auto& ff) { return build(ff); }, layer.feed_forward));
      parts.layers.push_back(std::move(built));
    }
    MORACLE_ASSIGN(parts.final_norm, norm(spec.final_norm));
    MORACLE_ASSIGN(parts.head, linear(tied ? "lm_head" : spec.head.path));
    MORACLE_TRY(plan_.checkpoint().verify_unchanged());
    return std::unique_ptr<Model>(std::make_unique<Transformer>(std::move(parts), pool_));
  }

 private:
  // Everything that can be known to fail fails before the first byte is read. Chooses the vector loops on the way: a
  // model that runs on reference kernels alone is a reference throughout.
  Result<> check_winners() {
    const Machine host = probe_machine();
    bool reference = true;
    for (std::size_t i = 0; i < plan_.modules().size(); ++i) {
      const ModuleReport& module = plan_.modules()[i];
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
      reference = reference && card->backend == "ref";
    }
    ops_ = reference ? &scalar_vector_ops() : &vector_ops(plan_.machine().cpu_features & host.cpu_features);
    return Ok{};
  }

  void advance(std::size_t module) {
    progress_.bytes_done += plan_.modules()[module].bytes;
    if (report_) report_(progress_);
  }

  Result<std::vector<float>> floats(const std::string& module) {
    const std::size_t index = plan_.index_of(module);
    MORACLE_ASSIGN(std::vector<float> values, read_floats(*plan_.opened(index).tensor));
    advance(index);
    return values;
  }

  Result<Norm> norm(const NormSpec& spec) {
    Norm norm{.weight = {}, .eps = spec.eps};
    MORACLE_ASSIGN(norm.weight, floats(spec.path));
    if (spec.one_plus) {
      for (float& weight : norm.weight) weight += 1.0F;
    }
    return norm;
  }

  Result<std::unique_ptr<PackedLinear>> linear(const std::string& path) {
    const std::size_t index = plan_.index_of(path);
    const OpenedModule& module = plan_.opened(index);
    const KernelImplementation* const kernel = find_implementation(module.winner->id);
    MORACLE_ASSIGN(std::unique_ptr<PackedLinear> packed,
                   kernel->pack_linear(module.linear, PackOptions{.pool = pool_}));
    module.linear.weight->release();
    advance(index);
    return packed;
  }

  Result<std::unique_ptr<Mixer>> build(const AttentionSpec& spec, std::size_t layer) {
    Attention::Parts parts;
    MORACLE_ASSIGN(parts.q, linear(spec.q.path));
    MORACLE_ASSIGN(parts.k, linear(spec.k.path));
    MORACLE_ASSIGN(parts.v, linear(spec.v.path));
    if (spec.qk_norm.size() == 2) {
      MORACLE_ASSIGN(parts.q_norm, norm(spec.qk_norm[0]));
      MORACLE_ASSIGN(parts.k_norm, norm(spec.qk_norm[1]));
    }
    if (!spec.sinks.empty()) {
      MORACLE_ASSIGN(parts.sinks, floats(spec.sinks));
    }
    MORACLE_ASSIGN(parts.o, linear(spec.o.path));
    if (spec.head_gate) {
      MORACLE_ASSIGN(parts.head_gate, linear(spec.head_gate->path));
    }
    parts.element_gate = spec.element_gate;
    parts.heads = spec.heads;
    parts.kv_heads = spec.kv_heads;
    parts.head_dim = spec.head_dim;
    if (spec.rope) {
      parts.rotary_dims = plan_.spec().ropes[*spec.rope].rotary_dims;
      parts.rope = *spec.rope;
    }
    parts.window = spec.window;
    parts.clip = spec.clip;
    parts.layer = layer;
    return std::unique_ptr<Mixer>(std::make_unique<Attention>(std::move(parts)));
  }

  // Null for a spec without a path.
  Result<std::unique_ptr<PackedLinear>> optional_linear(const LinearSpec& spec) {
    if (spec.path.empty()) return std::unique_ptr<PackedLinear>{};
    return linear(spec.path);
  }

  Result<std::unique_ptr<Mixer>> build(const DeltaNetSpec& spec, std::size_t layer) {
    DeltaNet::Parts parts;
    MORACLE_ASSIGN(parts.qkv, linear(spec.qkv.path));
    MORACLE_ASSIGN(parts.z, optional_linear(spec.z));
    MORACLE_ASSIGN(parts.b, linear(spec.b.path));
    MORACLE_ASSIGN(parts.a, optional_linear(spec.a));
    MORACLE_ASSIGN(parts.conv, floats(spec.conv));
    MORACLE_ASSIGN(parts.a_log, floats(spec.a_log));
    MORACLE_ASSIGN(parts.dt_bias, floats(spec.dt_bias));
    MORACLE_ASSIGN(parts.norm, norm(spec.norm));
    MORACLE_ASSIGN(parts.out, linear(spec.out.path));
    parts.key_heads = spec.key_heads;
    parts.value_heads = spec.value_heads;
    parts.key_dim = spec.key_dim;
    parts.value_dim = spec.value_dim;
    parts.kernel = spec.kernel;
    parts.layer = layer;
    return std::unique_ptr<Mixer>(std::make_unique<DeltaNet>(std::move(parts)));
  }

  Result<std::unique_ptr<Mixer>> build(const LatentAttentionSpec& spec, std::size_t layer) {
    LatentAttention::Parts parts;
    if (spec.q_a) {
      MORACLE_ASSIGN(parts.q_a, linear(spec.q_a->path));
      MORACLE_ASSIGN(parts.q_norm, norm(spec.q_norm));
    }
    MORACLE_ASSIGN(parts.q, linear(spec.q.path));
    MORACLE_ASSIGN(parts.kv_a, linear(spec.kv_a.path));
    MORACLE_ASSIGN(parts.kv_norm, norm(spec.kv_norm));
    const std::size_t kv_b = plan_.index_of(spec.kv_b.path);
    const CanonicalLinear& projection = plan_.opened(kv_b).linear;
    MORACLE_ASSIGN(parts.kv_b, LatentProjection::load(projection, spec.heads, spec.nope, spec.value, pool_));
    projection.weight->release();
    advance(kv_b);
    MORACLE_ASSIGN(parts.o, linear(spec.o.path));
    parts.heads = spec.heads;
    parts.nope = spec.nope;
    parts.rotary = spec.rotary;
    parts.value = spec.value;
    parts.latent = spec.latent;
    parts.interleaved = spec.interleaved;
    parts.scale = spec.scale;
    parts.rope = spec.rope;
    parts.layer = layer;
    return std::unique_ptr<Mixer>(std::make_unique<LatentAttention>(std::move(parts)));
  }

  Result<std::unique_ptr<FeedForward>> build(const DenseSpec& spec) {
    MORACLE_ASSIGN(DenseMlp mlp, dense_mlp(spec));
    return std::unique_ptr<FeedForward>(std::make_unique<DenseMlp>(std::move(mlp)));
  }

  Result<DenseMlp> dense_mlp(const DenseSpec& spec) {
    DenseMlp::Parts parts;
    MORACLE_ASSIGN(parts.gate, linear(spec.gate.path));
    MORACLE_ASSIGN(parts.up, linear(spec.up.path));
    MORACLE_ASSIGN(parts.down, linear(spec.down.path));
    parts.intermediate = spec.gate.out;
    parts.activation = spec.activation;
    return DenseMlp(std::move(parts));
  }

  Result<std::unique_ptr<FeedForward>> build(const MoeSpec& spec) {
    MoeLayer::Parts parts;
    const std::size_t router = plan_.index_of(spec.router.front());
    const CanonicalLinear& weights = plan_.opened(router).linear;
    MORACLE_ASSIGN(parts.router, dequantize(*weights.weight));
    parts.router_bias = weights.bias;
    weights.weight->release();
    advance(router);
    if (!spec.correction_bias.empty()) {
      MORACLE_ASSIGN(parts.correction_bias, floats(spec.correction_bias.front()));
    }
    const std::size_t index = plan_.index_of(spec.experts.name);
    const OpenedModule& module = plan_.opened(index);
    const KernelImplementation* const kernel = find_implementation(module.winner->id);
    MORACLE_ASSIGN(parts.experts, kernel->pack_experts(module.experts, {.pool = pool_, .activation = spec.activation}));
    release(module.experts);
    advance(index);
    parts.routing = spec.routing;
    parts.hidden = spec.experts.hidden;
    parts.ops = ops_;
    MoeFeedForward::Parts layer{.routed = MoeLayer(std::move(parts)), .hidden = spec.experts.hidden};
    if (spec.shared) {
      MORACLE_ASSIGN(layer.shared, dense_mlp(spec.shared->mlp));
      if (!spec.shared->gate.path.empty()) {
        MORACLE_ASSIGN(layer.shared_gate, linear(spec.shared->gate.path));
      }
    }
    return std::unique_ptr<FeedForward>(std::make_unique<MoeFeedForward>(std::move(layer)));
  }

  static void release(const CanonicalExperts& experts) {
    for (const auto& expert : experts.experts) {
      for (const CanonicalLinear* linear : {&expert.gate, &expert.up, &expert.down}) linear->weight->release();
    }
  }

  const Plan& plan_;
  ThreadPool& pool_;
  const std::function<void(const LoadProgress&)>& report_;
  LoadProgress progress_{};
  const VectorOps* ops_ = nullptr;
};

}  // namespace

Result<std::unique_ptr<Model>> load_model(LoadPlan& plan, ThreadPool& pool,
                                          const std::function<void(const LoadProgress&)>& progress) {
  auto* const own = dynamic_cast<Plan*>(&plan);
  if (own == nullptr) {
    return Error{.code = "model.plan", .wanted = "a plan made by LoadPlan::make", .found = "another implementation"};
  }
  return Loader(*own, pool, progress).run();
}

}  // namespace moracle
