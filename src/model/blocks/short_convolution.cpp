#include "model/blocks/short_convolution.h"

#include "base/generic/count.h"

namespace moracle {

struct ShortConvolution::Call {
  float* times = nullptr;  // [tokens, channels], as are the others
  float* gate = nullptr;
  float* x = nullptr;
  float* out = nullptr;
  std::span<std::byte> rest{};  // of one linear after the other
};

ShortConvolution::Call ShortConvolution::lay_out(BumpArena& arena, std::int64_t tokens, int threads) const {
  const std::size_t floats = count(tokens * parts_.shape.channels);
  Call call;
  for (float** buffer : {&call.times, &call.gate, &call.x, &call.out}) *buffer = arena.take<float>(floats).data();
  call.rest = arena.take<std::byte>(
      linear_workspace({parts_.times.get(), parts_.gate.get(), parts_.x.get(), parts_.out.get()}, tokens, threads));
  return call;
}

LayerState ShortConvolution::state(const Ops& /*ops*/) const {
  return {.fixed_floats = parts_.shape.state_floats()};
}

std::size_t ShortConvolution::bytes() const {
  return parts_.times->bytes() + parts_.gate->bytes() + parts_.x->bytes() + parts_.out->bytes() + parts_.taps.bytes();
}

std::size_t ShortConvolution::workspace_bytes(const Ops& /*ops*/, std::int64_t tokens, int threads) const {
  BumpArena counting = BumpArena::counting();
  static_cast<void>(lay_out(counting, tokens, threads));
  return counting.used() + BumpArena::kAlignment;
}

void ShortConvolution::run(const ForwardContext& context, const float* x, float* out) const {
  BumpArena arena(context.workspace);
  const Call call = lay_out(arena, context.tokens, context.threads());
  const RunContext run = context.run_context(call.rest);
  context.enter(Phase::projections);
  run_linears(run, {{parts_.times.get(), call.times}, {parts_.gate.get(), call.gate}, {parts_.x.get(), call.x}},
              context.tokens, x);
  context.enter(Phase::attention);
  context.ops.convolution(run, {.shape = parts_.shape,
                                .tokens = context.tokens,
                                .x = call.x,
                                .times = call.times,
                                .gate = call.gate,
                                .taps = parts_.taps.weight.data,
                                .bias = parts_.taps.bias.data,
                                .states = context.state.recurrent_blocks(parts_.layer),
                                .spans = context.state.recurrent,
                                .span_count = context.state.count,
                                .out = call.out});
  context.enter(Phase::projections);
  parts_.out->run(run, context.tokens, call.out, out);
}

}  // namespace moracle
