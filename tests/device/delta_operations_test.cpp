// The delta rule: the device's states and outputs against the host's, call after call. Both sum in f32, in other
// orders; a state is a sum over all tokens before, each step of which rounds.
#include <gtest/gtest.h>

#include <cmath>

#include "device/operations_fixture.h"

namespace moracle {
namespace {

class DeltaOperationsTest : public OperationsTest {
 protected:
  struct Inputs {
    std::vector<float> mixed, work, z, b, a;
  };

  static std::size_t size_of(std::int64_t count) { return static_cast<std::size_t>(count); }

  Inputs draw_inputs(const DeltaNetShape& shape, std::int64_t tokens) {
    const std::int64_t values = tokens * shape.value_heads;
    Inputs in;
    in.mixed = normal_values(size_of(tokens * shape.channels()), rng_);
    in.work = normal_values(size_of(tokens * (shape.channels() + (shape.grouped ? shape.value_width() : 0))), rng_);
    in.z = normal_values(size_of(tokens * shape.value_width()), rng_);
    in.b = normal_values(size_of((shape.grouped ? 2 : 1) * values), rng_);
    in.a = normal_values(size_of(values), rng_);
    return in;
  }

  // Counts of tokens by call and sequence. States move between blocks, or stay in place.
  void compare(const DeltaNetShape& shape, const std::vector<std::vector<std::int64_t>>& steps, bool in_place,
               const std::string& name) {
    const auto taps = normal_values(size_of(shape.kernel * shape.channels()), rng_);
    const auto rate = uniform_values(size_of(shape.value_heads), 0.01F, 2.0F);
    const auto bias = normal_values(size_of(shape.value_heads), rng_);
    const auto weight = uniform_values(size_of(shape.value_dim), 0.5F, 1.5F);
    const std::size_t sequences = steps.front().size();
    const std::size_t stride = size_of(shape.state_floats()) * sizeof(float) + 256;
    std::vector<float> states(2 * sequences * stride / sizeof(float), 0.0F);
    std::vector<float> host_states = states;
    std::int64_t most = 0;
    for (std::size_t step = 0; step < steps.size(); ++step) {
      std::vector<RecurrentSpan> spans;
      std::int64_t tokens = 0;
      for (std::size_t i = 0; i < sequences; ++i) {
        const auto first = static_cast<std::uint32_t>(2 * i);
        const auto before = static_cast<std::uint32_t>(first + (in_place ? 0 : step % 2));
        const auto after = static_cast<std::uint32_t>(first + (in_place ? 0 : (step + 1) % 2));
        spans.push_back({.begin = tokens, .count = steps[step][i], .before = before, .after = after});
        tokens += steps[step][i];
      }
      most += tokens;
      Inputs in = draw_inputs(shape, tokens);
      const auto arguments = [&](const auto& hold) {
        DeltaRuleArgs args{.shape = shape, .tokens = tokens};
        args.taps = hold(taps);
        args.rate = hold(rate);
        args.dt_bias = hold(bias);
        args.norm = {.weight = hold(weight), .size = shape.value_dim, .eps = 1e-6F};
        args.spans = hold(spans);
        args.span_count = std::ssize(spans);
        return args;
      };
      CallArrays arrays(stream_);
      DeltaRuleArgs args = arguments([&](const auto& of) { return arrays.hold(of); });
      args.mixed = arrays.hold(in.mixed);
      args.work = arrays.hold(in.work);
      args.z = arrays.hold(in.z);
      args.b = arrays.hold(in.b);
      args.a = arrays.hold(in.a);
      float* const memory = arrays.hold(states);
      args.states = {.memory = reinterpret_cast<std::byte*>(memory), .stride = stride};
      on_device(arrays, &Ops::delta_rule, args);
      auto found = arrays.read(args.mixed);
      states = arrays.read(memory);
      DeltaRuleArgs host = arguments([](const auto& of) { return of.data(); });
      host.mixed = in.mixed.data();
      host.work = in.work.data();
      host.z = in.z.data();
      host.b = in.b.data();
      host.a = in.a.data();
      host.states = {.memory = reinterpret_cast<std::byte*>(host_states.data()), .stride = stride};
      on_host(ref_ops(), &Ops::delta_rule, host);
      found.resize(size_of(tokens * shape.value_width()));
      in.mixed.resize(found.size());
      // Sums of key_dim products, of unit vectors, and a rounding a token.
      const double bound = static_cast<double>(shape.key_dim + most) * 0x1p-24 * 4;
      expect_rows_near(found, in.mixed, size_of(shape.value_dim), bound, name + ", call " + std::to_string(step));
    }
  }
};

TEST_F(DeltaOperationsTest, ShapesOfModels) {
  const DeltaNetShape next{
      .key_heads = 16, .value_heads = 32, .key_dim = 128, .value_dim = 128, .kernel = 4, .grouped = true};
  compare(next, {{1, 20, 3}, {1, 1, 1}, {2, 1, 70}}, false, "Qwen3-Next");
  DeltaNetShape separate = next;
  separate.grouped = false;
  compare(separate, {{65, 1}, {1, 1}, {1, 9}}, true, "Qwen3.5");
}

// Sequences of 128 tokens and more are taken 64 at a time.
TEST_F(DeltaOperationsTest, Chunks) {
  DeltaNetShape shape{.key_heads = 2, .value_heads = 4, .key_dim = 128, .value_dim = 128, .kernel = 4};
  compare(shape, {{300, 1, 128}, {1, 129, 127}, {640, 64, 191}}, true, "chunks");
  compare(shape, {std::vector<std::int64_t>(40, 130), std::vector<std::int64_t>(40, 1)}, false, "40 sequences");
  shape.grouped = true;
  compare(shape, {{1, 200}, {257, 1}}, false, "grouped chunks");
  shape = {.key_heads = 3, .value_heads = 3, .key_dim = 36, .value_dim = 50, .kernel = 2};
  compare(shape, {{150, 3}, {2, 333}}, true, "narrow heads");
}

TEST_F(DeltaOperationsTest, AnyShape) {
  for (int i = 0; i < 10; ++i) {
    DeltaNetShape shape{
        .key_heads = drawn(1, 5), .value_heads = 0, .key_dim = drawn(1, 200), .value_dim = drawn(1, 70)};
    shape.value_heads = shape.key_heads * drawn(1, 3);
    shape.kernel = drawn(1, 5);
    shape.grouped = drawn(0, 1) == 0;
    std::vector<std::vector<std::int64_t>> steps(3, std::vector<std::int64_t>(static_cast<std::size_t>(drawn(1, 4))));
    for (auto& counts : steps) {
      for (std::int64_t& count : counts) count = drawn(0, 1) == 0 ? 1 : drawn(1, 180);
    }
    compare(shape, steps, drawn(0, 1) == 0, "any " + std::to_string(i));
  }
}

}  // namespace
}  // namespace moracle
