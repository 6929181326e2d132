// The gated delta net against its definition in double, for both ways its projections are stored.
#include "model/blocks/delta_net.h"

#include <gtest/gtest.h>

#include <cmath>
#include <random>

#include "model/load/read_arrays.h"
#include "support/batch_state.h"
#include "support/dense_linear.h"
#include "support/lone_state.h"

namespace moracle {
namespace {

using test::DenseLinear;

struct Shape {
  std::int64_t key_heads = 2;
  std::int64_t value_heads = 6;
  std::int64_t key_dim = 12;
  std::int64_t value_dim = 20;
  std::int64_t kernel = 4;
  std::int64_t hidden = 24;
};

using Rows = std::vector<std::vector<double>>;

// Owns two mixers with the same weights, stored separately and grouped by key head.
struct Fixture {
  explicit Fixture(const Shape& s) : shape(s) {
    std::mt19937 rng(21);
    const std::int64_t keys = s.key_heads * s.key_dim;
    const std::int64_t values = s.value_heads * s.value_dim;
    qkv = std::make_unique<DenseLinear>(2 * keys + values, s.hidden, rng);
    z = std::make_unique<DenseLinear>(values, s.hidden, rng);
    b = std::make_unique<DenseLinear>(s.value_heads, s.hidden, rng);
    a = std::make_unique<DenseLinear>(s.value_heads, s.hidden, rng);
    out = std::make_unique<DenseLinear>(s.hidden, values, rng);
    std::normal_distribution<float> normal;
    const auto draw = [&](std::int64_t count, float mean, float width) {
      std::vector<float> v(static_cast<std::size_t>(count));
      for (float& value : v) value = mean + width * normal(rng);
      return v;
    };
    conv = draw((2 * keys + values) * s.kernel, 0.0F, 0.6F);
    a_log = draw(s.value_heads, -1.0F, 1.0F);
    dt_bias = draw(s.value_heads, 0.0F, 1.0F);
    norm = draw(s.value_dim, 1.0F, 0.3F);
    taps = conv;
    bring_into(ArrayForm::transposed, 2 * keys + values, taps);
    rate = a_log;
    bring_into(ArrayForm::exponential, s.value_heads, rate);
    separate = std::make_unique<DeltaNet>(parts(false));
    grouped = std::make_unique<DeltaNet>(parts(true));
    layout = std::make_shared<const StateLayout>(std::vector<LayerState>{separate->state(ref_ops())});
  }

  [[nodiscard]] DeltaNet::Parts parts(bool by_head) const {
    DeltaNet::Parts p;
    p.qkv = std::make_unique<DenseLinear>(by_head ? regroup_qkvz() : *qkv);
    p.b = std::make_unique<DenseLinear>(by_head ? regroup_ba() : *b);
    if (!by_head) {
      p.z = std::make_unique<DenseLinear>(*z);
      p.a = std::make_unique<DenseLinear>(*a);
    }
    p.out = std::make_unique<DenseLinear>(*out);
    p.taps = DeviceArray<float>::of(taps);
    p.rate = DeviceArray<float>::of(rate);
    p.dt_bias = DeviceArray<float>::of(dt_bias);
    p.norm.weight = DeviceArray<float>::of(norm);
    p.shape = {.key_heads = shape.key_heads,
               .value_heads = shape.value_heads,
               .key_dim = shape.key_dim,
               .value_dim = shape.value_dim,
               .kernel = shape.kernel,
               .grouped = by_head};
    return p;
  }

