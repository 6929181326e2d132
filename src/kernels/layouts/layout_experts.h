// Foreign layouts as implementations of cards: each packs the experts of a layer from the canonical form and runs them
// on the host, reading weights from nothing but the packed bytes. Activations are quantized as the scheme says, which
// the device's kernel may do otherwise: the executor proves the layout, it does not imitate a kernel's arithmetic.
#pragma once

#include <array>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "base/checked.h"
#include "base/first_error.h"
#include "kernels/kernel.h"
#include "kernels/layouts/mapped_layouts.h"
#include "kernels/layouts/value_pack.h"
#include "kernels/row_experts.h"

namespace moracle::layout {

// One part of a packed matrix, row by row.
template <class Pack>
class PackedRows final : public RowMatrix {
 public:
  // `factor`: multiplies every weight; null: 1.
  PackedRows(const CanonicalLinear& linear, std::shared_ptr<const Pack> pack, std::int64_t part,
             std::shared_ptr<const float> factor = nullptr)
      : RowMatrix(linear), pack_(std::move(pack)), first_(part * pack_->head.part_rows()), factor_(std::move(factor)) {}
  void row(std::int64_t r, float* out) const override {
    decode_row(*pack_, first_ + r, out);
    if (factor_ == nullptr) return;
    for (std::int64_t k = 0; k < cols(); ++k) out[k] *= *factor_;
  }
  [[nodiscard]] float bias(std::int64_t r) const override { return bias_at(pack_->bias, first_ + r); }
  [[nodiscard]] std::size_t bytes() const override { return first_ == 0 ? pack_->bytes() : 0; }

