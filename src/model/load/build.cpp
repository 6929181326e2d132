#include "model/load/build.h"

#include <type_traits>

#include "base/checked.h"
#include "model/load/parameters.h"

namespace moracle {

namespace {

class Builder {
 public:
  Builder(const ModelSpec& spec, ModuleSource& source, const Ops& ops, const BuildOptions& options)
      : spec_(spec), source_(source), ops_(ops), options_(options) {}

  // What visit_parameters() asks for.
  using LinearPart = std::unique_ptr<PackedLinear>;
  static Result<> divide(std::int64_t /*size*/, const std::string& /*module*/, const char* /*what*/) { return Ok{}; }
  static Result<> divide_kv_heads(std::int64_t /*size*/, const std::string& /*module*/) { return Ok{}; }
  Result<> whole(const LinearSpec& spec, LinearPart& part) {
    MORACLE_ASSIGN(part, source_.linear(spec));
    return Ok{};
  }
  Result<> rows(const LinearSpec& spec, LinearPart& part, std::int64_t /*out*/) { return whole(spec, part); }
  Result<> columns(const LinearSpec& spec, LinearPart& part, std::int64_t /*in*/) { return whole(spec, part); }
  Result<> shared_gate(const LinearSpec& spec, LinearPart& part) { return whole(spec, part); }
  Result<> norm(const NormSpec& spec, Norm& part, std::int64_t /*size*/) {
    MORACLE_ASSIGN(part, norm(spec));
    return Ok{};
  }
  Result<> tensor(const std::string& module, const std::string& /*name*/, std::string_view /*kind*/,
                  const std::vector<std::int64_t>& shape, ArrayForm form, DeviceArray<float>& part) {
    std::int64_t cols = 1;
    for (const std::int64_t dim : std::span(shape).subspan(1)) cols *= dim;
    MORACLE_ASSIGN(part, source_.array(module, shape.front(), cols, form, 1.0F));
    return Ok{};
  }
  Result<> absorbed(const LatentAttentionSpec& spec, LatentProjection& part, std::int64_t /*out*/) {
    MORACLE_ASSIGN(part, source_.latent(spec));
    return Ok{};
  }
  Result<> router(const MoeSpec& spec, MoeLayer::Parts& parts) {
    MORACLE_ASSIGN(const ModuleSource::Router router, source_.router(spec));
    parts.router = router.weight;
    parts.router_bias = router.bias;
    return Ok{};
  }
  Result<> correction_bias(const MoeSpec& spec, DeviceArray<float>& part) {
    MORACLE_ASSIGN(part, source_.array(spec.correction_bias.front(), spec.routing.rows(), 1, ArrayForm::stored, 1.0F));
    return Ok{};
  }
  Result<> experts(const MoeSpec& spec, PlacedExperts& part) {
    MORACLE_ASSIGN(part, source_.experts(spec));
    return Ok{};
  }

  Result<TransformerParts> run() {
    TransformerParts parts;
    parts.info = spec_.info;
    parts.ops = &ops_;
    for (const RopeSpec& rope : spec_.ropes) {
      MORACLE_ASSIGN(parts.ropes.emplace_back(), source_.rope(rope));
    }
    MORACLE_ASSIGN(parts.embedding, source_.embedding(spec_.embedding));
    for (std::size_t l = 0; l < spec_.layers.size(); ++l) {
      const LayerSpec& layer = spec_.layers[l];
      TransformerLayer built;
      MORACLE_ASSIGN(built.input_norm, norm(layer.input_norm));
      MORACLE_TRY(std::visit([&](const auto& mixer) { return build_part(mixer, l, built.mixer); }, layer.mixer));
      MORACLE_ASSIGN(built.mixer_norm, norm(layer.mixer_norm));
      MORACLE_ASSIGN(built.post_norm, norm(layer.post_norm));
      MORACLE_TRY(
          std::visit([&](const auto& part) { return build_part(part, l, built.feed_forward); }, layer.feed_forward));
      MORACLE_ASSIGN(built.feed_forward_norm, norm(layer.feed_forward_norm));
      built.parallel = layer.parallel;
      if (!layer.scalar.empty()) {
        MORACLE_ASSIGN(built.scalar, source_.array(layer.scalar, 1, 1, ArrayForm::stored, 1.0F));
      }
      parts.layers.push_back(std::move(built));
    }
    link(parts.layers);
    MORACLE_ASSIGN(parts.final_norm, norm(spec_.final_norm));
    parts.multipliers = spec_.multipliers;
    LinearSpec head = spec_.head;
    if (head.path.empty()) {  // tied: the plan has the embedding's weights under this name, too
      head = spec_.embedding;
      head.path = "lm_head";
    }
    MORACLE_ASSIGN(parts.head, source_.head(head));
    return parts;
  }

