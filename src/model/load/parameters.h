// What each block has in a checkpoint, declared once, in the order in which a model runs. One visitor opens it
// (plan.cpp), one builds the block (build.cpp), one cuts it for a rank (parallel_cut.cpp); bytes are counted on blocks
// that were built without weights (memory_plan.cpp).
//
// A visitor offers, each with a Result<>:
//   divide(size, module, what)               a size that ranks share
//   divide_kv_heads(size, module)            the same; more ranks than key heads hold copies
//   rows(linear, part, out)                  a linear of which a rank has `out` outputs,
//   columns(linear, part, in)                `in` inputs,
//   whole(linear, part)                      or all
//   norm(norm, part, size)                   over so many numbers on a rank
//   tensor(module, name, kind, shape, form, part)
//                                            the stored tensor `name`, read whole and brought into a form
//   absorbed(spec, part, out)                the projection of latent attention, `out` rows of it on a rank
//   router(spec, parts), correction_bias(spec, part), experts(spec, part), shared_gate(linear, part)
#pragma once

#include <concepts>
#include <memory>
#include <type_traits>

#include "model/blocks/attention.h"
#include "model/blocks/delta_net.h"
#include "model/blocks/mla.h"
#include "model/blocks/short_convolution.h"
#include "model/blocks/state_space.h"
#include "model/load/read_arrays.h"
#include "model/spec/spec.h"