  // Rows [begin, begin + count) of `from`, appended to `to`.
  void append(DenseLinear& to, const DenseLinear& from, std::int64_t begin, std::int64_t count) const {
    to.weights.insert(to.weights.end(), from.weights.begin() + begin * shape.hidden,
                      from.weights.begin() + (begin + count) * shape.hidden);
  }
  [[nodiscard]] DenseLinear regroup_qkvz() const {
    const std::int64_t keys = shape.key_heads * shape.key_dim;
    const std::int64_t share = shape.value_heads / shape.key_heads * shape.value_dim;
    std::mt19937 unused;
    DenseLinear all(2 * keys + 2 * shape.key_heads * share, shape.hidden, unused);
    all.weights.clear();
    for (std::int64_t h = 0; h < shape.key_heads; ++h) {
      append(all, *qkv, h * shape.key_dim, shape.key_dim);
      append(all, *qkv, keys + h * shape.key_dim, shape.key_dim);
      append(all, *qkv, 2 * keys + h * share, share);
      append(all, *z, h * share, share);
    }
    return all;
  }
  [[nodiscard]] DenseLinear regroup_ba() const {
    const std::int64_t ratio = shape.value_heads / shape.key_heads;
    std::mt19937 unused;
    DenseLinear all(2 * shape.value_heads, shape.hidden, unused);
    all.weights.clear();
    for (std::int64_t h = 0; h < shape.key_heads; ++h) {
      append(all, *b, h * ratio, ratio);
      append(all, *a, h * ratio, ratio);
    }
    return all;
  }

  // One call over sequences that lie one after the other in x.
  std::vector<float> run(const DeltaNet& net, const std::vector<SequenceState*>& states,
                         const std::vector<std::int64_t>& counts, const std::vector<float>& x, const Ops& ops,
                         int threads, bool commit = true) const {
    ThreadPool pool(threads);
    test::HostBatch batch;
    for (std::size_t s = 0; s < states.size(); ++s) {
      EXPECT_TRUE(states[s]->reserve(states[s]->length() + counts[s]).ok());
      batch.add(*states[s], counts[s]);
    }
    std::vector<std::byte> workspace(net.workspace_bytes(ops, batch.tokens(), threads));
    Stream stream(pool);
    const ForwardContext context{
        .stream = stream, .ops = ops, .workspace = workspace, .tokens = batch.tokens(), .state = batch.view()};
    std::vector<float> y(x.size());
    net.run(context, x.data(), y.data());
    for (std::size_t s = 0; s < states.size(); ++s) {
      if (commit) states[s]->commit(states[s]->length() + counts[s]);
    }
    return y;
  }
  std::vector<float> run(const DeltaNet& net, SequenceState& state, const std::vector<float>& x, const Ops& ops,
                         int threads = 2) const {
    return run(net, {&state}, {static_cast<std::int64_t>(x.size()) / shape.hidden}, x, ops, threads);
  }
  [[nodiscard]] std::unique_ptr<SequenceState> new_state() const {
    auto state = test::lone_state(layout);
    EXPECT_TRUE(state.ok());
    return std::move(*state);
  }

  static double sigmoid(double v) { return 1.0 / (1.0 + std::exp(-v)); }
  static std::vector<double> unit(const std::vector<double>& from, std::size_t begin, std::size_t size) {
    double square = 0.0;
    for (std::size_t i = 0; i < size; ++i) square += from[begin + i] * from[begin + i];
    std::vector<double> v;
    for (std::size_t i = 0; i < size; ++i) v.push_back(from[begin + i] / std::sqrt(square + 1e-6));
    return v;
  }

  [[nodiscard]] Rows convolved(const Rows& inputs) const {
    const auto kernel = static_cast<std::size_t>(shape.kernel);
    Rows result;
    for (std::size_t t = 0; t < inputs.size(); ++t) {
      std::vector<double> row(inputs[t].size(), 0.0);
      for (std::size_t c = 0; c < row.size(); ++c) {
        for (std::size_t j = 0; j < kernel; ++j) {
          if (t + j + 1 >= kernel) row[c] += static_cast<double>(conv[c * kernel + j]) * inputs[t + j + 1 - kernel][c];
        }
        row[c] *= sigmoid(row[c]);
      }
      result.push_back(row);
    }
    return result;
  }

