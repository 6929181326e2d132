#include "model/blocks/delta_net.h"

#include <algorithm>
#include <cmath>

#include "base/generic/count.h"

namespace moracle {

struct DeltaNet::Call {
  DeltaRuleArgs args{};
  std::span<RecurrentSpan> spans{};  // [tokens]
  std::span<std::byte> rest{};       // of one linear or operation after the other
};

DeltaNet::DeltaNet(Parts parts) : parts_(std::move(parts)), taps_(parts_.conv.size()) {
  const std::int64_t channels = shape(0).channels();
  for (std::int64_t c = 0; c < channels; ++c) {
    for (std::int64_t j = 0; j < parts_.kernel; ++j) {
      taps_[count(j * channels + c)] = parts_.conv[count(c * parts_.kernel + j)];
    }
  }
  parts_.conv = {};
  for (const float value : parts_.a_log) rate_.push_back(std::exp(value));
}

DeltaRuleArgs DeltaNet::shape(std::int64_t tokens) const {
  return {.tokens = tokens,
          .key_heads = parts_.key_heads,
          .value_heads = parts_.value_heads,
          .key_dim = parts_.key_dim,
          .value_dim = parts_.value_dim,
          .kernel = parts_.kernel,
          .grouped = parts_.z == nullptr};
}

DeltaNet::Call DeltaNet::lay_out(BumpArena& arena, const Ops& ops, std::int64_t tokens, int threads) const {
  Call call;
  DeltaRuleArgs& args = call.args;
  args = shape(tokens);
  args.taps = taps_.data();
  args.rate = rate_.data();
  args.dt_bias = parts_.dt_bias.data();
  args.norm = parts_.norm.args();
  args.mixed = arena.take<float>(count(tokens * args.channels())).data();
  args.work = arena.take<float>(count(tokens * (args.channels() + (args.grouped ? args.value_width() : 0)))).data();
  args.z = arena.take<float>(count(tokens * args.value_width())).data();
  args.b = arena.take<float>(count(tokens * args.value_heads * (args.grouped ? 2 : 1))).data();
  args.a = arena.take<float>(count(args.grouped ? 0 : tokens * args.value_heads)).data();
  call.spans = arena.take<RecurrentSpan>(count(tokens));
  const std::size_t linears = linear_workspace(
      {parts_.qkv.get(), parts_.z.get(), parts_.b.get(), parts_.a.get(), parts_.out.get()}, tokens, threads);
  call.rest = arena.take<std::byte>(std::max(linears, ops.delta_rule_bytes(args)));
  return call;
}

LayerState DeltaNet::state() const {
  return {.fixed_floats = shape(0).state_floats()};
}

std::size_t DeltaNet::bytes() const {
  std::size_t total = sizeof(float) * (taps_.size() + rate_.size() + parts_.dt_bias.size()) + parts_.norm.bytes();
  for (const PackedLinear* linear :
       {parts_.qkv.get(), parts_.z.get(), parts_.b.get(), parts_.a.get(), parts_.out.get()}) {
    if (linear != nullptr) total += linear->bytes();
  }
  return total;
}

std::size_t DeltaNet::workspace_bytes(const Ops& ops, std::int64_t tokens, int threads) const {
  BumpArena counting = BumpArena::counting();
  static_cast<void>(lay_out(counting, ops, tokens, threads));
  return counting.used() + BumpArena::kAlignment;
}

void DeltaNet::run(const ForwardContext& context, const float* x, float* out) const {
  BumpArena arena(context.workspace);
  Call call = lay_out(arena, context.ops, context.tokens, context.threads());
  DeltaRuleArgs& args = call.args;
  const RunContext run = context.run_context(call.rest);
  context.enter(Phase::projections);
  run_linears(run,
              {{parts_.qkv.get(), args.grouped ? args.work : args.mixed},
               {parts_.z.get(), args.z},
               {parts_.b.get(), args.b},
               {parts_.a.get(), args.a}},
              context.tokens, x);
  context.enter(Phase::attention);
  for (std::size_t s = 0; s < context.spans.size(); ++s) {
    const SequenceSpan& span = context.spans[s];
    call.spans[s] = {.begin = span.begin,
                     .count = span.count,
                     .before = span.state->fixed(parts_.layer),
                     .after = span.state->next_fixed(parts_.layer)};
  }
  args.spans = call.spans.first(context.spans.size());
  context.ops.delta_rule(run, args);
  context.enter(Phase::projections);
  parts_.out->run(run, context.tokens, args.mixed, out);
}

}  // namespace moracle
