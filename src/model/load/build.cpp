#include "model/load/build.h"

#include "base/checked.h"
#include "model/run/attention.h"
#include "model/run/delta_net.h"

namespace moracle {

namespace {

class Builder {
 public:
  Builder(const ModelSpec& spec, ModuleSource& source, const Ops& ops, KvType kv)
      : spec_(spec), source_(source), ops_(ops), kv_(kv) {}

  Result<Transformer::Parts> run() {
    Transformer::Parts parts;
    parts.info = spec_.info;
    parts.ropes = spec_.ropes;
    parts.ops = &ops_;
    MORACLE_ASSIGN(parts.embedding, source_.embedding(spec_.embedding));
    for (std::size_t l = 0; l < spec_.layers.size(); ++l) {
      const LayerSpec& layer = spec_.layers[l];
      TransformerLayer built;
      MORACLE_ASSIGN(built.input_norm, norm(layer.input_norm));
      MORACLE_ASSIGN(built.mixer, std::visit([&](const auto& mixer) { return build(mixer, l); }, layer.mixer));
      MORACLE_ASSIGN(built.post_norm, norm(layer.post_norm));
      MORACLE_ASSIGN(built.feed_forward, std::visit([&](const auto& ff) { return build(ff, l); }, layer.feed_forward));
      parts.layers.push_back(std::move(built));
    }
    MORACLE_ASSIGN(parts.final_norm, norm(spec_.final_norm));
    LinearSpec head = spec_.head;
    if (head.path.empty()) {  // tied: the plan has the embedding's weights under this name, too
      head = spec_.embedding;
      head.path = "lm_head";
    }
    MORACLE_ASSIGN(parts.head, source_.head(head));
    return parts;
  }

 private:
  Result<Norm> norm(const NormSpec& spec) {
    Norm norm{.weight = {}, .eps = spec.eps};
    MORACLE_ASSIGN(norm.weight, source_.floats(spec.path, spec.size));
    if (spec.one_plus) {
      for (float& weight : norm.weight) weight += 1.0F;
    }
    return norm;
  }

  Result<std::unique_ptr<Mixer>> build(const AttentionSpec& spec, std::size_t layer) {
    Attention::Parts parts;
    MORACLE_ASSIGN(parts.q, source_.linear(spec.q));
    MORACLE_ASSIGN(parts.k, source_.linear(spec.k));
    MORACLE_ASSIGN(parts.v, source_.linear(spec.v));
    if (spec.qk_norm.size() == 2) {
      MORACLE_ASSIGN(parts.q_norm, norm(spec.qk_norm[0]));
      MORACLE_ASSIGN(parts.k_norm, norm(spec.qk_norm[1]));
    }
    if (!spec.sinks.empty()) {
      MORACLE_ASSIGN(parts.sinks, source_.floats(spec.sinks, spec.heads));
    }
    MORACLE_ASSIGN(parts.o, source_.linear(spec.o));
    if (spec.head_gate) {
      MORACLE_ASSIGN(parts.head_gate, source_.linear(*spec.head_gate));
    }
    parts.element_gate = spec.element_gate;
    parts.heads = spec.heads;
    parts.kv_heads = spec.kv_heads;
    parts.head_dim = spec.head_dim;
    if (spec.rope) {
      parts.rotary_dims = spec_.ropes[*spec.rope].rotary_dims;
      parts.rope = *spec.rope;
    }
    parts.window = spec.window;
    parts.clip = spec.clip;
    parts.layer = layer;
    parts.kv = kv_;
    return std::unique_ptr<Mixer>(std::make_unique<Attention>(std::move(parts)));
  }

  // Null for a spec without a path.
  Result<std::unique_ptr<PackedLinear>> optional_linear(const LinearSpec& spec) {
    if (spec.path.empty()) return std::unique_ptr<PackedLinear>{};
    return source_.linear(spec);
  }