  // The state of one value head takes in one token; returns its output.
  static std::vector<double> step(Rows& state, const std::vector<double>& q, const std::vector<double>& k,
                                  const std::vector<double>& v, double decay, double beta) {
    std::vector<double> delta = v;
    for (std::size_t i = 0; i < k.size(); ++i) {
      for (std::size_t j = 0; j < v.size(); ++j) delta[j] -= k[i] * (state[i][j] *= decay);
    }
    std::vector<double> o(v.size(), 0.0);
    for (std::size_t i = 0; i < k.size(); ++i) {
      for (std::size_t j = 0; j < v.size(); ++j) o[j] += q[i] * (state[i][j] += k[i] * beta * delta[j]);
    }
    return o;
  }

  [[nodiscard]] std::vector<double> naive(const std::vector<float>& x) const {
    const auto hidden = static_cast<std::size_t>(shape.hidden);
    const auto dk = static_cast<std::size_t>(shape.key_dim);
    const auto dv = static_cast<std::size_t>(shape.value_dim);
    const auto heads = static_cast<std::size_t>(shape.value_heads);
    const auto key_heads = static_cast<std::size_t>(shape.key_heads);
    Rows inputs;
    Rows projected;
    for (std::size_t t = 0; t < x.size() / hidden; ++t) {
      inputs.emplace_back(x.begin() + static_cast<std::ptrdiff_t>(t * hidden),
                          x.begin() + static_cast<std::ptrdiff_t>((t + 1) * hidden));
      projected.push_back(qkv->times(inputs.back()));
    }
    const Rows mixed = convolved(projected);
    std::vector<Rows> states(heads, Rows(dk, std::vector<double>(dv, 0.0)));
    std::vector<double> result;
    for (std::size_t t = 0; t < inputs.size(); ++t) {
      const auto gate = z->times(inputs[t]);
      const auto bs = b->times(inputs[t]);
      const auto as = a->times(inputs[t]);
      std::vector<double> joined;
      for (std::size_t h = 0; h < heads; ++h) {
        const std::size_t key_head = h / (heads / key_heads);
        std::vector<double> q = unit(mixed[t], key_head * dk, dk);
        for (double& value : q) value /= std::sqrt(static_cast<double>(dk));
        const auto begin = mixed[t].begin() + static_cast<std::ptrdiff_t>(2 * key_heads * dk + h * dv);
        const double softplus = std::log1p(std::exp(as[h] + static_cast<double>(dt_bias[h])));
        const double decay = std::exp(-std::exp(static_cast<double>(a_log[h])) * softplus);
        const auto o = step(states[h], q, unit(mixed[t], (key_heads + key_head) * dk, dk),
                            {begin, begin + static_cast<std::ptrdiff_t>(dv)}, decay, sigmoid(bs[h]));
        double square = 0.0;
        for (const double value : o) square += value * value;
        const double rms = std::sqrt(square / static_cast<double>(dv) + 1e-6);
        for (std::size_t j = 0; j < dv; ++j) {
          const double g = gate[h * dv + j];
          joined.push_back(o[j] / rms * static_cast<double>(norm[j]) * g * sigmoid(g));
        }
      }
      for (const double value : out->times(joined)) result.push_back(value);
    }
    return result;
  }

