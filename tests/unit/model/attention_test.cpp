// The attention block against a plain double implementation, with the parts no small checkpoint has: sinks, partial
// rotary dimensions or none, norms over whole vectors, gates on the output.
#include "model/blocks/attention.h"

#include <gtest/gtest.h>

#include <cmath>
#include <random>
#include <utility>

#include "support/batch_state.h"
#include "support/dense_linear.h"
#include "support/lone_state.h"

namespace moracle {
namespace {

using test::DenseLinear;

struct Shape {
  std::int64_t heads = 6;
  std::int64_t kv_heads = 2;
  std::int64_t head_dim = 20;
  std::int64_t rotary_dims = 12;
  std::int64_t window = 0;
  bool sinks = false;
  bool whole_norm = false;
  bool element_gate = false;
  bool head_gate = false;
  std::int64_t hidden = 24;
  float clip = 0.0F;
  KvType kv = KvType::f32;
};

// Owns an attention block and what its definition needs.
struct Fixture {
  explicit Fixture(const Shape& s) : setup(s) {
    std::mt19937 rng(11);
    Attention::Parts parts;
    auto make = [&](std::int64_t out, std::int64_t in, const DenseLinear*& view) {
      auto linear = std::make_unique<DenseLinear>(out, in, rng);
      view = linear.get();
      return linear;
    };
    parts.q = make(s.heads * s.head_dim * (s.element_gate ? 2 : 1), s.hidden, q);
    parts.k = make(s.kv_heads * s.head_dim, s.hidden, k);
    parts.v = make(s.kv_heads * s.head_dim, s.hidden, v);
    parts.o = make(s.hidden, s.heads * s.head_dim, o);
    if (s.head_gate) parts.head_gate = make(s.heads, s.hidden, head_gate);
    std::normal_distribution<float> normal;
    if (s.sinks) {
      for (std::int64_t h = 0; h < s.heads; ++h) sinks.push_back(normal(rng) * 3.0F);
    }
    parts.sinks = DeviceArray<float>::of(sinks);
    const auto norm = [&](std::int64_t size) {
      std::vector<float> weight;
      for (std::int64_t i = 0; i < size; ++i) weight.push_back(1.0F + 0.3F * normal(rng));
      return weight;
    };
    q_norm = norm(s.whole_norm ? s.heads * s.head_dim : s.head_dim);
    k_norm = norm(s.whole_norm ? s.kv_heads * s.head_dim : s.head_dim);
    parts.q_norm.weight = DeviceArray<float>::of(q_norm);
    parts.k_norm.weight = DeviceArray<float>::of(k_norm);
    parts.shape = {.heads = s.heads,
                   .kv_heads = s.kv_heads,
                   .head_dim = s.head_dim,
                   .window = s.window,
                   .clip = s.clip,
                   .element_gate = s.element_gate};
    parts.rope = 0;
    parts.kv = s.kv;
    inv_freq = plain_frequencies(10000.0, s.rotary_dims);
    attention = std::make_unique<Attention>(std::move(parts));
    layout = std::make_shared<const StateLayout>(std::vector<LayerState>{attention->state(ref_ops())});
  }

  std::vector<float> run(SequenceState& state, const std::vector<float>& x, const Ops& ops, int threads) const {
    ThreadPool pool(threads);
    const auto tokens = static_cast<std::int64_t>(x.size()) / setup.hidden;
    EXPECT_TRUE(state.reserve(state.length() + tokens).ok());
    std::vector<float> cos;
    std::vector<float> sin;
    for (std::int64_t t = 0; t < tokens; ++t) {
      for (const double f : inv_freq) {
        cos.push_back(static_cast<float>(std::cos(static_cast<double>(state.length() + t) * f)));
        sin.push_back(static_cast<float>(std::sin(static_cast<double>(state.length() + t) * f)));
      }
    }
    const RopeTable table{.cos = cos.data(), .sin = sin.data(), .half = std::ssize(inv_freq)};
    test::HostBatch batch;
    batch.add(state, tokens);
    std::vector<std::byte> workspace(attention->workspace_bytes(ops, tokens, threads));
    Stream stream(pool);
    const ForwardContext context{.stream = stream,
                                 .ops = ops,
                                 .workspace = workspace,
                                 .tokens = tokens,
                                 .state = batch.view(),
                                 .ropes = {&table, 1}};
    std::vector<float> out(x.size());
    attention->run(context, x.data(), out.data());
    state.commit(state.length() + tokens);
    return out;
  }

