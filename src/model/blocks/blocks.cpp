#include "model/blocks/blocks.h"

#include <algorithm>
#include <array>

#include "base/checked.h"
#include "base/generic/count.h"

namespace moracle {

void Norm::run(const ForwardContext& context, std::int64_t rows, const float* x, float* y) const {
  if (centred) {
    context.ops.layer_norm(context.run_context({}), {.rows = narrow<std::int32_t>(rows),
                                                     .cols = narrow<std::int32_t>(weight.size),
                                                     .eps = eps,
                                                     .x = x,
                                                     .weight = weight.data,
                                                     .bias = bias.data,
                                                     .out = y});
    return;
  }
  context.ops.rms_norm(context.run_context({}), {.rows = narrow<std::int32_t>(rows),
                                                 .cols = narrow<std::int32_t>(weight.size),
                                                 .eps = eps,
                                                 .x = x,
                                                 .weight = weight.data,
                                                 .out = y});
}

AddNormArgs Norm::behind(std::int64_t rows, const float* x, float* sum, float* y) const {
  return {.rows = narrow<std::int32_t>(rows),
          .cols = narrow<std::int32_t>(weight.size),
          .eps = eps,
          .x = x,
          .sum = sum,
          .weight = weight.data,
          .out = y};
}

void Embedding::lookup(const ForwardContext& context, float* out) const {
  EmbedArgs args{};
  args.pack.weights = reinterpret_cast<const std::uint8_t*>(table.data);
  args.pack.code = element == Element::f32    ? DeviceCode::f32
                   : element == Element::bf16 ? DeviceCode::bf16
                                              : DeviceCode::f16;
  // Rows one after the other, and no other part.
  args.matrix.cols = args.matrix.padded = args.matrix.group = narrow<std::int32_t>(width);
  args.matrix.scales = args.matrix.zeros = args.matrix.bias = args.matrix.order = kAbsent;
  args.matrix.global_scale = args.matrix.input_scale = kAbsent;
  args.tokens = narrow<std::int32_t>(context.tokens);
  args.ids = context.ids;
  args.out = out;
  context.ops.embed(context.run_context({}), args);
}

std::size_t linear_workspace(std::initializer_list<const PackedLinear*> linears, std::int64_t tokens, int threads) {
  std::size_t most = 0;
  for (const PackedLinear* linear : linears) {
    if (linear != nullptr) most = std::max(most, linear->workspace_bytes(tokens, threads));
  }
  return most;
}

void run_linears(const RunContext& context, std::initializer_list<LinearRun> linears, std::int64_t tokens,
                 const float* x) {
  std::array<LinearRun, kMostTogether> present{};
  const auto end = std::copy_if(linears.begin(), linears.end(), present.begin(),
                                [](const LinearRun& of) { return of.linear != nullptr; });
  present.front().linear->run_fused(context, {present.begin(), end}, tokens, x);
}

std::size_t DenseMlp::bytes() const {
  return parts_.gate->bytes() + (parts_.up != nullptr ? parts_.up->bytes() : 0) + parts_.down->bytes();
}

std::size_t DenseMlp::workspace_bytes(std::int64_t tokens, int threads) const {
  return 2 * BumpArena::cost<float>(count(tokens * parts_.intermediate)) + BumpArena::kAlignment +
         linear_workspace({parts_.gate.get(), parts_.up.get(), parts_.down.get()}, tokens, threads);
}

void DenseMlp::run(const ForwardContext& context, const NormedInput& input, float* out) const {
  if (input.norm.x != nullptr) {
    context.enter(Phase::norms);
    context.ops.add_norm(context.run_context({}), input.norm);
    context.enter(Phase::dense);
  }
  const std::int64_t tokens = context.tokens;
  const std::int64_t width = parts_.intermediate;
  BumpArena arena(context.workspace);
  float* gate = arena.take<float>(count(tokens * width)).data();
  float* up = parts_.up != nullptr ? arena.take<float>(count(tokens * width)).data() : gate;
  const RunContext run = context.run_context(arena.take<std::byte>(
      linear_workspace({parts_.gate.get(), parts_.up.get(), parts_.down.get()}, tokens, context.threads())));
  run_linears(run, {{parts_.gate.get(), gate}, {parts_.up.get(), up}}, tokens, input.x);
  context.ops.gated_activation(
      run, {.count = tokens * width, .activation = parts_.activation, .gate = gate, .up = up, .out = gate});
  parts_.down->run(run, tokens, gate, out);
}

std::size_t MoeFeedForward::bytes() const {
  return parts_.routed.bytes() + (parts_.shared ? parts_.shared->bytes() : 0) +
         (parts_.shared_gate != nullptr ? parts_.shared_gate->bytes() : 0) +
         (parts_.apart ? parts_.apart->bytes() : 0) +
         (parts_.latent ? parts_.latent->in->bytes() + parts_.latent->out->bytes() : 0);
}

std::size_t MoeFeedForward::rest_bytes(std::int64_t tokens, int threads) const {
  const std::size_t gate = parts_.shared_gate != nullptr ? parts_.shared_gate->workspace_bytes(tokens, threads) : 0;
  return std::max(parts_.shared->workspace_bytes(tokens, threads), gate);
}

struct MoeFeedForward::LatentCall {
  float* in = nullptr;          // [tokens, width]
  float* given = nullptr;       // [tokens, width]
  float* shared = nullptr;      // [tokens, hidden]
  std::span<std::byte> rest{};  // of one part after the other
};

MoeFeedForward::LatentCall MoeFeedForward::lay_out_latent(BumpArena& arena, std::int64_t tokens, int threads) const {
  const Latent& latent = *parts_.latent;
  LatentCall call;
  call.in = arena.take<float>(count(tokens * latent.width)).data();
  call.given = arena.take<float>(count(tokens * latent.width)).data();
  if (parts_.shared) call.shared = arena.take<float>(count(tokens * parts_.hidden)).data();
  call.rest = arena.take<std::byte>(std::max({parts_.routed.workspace_bytes(tokens, threads),
                                              linear_workspace({latent.in.get(), latent.out.get()}, tokens, threads),
                                              parts_.shared ? rest_bytes(tokens, threads) : 0}));
  return call;
}

struct MoeFeedForward::LateCall {
  float* passed = nullptr;      // [tokens], with zero experts
  float* given = nullptr;       // [tokens, hidden], what those give
  std::span<std::byte> rest{};  // of one part after the other
};

MoeFeedForward::LateCall MoeFeedForward::lay_out_late(BumpArena& arena, std::int64_t tokens, int threads) const {
  LateCall call;
  if (parts_.zero_experts) {
    call.passed = arena.take<float>(count(tokens)).data();
    call.given = arena.take<float>(count(tokens * parts_.hidden)).data();
  }
  call.rest =
      arena.take<std::byte>(std::max(parts_.routed.workspace_bytes(tokens, threads), rest_bytes(tokens, threads)));
  return call;
}

std::size_t MoeFeedForward::workspace_bytes(std::int64_t tokens, int threads) const {
  if (parts_.latent || parts_.late) {
    BumpArena counting = BumpArena::counting();
    if (parts_.latent) static_cast<void>(lay_out_latent(counting, tokens, threads));
    if (parts_.late) static_cast<void>(lay_out_late(counting, tokens, threads));
    return counting.used() + BumpArena::kAlignment;
  }
  const std::size_t routed = parts_.routed.workspace_bytes(tokens, threads);
  if (!parts_.shared) return routed;
  if (parts_.apart) {
    return 2 * BumpArena::cost<float>(count(tokens * parts_.hidden)) + BumpArena::kAlignment +
           std::max(routed, rest_bytes(tokens, threads));
  }
  return std::max(routed, BumpArena::cost<float>(count(tokens * parts_.hidden)) +
                              BumpArena::cost<float>(count(tokens)) + BumpArena::kAlignment +
                              rest_bytes(tokens, threads));
}

void MoeFeedForward::run_apart(const ForwardContext& context, const NormedInput& input, float* out) const {
  const Apart& apart = *parts_.apart;
  const std::int64_t tokens = context.tokens;
  BumpArena arena(context.workspace);
  float* const first = arena.take<float>(count(tokens * parts_.hidden)).data();
  float* const second = arena.take<float>(count(tokens * parts_.hidden)).data();
  ForwardContext rest = context;
  rest.workspace = arena.take<std::byte>(
      std::max(parts_.routed.workspace_bytes(tokens, context.threads()), rest_bytes(tokens, context.threads())));
  context.enter(Phase::norms);
  context.ops.add_norm(context.run_context({}), input.norm);
  apart.router.run(context, tokens, input.norm.sum, first);
  apart.experts.run(context, tokens, input.norm.sum, second);
  NormedInput routed(second);
  routed.router = first;
  const RunContext run = rest.run_context(rest.workspace);
  parts_.routed.begin(run, tokens, routed, context.ids, out, context.clock, context.counts);
  context.enter(Phase::shared_experts);
  parts_.shared->run(rest, input.x, first);
  context.enter(Phase::experts);
  parts_.routed.finish(run, tokens, out);
  context.enter(Phase::norms);
  apart.routed_behind.run(context, tokens, out, out);
  apart.shared_behind.run(context, tokens, first, first);
  context.ops.add(run, {.count = tokens * parts_.hidden, .x = first, .sum = out});
}

void MoeFeedForward::run_latent(const ForwardContext& context, const NormedInput& input, float* out) const {
  const Latent& latent = *parts_.latent;
  const std::int64_t tokens = context.tokens;
  BumpArena arena(context.workspace);
  const LatentCall call = lay_out_latent(arena, tokens, context.threads());
  const RunContext run = context.run_context(call.rest);
  if (input.norm.x != nullptr) {
    context.enter(Phase::norms);
    context.ops.add_norm(run, input.norm);
  }
  context.enter(Phase::experts);
  latent.in->run(run, tokens, input.x, call.in);
  NormedInput routed(call.in);
  routed.router = input.x;
  parts_.routed.begin(run, tokens, routed, context.ids, call.given, context.clock, context.counts);
  parts_.routed.finish(run, tokens, call.given);
  latent.out->run(run, tokens, call.given, out);
  if (!parts_.shared) return;
  context.enter(Phase::shared_experts);
  ForwardContext rest = context;
  rest.workspace = call.rest;
  parts_.shared->run(rest, input.x, call.shared);
  context.ops.add(run, {.count = tokens * parts_.hidden, .x = call.shared, .sum = out});
}

void MoeFeedForward::run_late(const ForwardContext& context, const NormedInput& input, float* out) const {
  const std::int64_t tokens = context.tokens;
  BumpArena arena(context.workspace);
  const LateCall call = lay_out_late(arena, tokens, context.threads());
  ForwardContext rest = context;
  rest.workspace = call.rest;
  const RunContext run = rest.run_context(call.rest);
  parts_.routed.begin(run, tokens, input, context.ids, context.late, context.clock, context.counts, call.passed);
  context.enter(Phase::dense);
  parts_.shared->run(rest, input.x, out);
  context.enter(Phase::experts);
  parts_.routed.finish(run, tokens, context.late);
  if (!parts_.zero_experts) return;
  context.ops.weigh(run,
                    {.rows = tokens, .cols = parts_.hidden, .x = input.x, .weights = call.passed, .out = call.given});
  context.ops.add(run, {.count = tokens * parts_.hidden, .x = call.given, .sum = context.late});
}

void MoeFeedForward::run(const ForwardContext& context, const NormedInput& input, float* out) const {
  if (parts_.late) return run_late(context, input, out);
  if (parts_.apart) return run_apart(context, input, out);
  if (parts_.latent) return run_latent(context, input, out);
  parts_.routed.begin(context.run_context(context.workspace), context.tokens, input, context.ids, out, context.clock,
                      context.counts);
  if (parts_.shared) return add_shared(context, input.x, out);
  parts_.routed.finish(context.run_context({}), context.tokens, out);
}

// What sees every token is computed while another device computes what does not.
void MoeFeedForward::add_shared(const ForwardContext& context, const float* x, float* out) const {
  const std::int64_t tokens = context.tokens;
  const std::int64_t hidden = parts_.hidden;
  context.enter(Phase::shared_experts);
  BumpArena arena(context.workspace);
  float* const shared = arena.take<float>(count(tokens * hidden)).data();
  float* const gate = arena.take<float>(count(tokens)).data();
  ForwardContext rest = context;
  rest.workspace = arena.take<std::byte>(rest_bytes(tokens, context.threads()));
  const RunContext run = rest.run_context(rest.workspace);
  parts_.shared->run(rest, x, shared);
  if (parts_.shared_gate != nullptr) parts_.shared_gate->run(run, tokens, x, gate);
  context.enter(Phase::experts);
  parts_.routed.finish(run, tokens, out);
  context.enter(Phase::shared_experts);
  if (parts_.shared_gate == nullptr) {
    context.ops.add(run, {.count = tokens * hidden, .x = shared, .sum = out});
  } else {
    context.ops.add_gated(run, {.rows = tokens, .cols = hidden, .gate = gate, .x = shared, .sum = out});
  }
  if (parts_.shared_mean != 1.0F) {
    context.ops.scale(run, {.count = tokens * hidden, .factor = parts_.shared_mean, .x = out});
  }
}

}  // namespace moracle