 private:
  // Each layer with routed experts to the next one.
  static void link(std::span<TransformerLayer> layers) {
    MoeLayer* before = nullptr;
    for (TransformerLayer& layer : layers) {
      MoeLayer* const routed = layer.feed_forward != nullptr ? layer.feed_forward->routed() : nullptr;
      if (routed == nullptr) continue;
      if (before != nullptr) before->set_next(*routed);
      before = routed;
    }
  }

  Result<Norm> norm(const NormSpec& spec) {
    Norm norm{.eps = spec.eps, .centred = spec.centred};
    if (!spec.exists()) return norm;
    const ArrayForm form = spec.one_plus ? ArrayForm::one_plus : ArrayForm::stored;
    MORACLE_ASSIGN(norm.weight, source_.array(spec.path, spec.size, 1, form, spec.factor));
    if (spec.bias) {
      MORACLE_ASSIGN(norm.bias, source_.array(spec.path + ".bias", spec.size, 1, ArrayForm::stored, 1.0F));
    }
    return norm;
  }

  template <class Spec, class Part>
  Result<> build_part(const Spec& spec, std::size_t layer, std::unique_ptr<Part>& part) {
    if constexpr (!std::is_same_v<Spec, AbsentSpec>) {
      MORACLE_ASSIGN(part, build(spec, layer));
    }
    return Ok{};
  }

  template <class Spec>
  auto parts(const Spec& spec) -> Result<decltype(parts_of(spec))> {
    auto made = parts_of(spec);
    MORACLE_TRY(visit_parameters(*this, spec, made));
    return made;
  }

  Result<std::unique_ptr<Mixer>> build(const AttentionSpec& spec, std::size_t layer) {
    MORACLE_ASSIGN(Attention::Parts made, parts(spec));
    made.layer = layer;
    made.kv = options_.kv;
    made.batch_invariant = options_.batch_invariant;
    return std::unique_ptr<Mixer>(std::make_unique<Attention>(std::move(made)));
  }

  Result<std::unique_ptr<Mixer>> build(const DeltaNetSpec& spec, std::size_t layer) {
    MORACLE_ASSIGN(DeltaNet::Parts made, parts(spec));
    made.layer = layer;
    made.batch_invariant = options_.batch_invariant;
    return std::unique_ptr<Mixer>(std::make_unique<DeltaNet>(std::move(made)));
  }

  Result<std::unique_ptr<Mixer>> build(const LatentAttentionSpec& spec, std::size_t layer) {
    MORACLE_ASSIGN(LatentAttention::Parts made, parts(spec));
    made.layer = layer;
    made.kv = options_.kv;
    made.batch_invariant = options_.batch_invariant;
    return std::unique_ptr<Mixer>(std::make_unique<LatentAttention>(std::move(made)));
  }

  Result<std::unique_ptr<Mixer>> build(const ShortConvolutionSpec& spec, std::size_t layer) {
    MORACLE_ASSIGN(ShortConvolution::Parts made, parts(spec));
    made.layer = layer;
    return std::unique_ptr<Mixer>(std::make_unique<ShortConvolution>(std::move(made)));
  }

  Result<std::unique_ptr<Mixer>> build(const StateSpaceSpec& spec, std::size_t layer) {
    MORACLE_ASSIGN(StateSpace::Parts made, parts(spec));
    made.layer = layer;
    return std::unique_ptr<Mixer>(std::make_unique<StateSpace>(std::move(made)));
  }

  Result<std::unique_ptr<FeedForward>> build(const DenseSpec& spec, std::size_t /*layer*/) {
    MORACLE_ASSIGN(DenseMlp::Parts made, parts(spec));
    return std::unique_ptr<FeedForward>(std::make_unique<DenseMlp>(std::move(made)));
  }

  Result<std::unique_ptr<FeedForward>> build(const MoeSpec& spec, std::size_t layer) {
    MORACLE_ASSIGN(MoeParts made, parts(spec));
    made.routed.layer = narrow<std::int32_t>(layer);
    made.routed.batch_invariant = options_.batch_invariant;
    made.routed.ops = &ops_;
    MoeFeedForward::Parts block{.routed = MoeLayer(std::move(made.routed)), .hidden = spec.hidden()};
    if (spec.shared) block.shared.emplace(std::move(made.shared));
    block.shared_gate = std::move(made.shared_gate);
    if (spec.shared) block.shared_mean = spec.shared->mean;
    if (spec.apart) block.apart = made.apart;
    if (spec.latent) block.latent.emplace(std::move(made.latent));
    block.late = spec.late;
    block.zero_experts = spec.routing.zero_experts > 0;
    return std::unique_ptr<FeedForward>(std::make_unique<MoeFeedForward>(std::move(block)));
  }

  const ModelSpec& spec_;
  ModuleSource& source_;
  const Ops& ops_;
  BuildOptions options_;
};

}  // namespace

Result<TransformerParts> build_transformer(const ModelSpec& spec, ModuleSource& source, const Ops& ops,
                                           const BuildOptions& options) {
  return Builder(spec, source, ops, options).run();
}

}  // namespace moracle