namespace moracle {

template <class S, class Spec>
concept SpecOf = std::same_as<std::remove_const_t<S>, Spec>;

struct MoeParts {
  MoeLayer::Parts routed{};
  DenseMlp::Parts shared{};
  std::unique_ptr<PackedLinear> shared_gate{};
  MoeFeedForward::Apart apart{};
  MoeFeedForward::Latent latent{};
};

// A block before its parameters.
inline Attention::Parts parts_of(const AttentionSpec& spec) {
  Attention::Parts parts;
  parts.shape = spec.shape;
  parts.rope = spec.rope;
  return parts;
}
inline DeltaNet::Parts parts_of(const DeltaNetSpec& spec) {
  DeltaNet::Parts parts;
  parts.shape = spec.shape;
  if (spec.z_low) parts.z_rank = spec.z_low->out;
  if (spec.a_low) parts.a_rank = spec.a_low->out;
  return parts;
}
inline LatentAttention::Parts parts_of(const LatentAttentionSpec& spec) {
  LatentAttention::Parts parts;
  parts.shape = spec.shape;
  if (spec.indexer) parts.indexer.shape = spec.indexer->shape;
  parts.rope = spec.rope;
  return parts;
}
inline ShortConvolution::Parts parts_of(const ShortConvolutionSpec& spec) {
  ShortConvolution::Parts parts;
  parts.shape = spec.shape;
  return parts;
}
inline StateSpace::Parts parts_of(const StateSpaceSpec& spec) {
  StateSpace::Parts parts;
  parts.shape = spec.shape;
  parts.kernel = spec.kernel;
  parts.norm_groups = spec.norm_groups;
  return parts;
}
inline DenseMlp::Parts parts_of(const DenseSpec& spec) {
  DenseMlp::Parts parts;
  parts.intermediate = spec.gate.out;
  parts.activation = spec.activation;
  return parts;
}
inline MoeParts parts_of(const MoeSpec& spec) {
  MoeParts parts;
  parts.routed.routing = spec.routing;
  parts.routed.hidden = spec.hidden();
  parts.latent.width = spec.experts.hidden;
  if (spec.shared) parts.shared = parts_of(spec.shared->mlp);
  return parts;
}

template <class Visitor, SpecOf<AttentionSpec> Spec>
Result<> visit_parameters(Visitor& visitor, Spec& spec, Attention::Parts& parts) {
  auto& shape = spec.shape;
  MORACLE_TRY(visitor.divide(shape.heads, spec.q.path, "attention heads"));
  MORACLE_TRY(visitor.divide_kv_heads(shape.kv_heads, spec.k.path));
  MORACLE_TRY(visitor.rows(spec.q, parts.q, shape.q_width()));
  MORACLE_TRY(visitor.rows(spec.k, parts.k, shape.kv_width()));
  if (!spec.v.path.empty()) MORACLE_TRY(visitor.rows(spec.v, parts.v, shape.value_width()));
  if (spec.qk_norm.size() == 2) {
    const bool each_head = spec.qk_norm[0].size == shape.head_dim;
    MORACLE_TRY(visitor.norm(spec.qk_norm[0], parts.q_norm, each_head ? shape.head_dim : shape.width()));
    MORACLE_TRY(visitor.norm(spec.qk_norm[1], parts.k_norm, each_head ? shape.head_dim : shape.kv_width()));
  }
  if (!spec.sinks.empty()) {
    MORACLE_TRY(visitor.tensor(spec.sinks, spec.sinks, "sinks", {shape.heads}, ArrayForm::stored, parts.sinks));
  }
  if (spec.head_gate) MORACLE_TRY(visitor.rows(*spec.head_gate, parts.head_gate, shape.heads));
  if (spec.wide_gate) MORACLE_TRY(visitor.rows(*spec.wide_gate, parts.wide_gate, shape.out_width()));
  return visitor.columns(spec.o, parts.o, shape.out_width());
}

// A tap for each of `kernel` tokens and each channel, of the convolution at `path`.
template <class Visitor>
Result<> visit_taps(Visitor& visitor, const std::string& path, std::int64_t channels, std::int64_t kernel,
                    DeviceArray<float>& part) {
  return visitor.tensor(path, path + ".weight", "convolution", {channels, 1, kernel}, ArrayForm::transposed, part);
}

// q, k and v, and their convolutions.
template <class Visitor, SpecOf<DeltaNetSpec> Spec>
Result<> visit_inputs(Visitor& visitor, Spec& spec, DeltaNet::Parts& parts) {
  const auto& shape = spec.shape;
  if (!shape.apart) {
    const std::int64_t channels = shape.channels();
    MORACLE_TRY(visitor.rows(spec.qkv, parts.qkv, shape.grouped ? channels + shape.value_width() : channels));
    return visit_taps(visitor, spec.conv, channels, shape.kernel, parts.taps);
  }
  MORACLE_TRY(visitor.rows(spec.qkv, parts.qkv, shape.key_width()));
  MORACLE_TRY(visitor.rows(spec.k, parts.k, shape.key_width()));
  MORACLE_TRY(visitor.rows(spec.v, parts.v, shape.value_width()));
  MORACLE_TRY(visit_taps(visitor, spec.conv, shape.key_width(), shape.kernel, parts.taps));
  MORACLE_TRY(visit_taps(visitor, spec.k_conv, shape.key_width(), shape.kernel, parts.k_taps));
  return visit_taps(visitor, spec.v_conv, shape.value_width(), shape.kernel, parts.v_taps);
}

template <class Visitor, SpecOf<DeltaNetSpec> Spec>
Result<> visit_parameters(Visitor& visitor, Spec& spec, DeltaNet::Parts& parts) {
  auto& shape = spec.shape;
  MORACLE_TRY(visitor.divide(shape.key_heads, spec.qkv.path, "key heads"));
  MORACLE_TRY(visitor.divide(shape.value_heads, spec.qkv.path, "value heads"));
  MORACLE_TRY(visit_inputs(visitor, spec, parts));
  if (spec.z_low) MORACLE_TRY(visitor.whole(*spec.z_low, parts.z_low));
  if (!shape.grouped) MORACLE_TRY(visitor.rows(spec.z, parts.z, shape.value_width()));
  MORACLE_TRY(visitor.rows(spec.b, parts.b, shape.grouped ? 2 * shape.value_heads : shape.value_heads));
  if (spec.a_low) MORACLE_TRY(visitor.whole(*spec.a_low, parts.a_low));
  if (!shape.grouped) MORACLE_TRY(visitor.rows(spec.a, parts.a, shape.decays()));
  const std::int64_t heads = shape.value_heads;
  const std::vector<std::int64_t> rates =
      spec.a_log_wide ? std::vector<std::int64_t>{1, 1, heads, 1} : std::vector{heads};
  MORACLE_TRY(visitor.tensor(spec.a_log, spec.a_log, "recurrence", rates, ArrayForm::exponential, parts.rate));
  MORACLE_TRY(
      visitor.tensor(spec.dt_bias, spec.dt_bias, "recurrence", {shape.decays()}, ArrayForm::stored, parts.dt_bias));
  MORACLE_TRY(visitor.norm(spec.norm, parts.norm, spec.norm.size));
  return visitor.columns(spec.out, parts.out, shape.value_width());
}

template <class Visitor>
Result<> visit_taps(Visitor& visitor, const TapsSpec& spec, std::int64_t channels, std::int64_t kernel, Taps& parts) {
  MORACLE_TRY(visit_taps(visitor, spec.path, channels, kernel, parts.weight));
  if (!spec.bias) return Ok{};
  const std::string bias = spec.path + ".bias";
  return visitor.tensor(bias, bias, "convolution", {channels}, ArrayForm::stored, parts.bias);
}

template <class Visitor, SpecOf<ShortConvolutionSpec> Spec>
Result<> visit_parameters(Visitor& visitor, Spec& spec, ShortConvolution::Parts& parts) {
  auto& shape = spec.shape;
  MORACLE_TRY(visitor.divide(shape.channels, spec.x.path, "channels"));
  MORACLE_TRY(visitor.rows(spec.times, parts.times, shape.channels));
  MORACLE_TRY(visitor.rows(spec.gate, parts.gate, shape.channels));
  MORACLE_TRY(visitor.rows(spec.x, parts.x, shape.channels));
  MORACLE_TRY(visit_taps(visitor, spec.taps, shape.channels, shape.kernel, parts.taps));
  return visitor.columns(spec.out, parts.out, shape.channels);
}

template <class Visitor, SpecOf<StateSpaceSpec> Spec>
Result<> visit_selection(Visitor& visitor, Spec& spec, StateSpace::Parts& parts) {
  auto& selection = *spec.selection;
  const std::int64_t width = spec.shape.width();
  MORACLE_TRY(visitor.columns(selection.step, parts.selected_step, width));
  MORACLE_TRY(visitor.columns(selection.b, parts.selected_b, width));
  MORACLE_TRY(visitor.columns(selection.c, parts.selected_c, width));
  MORACLE_TRY(visitor.norm(selection.step_norm, parts.step_norm, selection.step_norm.size));
  MORACLE_TRY(visitor.norm(selection.b_norm, parts.b_norm, selection.b_norm.size));
  return visitor.norm(selection.c_norm, parts.c_norm, selection.c_norm.size);
}

template <class Visitor, SpecOf<StateSpaceSpec> Spec>
Result<> visit_parameters(Visitor& visitor, Spec& spec, StateSpace::Parts& parts) {
  auto& shape = spec.shape;
  MORACLE_TRY(visitor.divide(shape.heads, spec.gate.path, "heads of states"));
  MORACLE_TRY(visitor.divide_kv_heads(shape.groups, spec.gate.path));
  MORACLE_TRY(visitor.rows(spec.gate, parts.gate, shape.width()));
  MORACLE_TRY(visitor.rows(spec.mixed, parts.mixed, spec.channels()));
  MORACLE_TRY(visit_taps(visitor, spec.taps, spec.channels(), spec.kernel, parts.taps));
  if (spec.selection) MORACLE_TRY(visit_selection(visitor, spec, parts));
  MORACLE_TRY(visitor.rows(spec.step, parts.step, shape.heads));
  const std::vector<std::int64_t> rates =
      shape.rate_by_state ? std::vector{shape.heads, shape.states} : std::vector{shape.heads};
  MORACLE_TRY(visitor.tensor(spec.rate, spec.rate, "recurrence", rates, ArrayForm::exponential, parts.rate));
  MORACLE_TRY(visitor.tensor(spec.skip, spec.skip, "recurrence", {shape.heads}, ArrayForm::stored, parts.skip));
  if (!spec.step_bias.empty()) {
    MORACLE_TRY(visitor.tensor(spec.step_bias, spec.step_bias, "recurrence", {shape.heads}, ArrayForm::stored,
                               parts.step_bias));
  }
  if (spec.norm.exists()) MORACLE_TRY(visitor.norm(spec.norm, parts.norm, shape.width()));
  return visitor.columns(spec.out, parts.out, shape.width());
}

template <class Visitor, SpecOf<LatentAttentionSpec> Spec>
Result<> visit_parameters(Visitor& visitor, Spec& spec, LatentAttention::Parts& parts) {
  auto& shape = spec.shape;
  MORACLE_TRY(visitor.divide(shape.heads, spec.q.path, "attention heads"));
  if (spec.q_a) {
    MORACLE_TRY(visitor.whole(*spec.q_a, parts.q_a));
    MORACLE_TRY(visitor.norm(spec.q_norm, parts.q_norm, spec.q_norm.size));
  }
  MORACLE_TRY(visitor.rows(spec.q, parts.q, shape.heads * shape.q_head_dim()));
  MORACLE_TRY(visitor.whole(spec.kv_a, parts.kv_a));
  MORACLE_TRY(visitor.norm(spec.kv_norm, parts.kv_norm, spec.kv_norm.size));
  MORACLE_TRY(visitor.absorbed(spec, parts.kv_b, shape.heads * shape.kv_head_dim()));
  if (spec.head_gate) MORACLE_TRY(visitor.rows(*spec.head_gate, parts.head_gate, shape.heads));
  if (spec.indexer) {
    auto& indexer = *spec.indexer;
    MORACLE_TRY(visitor.whole(indexer.q, parts.indexer.q));
    MORACLE_TRY(visitor.whole(indexer.k, parts.indexer.k));
    MORACLE_TRY(visitor.whole(indexer.weights, parts.indexer.weights));
    MORACLE_TRY(visitor.norm(indexer.k_norm, parts.indexer.k_norm, indexer.k_norm.size));
  }
  return visitor.columns(spec.o, parts.o, shape.heads * shape.v_head_dim);
}

template <class Visitor, SpecOf<DenseSpec> Spec>
Result<> visit_parameters(Visitor& visitor, Spec& spec, DenseMlp::Parts& parts) {
  std::int64_t width = spec.gate.out;
  MORACLE_TRY(visitor.divide(width, spec.gate.path, "columns"));
  MORACLE_TRY(visitor.rows(spec.gate, parts.gate, width));
  if (!spec.up.path.empty()) MORACLE_TRY(visitor.rows(spec.up, parts.up, width));
  return visitor.columns(spec.down, parts.down, width);
}

template <class Visitor, SpecOf<MoeSpec> Spec>
Result<> visit_apart(Visitor& visitor, Spec& spec, MoeParts& parts) {
  auto& apart = *spec.apart;
  const std::int64_t hidden = spec.experts.hidden;
  MORACLE_TRY(
      visitor.tensor(apart.router, apart.router, "norm", {hidden}, ArrayForm::over_root, parts.apart.router.weight));
  parts.apart.router.eps = apart.experts.eps;
  MORACLE_TRY(visitor.tensor(apart.expert_scale, apart.expert_scale, "router", {spec.routing.experts},
                             ArrayForm::stored, parts.routed.expert_scale));
  MORACLE_TRY(visitor.norm(apart.experts, parts.apart.experts, hidden));
  MORACLE_TRY(visitor.norm(apart.routed_behind, parts.apart.routed_behind, hidden));
  return visitor.norm(apart.shared_behind, parts.apart.shared_behind, hidden);
}

template <class Visitor, SpecOf<MoeSpec> Spec>
Result<> visit_parameters(Visitor& visitor, Spec& spec, MoeParts& parts) {
  MORACLE_TRY(visitor.router(spec, parts.routed));
  if (!spec.correction_bias.empty()) {
    MORACLE_TRY(visitor.correction_bias(spec, parts.routed.correction_bias));
  }
  if (spec.apart) MORACLE_TRY(visit_apart(visitor, spec, parts));
  if (spec.latent) MORACLE_TRY(visitor.whole(spec.latent->in, parts.latent.in));
  MORACLE_TRY(visitor.experts(spec, parts.routed.experts));
  if (spec.latent) MORACLE_TRY(visitor.whole(spec.latent->out, parts.latent.out));
  if (!spec.shared) return Ok{};
  MORACLE_TRY(visit_parameters(visitor, spec.shared->mlp, parts.shared));
  return spec.shared->gate.path.empty() ? Result<>(Ok{}) : visitor.shared_gate(spec.shared->gate, parts.shared_gate);
}

}  // namespace moracle