  static void apply_norm(std::vector<double>& x, const std::vector<float>& norm) {
    const std::size_t size = norm.size();
    for (std::size_t begin = 0; begin < x.size(); begin += size) {
      double square = 0.0;
      for (std::size_t i = 0; i < size; ++i) square += x[begin + i] * x[begin + i];
      const double rms = std::sqrt(square / static_cast<double>(size) + 1e-6);
      for (std::size_t i = 0; i < size; ++i) x[begin + i] *= static_cast<double>(norm[i]) / rms;
    }
  }
  void clip(std::vector<double>& x) const {
    const auto bound = static_cast<double>(setup.clip);
    for (double& value : x) value = bound == 0.0 ? value : std::clamp(value, -bound, bound);
  }
  void rotate(std::vector<double>& x, std::size_t position) const {
    const std::size_t half = inv_freq.size();
    for (std::size_t begin = 0; begin < x.size(); begin += static_cast<std::size_t>(setup.head_dim)) {
      for (std::size_t i = 0; i < half; ++i) {
        const double angle = static_cast<double>(position) * inv_freq[i];
        const double a = x[begin + i];
        const double b = x[begin + i + half];
        x[begin + i] = a * std::cos(angle) - b * std::sin(angle);
        x[begin + i + half] = b * std::cos(angle) + a * std::sin(angle);
      }
    }
  }

  // Takes every head's second half out of what q gives: the gates of its elements.
  [[nodiscard]] std::vector<double> split_gates(std::vector<double>& query) const {
    std::vector<double> gates;
    if (!setup.element_gate) return gates;
    const std::vector<double> both = std::exchange(query, {});
    const auto dim = static_cast<std::size_t>(setup.head_dim);
    for (std::size_t i = 0; i < both.size(); ++i) (i / dim % 2 == 0 ? query : gates).push_back(both[i]);
    return gates;
  }
  static double sigmoid(double x) { return 1.0 / (1.0 + std::exp(-x)); }

  [[nodiscard]] std::vector<double> naive(const std::vector<float>& x) const {
    const auto dim = static_cast<std::size_t>(setup.head_dim);
    const auto width = static_cast<std::size_t>(setup.hidden);
    const auto group = static_cast<std::size_t>(setup.heads / setup.kv_heads);
    std::vector<std::vector<double>> keys;
    std::vector<std::vector<double>> values;
    std::vector<double> out;
    for (std::size_t t = 0; t < x.size() / width; ++t) {
      const std::vector<double> row(x.begin() + static_cast<std::ptrdiff_t>(t * width),
                                    x.begin() + static_cast<std::ptrdiff_t>((t + 1) * width));
      std::vector<double> query = q->times(row);
      const std::vector<double> gates = split_gates(query);
      const std::vector<double> head_gates = setup.head_gate ? head_gate->times(row) : std::vector<double>{};
      keys.push_back(k->times(row));
      values.push_back(v->times(row));
      apply_norm(query, q_norm);
      apply_norm(keys.back(), k_norm);
      for (std::vector<double>* vector : {&query, &keys.back(), &values.back()}) clip(*vector);
      rotate(query, t);
      rotate(keys.back(), t);
      std::vector<double> joined(query.size(), 0.0);
      for (std::size_t h = 0; h < static_cast<std::size_t>(setup.heads); ++h) {
        double total = sinks.empty() ? 0.0 : std::exp(static_cast<double>(sinks[h]));
        for (std::size_t j = 0; j <= t; ++j) {
          if (setup.window != 0 && t - j >= static_cast<std::size_t>(setup.window)) continue;
          double score = 0.0;
          for (std::size_t d = 0; d < dim; ++d) score += query[h * dim + d] * keys[j][h / group * dim + d];
          const double weight = std::exp(score / std::sqrt(static_cast<double>(dim)));
          total += weight;
          for (std::size_t d = 0; d < dim; ++d) joined[h * dim + d] += weight * values[j][h / group * dim + d];
        }
        for (std::size_t d = h * dim; d < (h + 1) * dim; ++d) {
          joined[d] /= total;
          if (setup.element_gate) joined[d] *= sigmoid(gates[d]);
          if (setup.head_gate) joined[d] *= sigmoid(head_gates[h]);
        }
      }
      for (const double value : o->times(joined)) out.push_back(value);
    }
    return out;
  }