  Result<std::unique_ptr<Mixer>> build(const DeltaNetSpec& spec, std::size_t layer) {
    const std::int64_t channels = 2 * spec.key_heads * spec.key_dim + spec.value_heads * spec.value_dim;
    DeltaNet::Parts parts;
    MORACLE_ASSIGN(parts.qkv, source_.linear(spec.qkv));
    MORACLE_ASSIGN(parts.z, optional_linear(spec.z));
    MORACLE_ASSIGN(parts.b, source_.linear(spec.b));
    MORACLE_ASSIGN(parts.a, optional_linear(spec.a));
    MORACLE_ASSIGN(parts.conv, source_.floats(spec.conv, channels * spec.kernel));
    MORACLE_ASSIGN(parts.a_log, source_.floats(spec.a_log, spec.value_heads));
    MORACLE_ASSIGN(parts.dt_bias, source_.floats(spec.dt_bias, spec.value_heads));
    MORACLE_ASSIGN(parts.norm, norm(spec.norm));
    MORACLE_ASSIGN(parts.out, source_.linear(spec.out));
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
      MORACLE_ASSIGN(parts.q_a, source_.linear(*spec.q_a));
      MORACLE_ASSIGN(parts.q_norm, norm(spec.q_norm));
    }
    MORACLE_ASSIGN(parts.q, source_.linear(spec.q));
    MORACLE_ASSIGN(parts.kv_a, source_.linear(spec.kv_a));
    MORACLE_ASSIGN(parts.kv_norm, norm(spec.kv_norm));
    MORACLE_ASSIGN(parts.kv_b, source_.latent(spec));
    MORACLE_ASSIGN(parts.o, source_.linear(spec.o));
    parts.heads = spec.heads;
    parts.nope = spec.nope;
    parts.rotary = spec.rotary;
    parts.value = spec.value;
    parts.latent = spec.latent;
    parts.interleaved = spec.interleaved;
    parts.scale = spec.scale;
    parts.rope = spec.rope;
    parts.layer = layer;
    parts.kv = kv_;
    return std::unique_ptr<Mixer>(std::make_unique<LatentAttention>(std::move(parts)));
  }

  Result<std::unique_ptr<FeedForward>> build(const DenseSpec& spec, std::size_t) {
    MORACLE_ASSIGN(DenseMlp mlp, dense_mlp(spec));
    return std::unique_ptr<FeedForward>(std::make_unique<DenseMlp>(std::move(mlp)));
  }

  Result<DenseMlp> dense_mlp(const DenseSpec& spec) {
    DenseMlp::Parts parts;
    MORACLE_ASSIGN(parts.gate, source_.linear(spec.gate));
    MORACLE_ASSIGN(parts.up, source_.linear(spec.up));
    MORACLE_ASSIGN(parts.down, source_.linear(spec.down));
    parts.intermediate = spec.gate.out;
    parts.activation = spec.activation;
    return DenseMlp(std::move(parts));
  }

  Result<std::unique_ptr<FeedForward>> build(const MoeSpec& spec, std::size_t layer) {
    MoeLayer::Parts parts;
    MORACLE_ASSIGN(ModuleSource::Router router, source_.router(spec));
    parts.router = std::move(router.weight);
    parts.router_bias = std::move(router.bias);
    if (!spec.correction_bias.empty()) {
      MORACLE_ASSIGN(parts.correction_bias, source_.floats(spec.correction_bias.front(), spec.routing.experts));
    }
    MORACLE_ASSIGN(parts.experts, source_.experts(spec));
    parts.routing = spec.routing;
    parts.hidden = spec.experts.hidden;
    parts.layer = narrow<std::int32_t>(layer);
    parts.ops = &ops_;
    MoeFeedForward::Parts block{.routed = MoeLayer(std::move(parts)), .hidden = spec.experts.hidden};
    if (spec.shared) {
      MORACLE_ASSIGN(block.shared, dense_mlp(spec.shared->mlp));
      if (!spec.shared->gate.path.empty()) {
        MORACLE_ASSIGN(block.shared_gate, source_.linear(spec.shared->gate));
      }
    }
    return std::unique_ptr<FeedForward>(std::make_unique<MoeFeedForward>(std::move(block)));
  }

  const ModelSpec& spec_;
  ModuleSource& source_;
  const Ops& ops_;
  KvType kv_;
};

}  // namespace

Result<Transformer::Parts> build_transformer(const ModelSpec& spec, ModuleSource& source, const Ops& ops, KvType kv) {
  return Builder(spec, source, ops, kv).run();
}

}  // namespace moracle
