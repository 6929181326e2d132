#include "model/blocks/state_space.h"

#include "base/generic/count.h"

namespace moracle {

struct StateSpace::Call {
  float* gate = nullptr;        // [tokens, width]
  float* mixed = nullptr;       // [tokens, channels]
  float* convolved = nullptr;   // [tokens, channels]
  float* step = nullptr;        // [tokens, heads]
  float* low_step = nullptr;    // [tokens, rank] of Mamba
  float* b = nullptr;           // [tokens, states] of Mamba
  float* c = nullptr;           // the same
  float* out = nullptr;         // [tokens, width]
  std::span<std::byte> rest{};  // of one linear after the other
};

ConvolutionShape StateSpace::convolution() const {
  const StateSpaceShape& shape = parts_.shape;
  return {.channels = shape.width() + (selects() ? 0 : 2 * shape.group_width()), .kernel = parts_.kernel, .silu = true};
}

StateSpace::Call StateSpace::lay_out(BumpArena& arena, std::int64_t tokens, int threads) const {
  const StateSpaceShape& shape = parts_.shape;
  const auto take = [&](std::int64_t cols) { return arena.take<float>(count(tokens * cols)).data(); };
  Call call;
  call.gate = take(shape.width());
  call.mixed = take(convolution().channels);
  call.convolved = take(convolution().channels);
  call.step = take(shape.heads);
  if (selects()) {
    call.low_step = take(parts_.step_norm.weight.size);
    call.b = take(shape.group_width());
    call.c = take(shape.group_width());
  }
  call.out = take(shape.width());
  call.rest = arena.take<std::byte>(
      linear_workspace({parts_.gate.get(), parts_.mixed.get(), parts_.step.get(), parts_.out.get(),
                        parts_.selected_step.get(), parts_.selected_b.get(), parts_.selected_c.get()},
                       tokens, threads));
  return call;
}

LayerState StateSpace::state(const Ops& /*ops*/) const {
  return {.fixed_floats = convolution().state_floats() + parts_.shape.state_floats()};
}

std::size_t StateSpace::bytes() const {
  std::size_t total = parts_.taps.bytes() + parts_.rate.bytes() + parts_.skip.bytes() + parts_.step_bias.bytes();
  for (const Norm* norm : {&parts_.norm, &parts_.step_norm, &parts_.b_norm, &parts_.c_norm}) total += norm->bytes();
  for (const PackedLinear* linear : {parts_.gate.get(), parts_.mixed.get(), parts_.step.get(), parts_.out.get(),
                                     parts_.selected_step.get(), parts_.selected_b.get(), parts_.selected_c.get()}) {
    if (linear != nullptr) total += linear->bytes();
  }
  return total;
}

std::size_t StateSpace::workspace_bytes(const Ops& /*ops*/, std::int64_t tokens, int threads) const {
  BumpArena counting = BumpArena::counting();
  static_cast<void>(lay_out(counting, tokens, threads));
  return counting.used() + BumpArena::kAlignment;
}

void StateSpace::select(const ForwardContext& context, const Call& call) const {
  const RunContext run = context.run_context(call.rest);
  run_linears(run,
              {{parts_.selected_step.get(), call.low_step},
               {parts_.selected_b.get(), call.b},
               {parts_.selected_c.get(), call.c}},
              context.tokens, call.convolved);
  parts_.step_norm.run(context, context.tokens, call.low_step, call.low_step);
  parts_.b_norm.run(context, context.tokens, call.b, call.b);
  parts_.c_norm.run(context, context.tokens, call.c, call.c);
  parts_.step->run(run, context.tokens, call.low_step, call.step);
}

void StateSpace::run(const ForwardContext& context, const float* x, float* out) const {
  BumpArena arena(context.workspace);
  const Call call = lay_out(arena, context.tokens, context.threads());
  const RunContext run = context.run_context(call.rest);
  const StateSpaceShape& shape = parts_.shape;
  const ConvolutionShape convolution = this->convolution();
  const BlockMemory states = context.state.recurrent_blocks(parts_.layer);
  context.enter(Phase::projections);
  run_linears(run,
              {{parts_.mixed.get(), call.mixed},
               {parts_.gate.get(), call.gate},
               {selects() ? nullptr : parts_.step.get(), call.step}},
              context.tokens, x);
  context.enter(Phase::attention);
  context.ops.convolution(run, {.shape = convolution,
                                .tokens = context.tokens,
                                .x = call.mixed,
                                .taps = parts_.taps.weight.data,
                                .bias = parts_.taps.bias.data,
                                .states = states,
                                .spans = context.state.recurrent,
                                .span_count = context.state.count,
                                .out = call.convolved});
  if (selects()) select(context, call);
  NormArgs norm = parts_.norm.args();
  norm.size /= parts_.norm_groups;
  const float* const b = selects() ? call.b : call.convolved + shape.width();
  const float* const c = selects() ? call.c : call.convolved + shape.width() + shape.group_width();
  context.ops.state_space(run, {.shape = shape,
                                .tokens = context.tokens,
                                .state_offset = convolution.state_floats(),
                                .x = call.convolved,
                                .x_stride = convolution.channels,
                                .b = b,
                                .c = c,
                                .b_stride = selects() ? shape.group_width() : convolution.channels,
                                .step = call.step,
                                .gate = call.gate,
                                .rate = parts_.rate.data,
                                .skip = parts_.skip.data,
                                .step_bias = parts_.step_bias.data,
                                .norm = norm,
                                .states = states,
                                .spans = context.state.recurrent,
                                .span_count = context.state.count,
                                .out = call.out});
  context.enter(Phase::projections);
  parts_.out->run(run, context.tokens, call.out, out);
}

}  // namespace moracle