  Shape shape;
  std::unique_ptr<DenseLinear> qkv, z, b, a, out;
  std::vector<float> conv, a_log, taps, rate, dt_bias, norm;
  std::unique_ptr<DeltaNet> separate, grouped;
  std::shared_ptr<const StateLayout> layout;
};

std::vector<float> random_input(std::int64_t tokens, std::int64_t hidden, unsigned seed = 22) {
  std::mt19937 rng(seed);
  std::normal_distribution<float> normal;
  std::vector<float> x(static_cast<std::size_t>(tokens * hidden));
  for (float& value : x) value = normal(rng);
  return x;
}

std::vector<const Ops*> implementations() {
  return {&ref_ops(), &host_ops(probe_machine().cpu_features)};
}

TEST(DeltaNet, MatchesTheDefinition) {
  const std::vector<Shape> shapes{
      {},
      {.key_heads = 3, .value_heads = 3, .key_dim = 32, .value_dim = 130},
      {.key_heads = 1, .value_heads = 4, .key_dim = 5, .value_dim = 7, .kernel = 2},
      {.key_heads = 4, .value_heads = 8, .key_dim = 128, .value_dim = 64, .kernel = 1},
  };
  for (const Ops* ops : implementations()) {
    for (std::size_t i = 0; i < shapes.size(); ++i) {
      const Fixture fixture(shapes[i]);
      for (const std::int64_t tokens : {1, 2, 3, 4, 70}) {
        SCOPED_TRACE(std::string(ops->name()) + " shape " + std::to_string(i) + " tokens " + std::to_string(tokens));
        const auto x = random_input(tokens, fixture.shape.hidden);
        const auto want = fixture.naive(x);
        const auto got = fixture.run(*fixture.separate, *fixture.new_state(), x, *ops);
        double largest = 0.0;
        for (std::size_t at = 0; at < want.size(); ++at) {
          largest = std::max(largest, std::abs(static_cast<double>(got[at]) - want[at]));
        }
        EXPECT_LT(largest, 1e-5);  // values are about 1; sums of up to 130 f32 terms, normed
        EXPECT_EQ(fixture.run(*fixture.grouped, *fixture.new_state(), x, *ops), got);
      }
    }
  }
}

TEST(DeltaNet, AnyCutBatchAndThreadCountGivesTheSameBits) {
  const Fixture fixture({.value_dim = 80});
  const auto hidden = static_cast<std::ptrdiff_t>(fixture.shape.hidden);
  const auto x = random_input(40, hidden);
  for (const Ops* ops : implementations()) {
    const auto whole = fixture.run(*fixture.separate, *fixture.new_state(), x, *ops, 3);
    const auto state = fixture.new_state();
    const auto other = fixture.new_state();
    std::vector<float> pieces;
    std::ptrdiff_t done = 0;
    for (const std::ptrdiff_t count : {1, 1, 2, 3, 20, 1, 12}) {
      // Beside another sequence, which comes first.
      std::vector<float> both = random_input(5, hidden, static_cast<unsigned>(count));
      both.insert(both.end(), x.begin() + done * hidden, x.begin() + (done + count) * hidden);
      const auto y = fixture.run(*fixture.separate, {other.get(), state.get()}, {5, count}, both, *ops, 1);
      pieces.insert(pieces.end(), y.begin() + 5 * hidden, y.end());
      done += count;
    }
    EXPECT_EQ(whole, pieces) << ops->name();
  }
}

TEST(DeltaNet, ACallThatIsNotCommittedChangesNothing) {
  const Fixture fixture({});
  const auto hidden = fixture.shape.hidden;
  const auto prompt = random_input(7, hidden, 1);
  const auto next = random_input(3, hidden, 2);
  const Ops& ops = ref_ops();
  const auto state = fixture.new_state();
  fixture.run(*fixture.separate, *state, prompt, ops);
  const auto fresh = fixture.new_state();
  fixture.run(*fixture.separate, *fresh, prompt, ops);
  fixture.run(*fixture.separate, {state.get()}, {9}, random_input(9, hidden, 3), ops, 2, false);
  const auto fork = state->fork();
  ASSERT_NE(fork, nullptr);
  const auto want = fixture.run(*fixture.separate, *fresh, next, ops);
  EXPECT_EQ(fixture.run(*fixture.separate, *state, next, ops), want);
  EXPECT_EQ(fixture.run(*fixture.separate, *fork, next, ops), want);
}

}  // namespace
}  // namespace moracle