  Shape setup;
  const DenseLinear* q = nullptr;
  const DenseLinear* k = nullptr;
  const DenseLinear* v = nullptr;
  const DenseLinear* o = nullptr;
  const DenseLinear* head_gate = nullptr;
  std::vector<float> q_norm, k_norm;
  std::vector<float> sinks;
  std::vector<double> inv_freq;
  std::unique_ptr<Attention> attention;
  std::shared_ptr<const StateLayout> layout;
};

std::vector<float> random_input(std::int64_t tokens, std::int64_t hidden) {
  std::mt19937 rng(12);
  std::normal_distribution<float> normal;
  std::vector<float> x(static_cast<std::size_t>(tokens * hidden));
  for (float& value : x) value = normal(rng);
  return x;
}

void expect_matches(const Fixture& fixture, const std::vector<float>& x, const std::vector<float>& got) {
  const auto want = fixture.naive(x);
  ASSERT_EQ(got.size(), want.size());
  double largest = 0.0;
  for (std::size_t i = 0; i < want.size(); ++i) {
    largest = std::max(largest, std::abs(static_cast<double>(got[i]) - want[i]));
  }
  EXPECT_LT(largest, 1e-5);  // values are about 1; sums of up to 130 f32 terms
}

std::vector<const Ops*> implementations() {
  return {&ref_ops(), &host_ops(probe_machine().cpu_features)};
}

TEST(Attention, MatchesTheDefinition) {
  const std::vector<Shape> setups{
      {},
      {.sinks = true},
      {.window = 10, .sinks = true},
      {.window = 1},
      {.window = 64},
      {.whole_norm = true},
      {.heads = 2, .kv_heads = 2, .head_dim = 128, .rotary_dims = 128},
      {.heads = 40, .kv_heads = 1, .head_dim = 6, .rotary_dims = 6},
      {.heads = 3, .kv_heads = 3, .head_dim = 34, .rotary_dims = 2, .window = 65},
      {.rotary_dims = 0},
      {.clip = 0.5F},
      {.element_gate = true, .clip = 0.5F},
      {.element_gate = true},
      {.rotary_dims = 4, .window = 10, .sinks = true, .element_gate = true},
      {.heads = 1, .kv_heads = 1, .element_gate = true},
      {.head_gate = true},
      {.rotary_dims = 0, .window = 20, .element_gate = true, .head_gate = true},
      {.whole_norm = true, .head_gate = true},
  };
  for (const Ops* ops : implementations()) {
    for (std::size_t i = 0; i < setups.size(); ++i) {
      const Fixture fixture(setups[i]);
      for (const std::int64_t tokens : {1, 63, 64, 65, 129}) {
        SCOPED_TRACE(std::string(ops->name()) + " setup " + std::to_string(i) + " tokens " + std::to_string(tokens));
        auto state = test::lone_state(fixture.layout);
        ASSERT_TRUE(state.ok());
        const auto x = random_input(tokens, fixture.setup.hidden);
        expect_matches(fixture, x, fixture.run(**state, x, *ops, 2));
      }
    }
  }
}

TEST(Attention, AnyCutAndThreadCountGivesTheSameBits) {
  const Fixture fixture({.window = 50, .sinks = true, .element_gate = true, .head_gate = true});
  const auto hidden = static_cast<std::ptrdiff_t>(fixture.setup.hidden);
  const auto x = random_input(140, hidden);
  for (const Ops* ops : implementations()) {
    auto whole_state = test::lone_state(fixture.layout);
    const auto whole = fixture.run(**whole_state, x, *ops, 3);
    auto state = test::lone_state(fixture.layout);
    std::vector<float> pieces;
    std::ptrdiff_t done = 0;
    for (const std::ptrdiff_t count : {1, 62, 1, 1, 1, 7, 64, 3}) {
      const std::vector<float> piece(x.begin() + done * hidden, x.begin() + (done + count) * hidden);
      const auto out = fixture.run(**state, piece, *ops, 1);
      pieces.insert(pieces.end(), out.begin(), out.end());
      done += count;
    }
    EXPECT_EQ(whole, pieces) << ops->name();
  }
}

// Long contexts are cut into sections of 512 positions, whose sums are merged: the definition still holds, and who
// computed a section leaves no trace.
TEST(Attention, SectionsOfLongContextsGiveTheSameBitsOnAnyThreads) {
  for (const Shape& shape :
       {Shape{.sinks = true}, Shape{.window = 700}, Shape{.heads = 2, .kv_heads = 1, .window = 5}}) {
    const Fixture fixture(shape);
    const auto hidden = static_cast<std::ptrdiff_t>(fixture.setup.hidden);
    const std::ptrdiff_t tokens = 1100;
    const auto x = random_input(tokens, hidden);
    for (const Ops* ops : implementations()) {
      SCOPED_TRACE(std::string(ops->name()) + " window " + std::to_string(shape.window));
      auto whole_state = test::lone_state(fixture.layout);
      const auto whole = fixture.run(**whole_state, x, *ops, 1);
      expect_matches(fixture, x, whole);
      // All but the last few positions at once, the others one by one: few tasks, so that sections are shared out.
      for (const int threads : {1, 2, 5}) {
        auto state = test::lone_state(fixture.layout);
        const std::vector<float> prompt(x.begin(), x.begin() + (tokens - 3) * hidden);
        std::vector<float> pieces = fixture.run(**state, prompt, *ops, threads);
        for (std::ptrdiff_t t = tokens - 3; t < tokens; ++t) {
          const std::vector<float> one(x.begin() + t * hidden, x.begin() + (t + 1) * hidden);
          const auto out = fixture.run(**state, one, *ops, threads);
          pieces.insert(pieces.end(), out.begin(), out.end());
        }
        EXPECT_EQ(pieces, whole) << threads;
      }
    }
  }
}

// Qwen3-30B-A3B has 48 layers, and 4 key heads of 128 numbers in each.
TEST(Attention, Qwen3A3bTakes96KibibytesAToken) {
  const auto token_bytes = [](KvType kv) {
    Attention::Parts parts;
    parts.shape = {.kv_heads = 4, .head_dim = 128};
    parts.kv = kv;
    const StateLayout layout(std::vector<LayerState>(48, Attention(std::move(parts)).state(ref_ops())));
    return layout.bytes(100 * kBlockTokens) / static_cast<std::size_t>(100 * kBlockTokens);
  };
  EXPECT_EQ(token_bytes(KvType::bf16), 96U << 10U);
  EXPECT_EQ(token_bytes(KvType::f32), 192U << 10U);
}

// Keys and values in fewer bytes: near the definition, and the same bits however a prompt was cut.
TEST(Attention, NarrowKeysAndValuesStayNear) {
  const std::vector<std::pair<KvType, double>> bounds{{KvType::bf16, 0.02}, {KvType::int8, 0.05}};
  for (const auto& [kv, bound] : bounds) {
    for (const Shape& shape : {Shape{.sinks = true}, Shape{.head_dim = 34, .rotary_dims = 2, .window = 65},
                               Shape{.heads = 3, .kv_heads = 3, .head_dim = 128, .rotary_dims = 128}}) {
      Shape narrow = shape;
      narrow.kv = kv;
      const Fixture fixture(narrow);
      const auto hidden = static_cast<std::ptrdiff_t>(narrow.hidden);
      const auto x = random_input(150, hidden);
      const auto want = fixture.naive(x);
      for (const Ops* ops : implementations()) {
        SCOPED_TRACE(std::string(to_string(kv)) + " " + std::string(ops->name()));
        auto whole_state = test::lone_state(fixture.layout);
        const auto whole = fixture.run(**whole_state, x, *ops, 3);
        double error = 0.0;
        double norm = 0.0;
        for (std::size_t i = 0; i < want.size(); ++i) {
          error += std::pow(static_cast<double>(whole[i]) - want[i], 2);
          norm += std::pow(want[i], 2);
        }
        EXPECT_LT(std::sqrt(error / norm), bound);
        EXPECT_GT(std::sqrt(error / norm), bound / 100);  // something was rounded
        auto state = test::lone_state(fixture.layout);
        std::vector<float> pieces;
        std::ptrdiff_t done = 0;
        for (const std::ptrdiff_t count : {1, 62, 1, 1, 80, 5}) {
          const std::vector<float> piece(x.begin() + done * hidden, x.begin() + (done + count) * hidden);
          const auto out = fixture.run(**state, piece, *ops, 1);
          pieces.insert(pieces.end(), out.begin(), out.end());
          done += count;
        }
        EXPECT_EQ(whole, pieces);
      }
    }
  }
}

}  // namespace
}  // namespace moracle