 private:
  std::shared_ptr<const Pack> pack_;
  std::int64_t first_;
  std::shared_ptr<const float> factor_;
};

[[nodiscard]] inline Error no_memory_plan(const std::string& where) {
  return {.code = "layout.memory_plan",
          .where = where,
          .wanted = "weights to pack",
          .found = "a question about sizes, which external layouts do not answer"};
}

// A layer's packs, expert by expert.
template <class Pack>
struct LayerPacks {
  std::vector<std::shared_ptr<const Pack>> w13;
  std::vector<std::shared_ptr<const Pack>> w2;
};

// `pack(matrix, role)` gives a Result<Pack>. Experts are packed in parallel; an error is the first expert's that has
// one.
template <class Pack, class PackMatrix>
Result<LayerPacks<Pack>> pack_layer(const CanonicalExperts& experts, const PackOptions& options,
                                    const PackMatrix& pack) {
  if (options.layout_only) return no_memory_plan(experts.name);
  LayerPacks<Pack> packs;
  packs.w13.resize(experts.experts.size());
  packs.w2.resize(experts.experts.size());
  const auto one = [&](std::size_t e) -> Result<> {
    const CanonicalExperts::Expert& expert = experts.experts[e];
    MORACLE_ASSIGN(const LayoutMatrix w13, w13_matrix(expert));
    MORACLE_ASSIGN(Pack gate_up, pack(w13, Role::w13));
    MORACLE_ASSIGN(const LayoutMatrix w2, w2_matrix(expert));
    MORACLE_ASSIGN(Pack down, pack(w2, Role::w2));
    for (const CanonicalLinear* linear : {&expert.gate, &expert.up, &expert.down}) linear->weight->release();
    packs.w13[e] = std::make_shared<const Pack>(std::move(gate_up));
    packs.w2[e] = std::make_shared<const Pack>(std::move(down));
    return Ok{};
  };
  FirstError failed;
  options.pool.parallel_for(narrow<std::int64_t>(experts.experts.size()), [&](std::int64_t e, int) {
    if (!failed.failed()) failed.keep(e, one(narrow<std::size_t>(e)));
  });
  MORACLE_TRY(failed.take());
  return packs;
}

// `down_factor(e)`: see PackedRows.
template <class Pack, class DownFactor>
std::unique_ptr<PackedExperts> executor(const CanonicalExperts& experts, const PackOptions& options,
                                        const LayerPacks<Pack>& packs, const DownFactor& down_factor) {
  std::vector<RowExpert> rows(experts.experts.size());
  for (std::size_t e = 0; e < rows.size(); ++e) {
    const CanonicalExperts::Expert& expert = experts.experts[e];
    rows[e] = {.gate = std::make_unique<PackedRows<Pack>>(expert.gate, packs.w13[e], 0),
               .up = std::make_unique<PackedRows<Pack>>(expert.up, packs.w13[e], 1),
               .down = std::make_unique<PackedRows<Pack>>(expert.down, packs.w2[e], 0, down_factor(e))};
  }
  return make_row_experts(std::move(rows), options.activation);
}
template <class Pack>
std::unique_ptr<PackedExperts> executor(const CanonicalExperts& experts, const PackOptions& options,
                                        const LayerPacks<Pack>& packs) {
  return executor(experts, options, packs, [](std::size_t) { return std::shared_ptr<const float>(); });
}

// A linear from the pack of its one matrix.
template <class Pack, class PackMatrix>
Result<std::unique_ptr<PackedLinear>> linear_executor(const CanonicalLinear& linear, const PackOptions& options,
                                                      const PackMatrix& pack) {
  if (options.layout_only) return no_memory_plan(linear.weight->spec().name);
  const std::array parts{&linear};
  MORACLE_ASSIGN(const LayoutMatrix matrix, whole_matrix(parts));
  MORACLE_ASSIGN(Pack packed, pack(matrix, Role::linear));
  linear.weight->release();
  return make_row_linear(
      std::make_unique<PackedRows<Pack>>(linear, std::make_shared<const Pack>(std::move(packed)), 0));
}

template <const MappedLayout& Layout>
Result<std::unique_ptr<PackedExperts>> value_experts(const CanonicalExperts& experts, const PackOptions& options) {
  using Pack = ValuePack<Layout>;
  MORACLE_ASSIGN(const auto packs, pack_layer<Pack>(experts, options, pack_values<Layout>));
  return executor(experts, options, packs);
}

template <const MappedLayout& Layout>
Result<std::unique_ptr<PackedExperts>> mapped_experts(const CanonicalExperts& experts, const PackOptions& options) {
  using Pack = MappedPack<Layout>;
  MORACLE_ASSIGN(const auto packs, pack_layer<Pack>(experts, options, pack_mapped<Layout>));
  return executor(experts, options, packs);
}

// The b12x form of a layer. Where the checkpoint has no scale for the second multiplication's input (W4A16), the kernel
// still reads one: a vector of ones, made here once so that no call allocates it.
template <const MappedLayout& Layout>
struct B12xLayer {
  LayerPacks<MappedPack<Layout>> packs{};
  std::vector<float> fc2_input_scale{};  // [experts], ones
};
template <const MappedLayout& Layout>
Result<B12xLayer<Layout>> pack_b12x_layer(const CanonicalExperts& experts, const PackOptions& options) {
  B12xLayer<Layout> layer;
  MORACLE_ASSIGN(layer.packs, pack_layer<MappedPack<Layout>>(experts, options, pack_mapped<Layout>));
  layer.fc2_input_scale.assign(experts.experts.size(), 1.0F);
  return layer;
}
template <const MappedLayout& Layout>
Result<std::unique_ptr<PackedExperts>> b12x_layer_experts(const CanonicalExperts& experts, const PackOptions& options) {
  MORACLE_ASSIGN(B12xLayer<Layout> packed, pack_b12x_layer<Layout>(experts, options));
  const auto layer = std::make_shared<const B12xLayer<Layout>>(std::move(packed));
  return executor(experts, options, layer->packs, [&](std::size_t e) {
    return std::shared_ptr<const float>(layer, layer->fc2_input_scale.data() + e);
  });
}

// For the registry.
// 16-bit activations take up over gate, quantized ones gate over up.
Result<std::unique_ptr<PackedExperts>> b12x_experts(const CanonicalExperts& experts, const PackOptions& options);
// 16-bit activations take blocks of gate and up in turns, quantized ones gate over up.
Result<std::unique_ptr<PackedExperts>> aiter_mxfp4_experts(const CanonicalExperts& experts, const PackOptions& options);
Result<std::unique_ptr<PackedExperts>> marlin_wna16_experts(const CanonicalExperts& experts,
                                                            const PackOptions& options);
Result<std::unique_ptr<PackedExperts>> marlin_fp8_experts(const CanonicalExperts& experts, const PackOptions& options);
Result<std::unique_ptr<PackedExperts>> marlin_mx_experts(const CanonicalExperts& experts, const PackOptions& options);
Result<std::unique_ptr<PackedExperts>> marlin_nvfp4_experts(const CanonicalExperts& experts,
                                                            const PackOptions& options);
Result<std::unique_ptr<PackedLinear>> marlin_wna16_linear(const CanonicalLinear& linear, const PackOptions& options);
Result<std::unique_ptr<PackedLinear>> marlin_fp8_linear(const CanonicalLinear& linear, const PackOptions& options);
Result<std::unique_ptr<PackedLinear>> marlin_mx_linear(const CanonicalLinear& linear, const PackOptions& options);
Result<std::unique_ptr<PackedLinear>> marlin_nvfp4_linear(const CanonicalLinear& linear, const PackOptions& options);

}  // namespace moracle::layout
