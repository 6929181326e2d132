// Latent attention against its definition: keys and values of every head made explicitly, in double, of a latent that
// was quantized where the projection's scheme quantizes its input.
#include "model/blocks/mla.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <random>

#include "device/host_device.h"
#include "model/load/read_arrays.h"
#include "scheme/activation_codes.h"
#include "support/batch_state.h"
#include "support/dense_linear.h"
#include "support/lone_state.h"

namespace moracle {
namespace {

using test::DenseLinear;
using Vector = std::vector<double>;

struct LatentShape {
  std::int64_t heads = 5;
  std::int64_t qk_nope_head_dim = 12;
  std::int64_t qk_rope_head_dim = 6;
  std::int64_t v_head_dim = 10;
  std::int64_t kv_lora_rank = 20;
  std::int64_t rank = 0;
  bool interleaved = true;
  std::optional<QuantKey> activation{};
  std::int64_t hidden = 24;
  KvType kv = KvType::f32;
};

// Unquantized weights in memory.
class LatentWeights final : public MatrixSource {
 public:
  LatentWeights(std::vector<float> values, std::int64_t rows, std::int64_t cols)
      : MatrixSource({.name = "kv_b_proj", .rows = rows, .cols = cols, .key = {.element = Element::f32}}),
        values_(std::move(values)) {}
  [[nodiscard]] Result<> read(std::int64_t begin, std::int64_t end, MatrixPanel& out) const override {
    out.rows = end - begin;
    out.values.assign(values_.begin() + begin * spec_.cols, values_.begin() + end * spec_.cols);
    return Ok{};
  }

 private:
  std::vector<float> values_;
};

constexpr float kScale = 0.3F;

// Owns a block and what its definition needs.
struct LatentFixture {
  explicit LatentFixture(const LatentShape& s) : shape(s) {
    std::mt19937 rng(5);
    LatentAttention::Parts parts;
    parts.rope = 0;
    const auto make = [&](std::int64_t out, std::int64_t in, const DenseLinear*& view) {
      auto linear = std::make_unique<DenseLinear>(out, in, rng);
      view = linear.get();
      return linear;
    };
    if (s.rank != 0) parts.q_a = make(s.rank, s.hidden, q_a);
    parts.q = make(s.heads * (s.qk_nope_head_dim + s.qk_rope_head_dim), s.rank != 0 ? s.rank : s.hidden, q);
    parts.kv_a = make(s.kv_lora_rank + s.qk_rope_head_dim, s.hidden, kv_a);
    parts.o = make(s.hidden, s.heads * s.v_head_dim, o);
    kv_b = std::make_unique<DenseLinear>(s.heads * (s.qk_nope_head_dim + s.v_head_dim), s.kv_lora_rank, rng);
    std::normal_distribution<float> normal;
    const auto norm = [&](std::int64_t size) {
      std::vector<float> weight;
      for (std::int64_t i = 0; i < size; ++i) weight.push_back(1.0F + 0.3F * normal(rng));
      return weight;
    };
    q_norm = norm(s.rank);
    kv_norm = norm(s.kv_lora_rank);
    parts.q_norm.weight = DeviceArray<float>::of(q_norm);
    parts.kv_norm.weight = DeviceArray<float>::of(kv_norm);
    CanonicalLinear canonical;
    canonical.weight =
        std::make_shared<LatentWeights>(kv_b->weights, s.heads * (s.qk_nope_head_dim + s.v_head_dim), s.kv_lora_rank);
    canonical.activation = s.activation;
    parts.shape = {.heads = s.heads,
                   .qk_nope_head_dim = s.qk_nope_head_dim,
                   .qk_rope_head_dim = s.qk_rope_head_dim,
                   .v_head_dim = s.v_head_dim,
                   .kv_lora_rank = s.kv_lora_rank,
                   .interleaved = s.interleaved,
                   .scale = kScale};
    auto projection = read_latent(canonical, parts.shape, load_pool, store);
    EXPECT_TRUE(projection.ok());
    parts.kv_b = *projection;
    parts.kv = s.kv;
    inv_freq = plain_frequencies(100.0, s.qk_rope_head_dim);
    attention = std::make_unique<LatentAttention>(std::move(parts));
    layout =
        std::make_shared<const StateLayout>(std::vector<LayerState>{{.block_bytes = 28}, attention->state(ref_ops())});
  }

  // Appends one piece to each state, in one batch.
  [[nodiscard]] std::vector<float> run(const std::vector<SequenceState*>& states,
                                       const std::vector<std::vector<float>>& pieces, const Ops& ops,
                                       int threads) const {
    ThreadPool pool(threads);
    std::vector<float> x;
    std::vector<float> cos;
    std::vector<float> sin;
    test::HostBatch batch;
    for (std::size_t s = 0; s < states.size(); ++s) {
      const auto tokens = static_cast<std::int64_t>(pieces[s].size()) / shape.hidden;
      const std::int64_t start = states[s]->length();
      EXPECT_TRUE(states[s]->reserve(start + tokens).ok());
      batch.add(*states[s], tokens);
      x.insert(x.end(), pieces[s].begin(), pieces[s].end());
      for (std::int64_t t = 0; t < tokens; ++t) {
        for (const double f : inv_freq) {
          cos.push_back(static_cast<float>(std::cos(static_cast<double>(start + t) * f)));
          sin.push_back(static_cast<float>(std::sin(static_cast<double>(start + t) * f)));
        }
      }
    }
    const RopeTable table{.cos = cos.data(), .sin = sin.data(), .half = std::ssize(inv_freq)};
    std::vector<std::byte> workspace(attention->workspace_bytes(ops, batch.tokens(), threads));
    Stream stream(pool);
    const ForwardContext context{.stream = stream,
                                 .ops = ops,
                                 .workspace = workspace,
                                 .tokens = batch.tokens(),
                                 .state = batch.view(),
                                 .ropes = {&table, 1}};
    std::vector<float> out(x.size());
    attention->run(context, x.data(), out.data());
    for (std::size_t s = 0; s < states.size(); ++s) {
      states[s]->commit(states[s]->length() + static_cast<std::int64_t>(pieces[s].size()) / shape.hidden);
    }
    return out;
  }

  static Vector normed(Vector x, const std::vector<float>& norm) {
    double square = 0.0;
    for (const double value : x) square += value * value;
    const double rms = std::sqrt(square / static_cast<double>(x.size()) + 1e-6);
    for (std::size_t i = 0; i < x.size(); ++i) x[i] *= static_cast<double>(norm[i]) / rms;
    return x;
  }
  [[nodiscard]] Vector rotated(const Vector& x, std::size_t position) const {
    Vector y = x;
    const std::size_t half = inv_freq.size();
    for (std::size_t i = 0; i < half; ++i) {
      const std::size_t a = shape.interleaved ? 2 * i : i;
      const std::size_t b = shape.interleaved ? 2 * i + 1 : i + half;
      const double angle = static_cast<double>(position) * inv_freq[i];
      y[a] = x[a] * std::cos(angle) - x[b] * std::sin(angle);
      y[b] = x[b] * std::cos(angle) + x[a] * std::sin(angle);
    }
    return y;
  }
  // What the projection reads: as the linear would, of the f32 latent.
  [[nodiscard]] Vector quantized(const Vector& latent) const {
    if (!shape.activation) return latent;
    std::vector<float> row(latent.begin(), latent.end());
    quantize_dequantize_row(*shape.activation, std::nullopt, row);
    return {row.begin(), row.end()};
  }
  static Vector part(const Vector& x, std::int64_t begin, std::int64_t size) {
    return {x.begin() + begin, x.begin() + begin + size};
  }
  static double product(const Vector& a, const Vector& b) {
    double sum = 0.0;
    for (std::size_t i = 0; i < a.size(); ++i) sum += a[i] * b[i];
    return sum;
  }

  [[nodiscard]] std::vector<double> naive(const std::vector<float>& x) const {
    const LatentShape& s = shape;
    std::vector<Vector> projected;
    std::vector<Vector> shared_keys;
    std::vector<double> out;
    const auto tokens = static_cast<std::int64_t>(x.size()) / s.hidden;
    for (std::int64_t t = 0; t < tokens; ++t) {
      const Vector row(x.begin() + t * s.hidden, x.begin() + (t + 1) * s.hidden);
      const Vector query = q->times(q_a == nullptr ? row : normed(q_a->times(row), q_norm));
      const Vector kv = kv_a->times(row);
      projected.push_back(kv_b->times(quantized(normed(part(kv, 0, s.kv_lora_rank), kv_norm))));
      shared_keys.push_back(rotated(part(kv, s.kv_lora_rank, s.qk_rope_head_dim), static_cast<std::size_t>(t)));
      Vector joined;
      for (std::int64_t h = 0; h < s.heads; ++h) {
        const Vector plain = part(query, h * (s.qk_nope_head_dim + s.qk_rope_head_dim), s.qk_nope_head_dim);
        const Vector turned =
            rotated(part(query, h * (s.qk_nope_head_dim + s.qk_rope_head_dim) + s.qk_nope_head_dim, s.qk_rope_head_dim),
                    static_cast<std::size_t>(t));
        Vector sum(static_cast<std::size_t>(s.v_head_dim), 0.0);
        double total = 0.0;
        for (std::size_t j = 0; j <= static_cast<std::size_t>(t); ++j) {
          const std::int64_t at = h * (s.qk_nope_head_dim + s.v_head_dim);
          const double score =
              product(plain, part(projected[j], at, s.qk_nope_head_dim)) + product(turned, shared_keys[j]);
          const double weight = std::exp(score * static_cast<double>(kScale));
          total += weight;
          const Vector v = part(projected[j], at + s.qk_nope_head_dim, s.v_head_dim);
          for (std::size_t i = 0; i < sum.size(); ++i) sum[i] += weight * v[i];
        }
        for (const double value : sum) joined.push_back(value / total);
      }
      for (const double value : o->times(joined)) out.push_back(value);
    }
    return out;
  }

  LatentShape shape;
  const DenseLinear* q_a = nullptr;
  const DenseLinear* q = nullptr;
  const DenseLinear* kv_a = nullptr;
  const DenseLinear* o = nullptr;
  std::unique_ptr<DenseLinear> kv_b;
  std::vector<float> q_norm, kv_norm;
  ThreadPool load_pool{2};
  WeightStore store{std::make_shared<HostDevice>(Machine{}, load_pool)};
  std::vector<double> inv_freq;
  std::unique_ptr<LatentAttention> attention;
  std::shared_ptr<const StateLayout> layout;
};

std::vector<float> latent_input(std::int64_t tokens, std::int64_t hidden, unsigned seed) {
  std::mt19937 rng(seed);
  std::normal_distribution<float> normal;
  std::vector<float> x(static_cast<std::size_t>(tokens * hidden));
  for (float& value : x) value = normal(rng);
  return x;
}

std::vector<const Ops*> latent_implementations() {
  return {&ref_ops(), &host_ops(probe_machine().cpu_features)};
}

constexpr QuantKey kGroups{
    .element = Element::e4m3, .scale = ScaleType::f32, .granularity = Granularity::group(16), .dynamic = true};
constexpr QuantKey kTokens{
    .element = Element::int8, .scale = ScaleType::f32, .granularity = Granularity::token(), .dynamic = true};

TEST(LatentAttention, MatchesTheDefinition) {
  const std::vector<LatentShape> shapes{
      {},
      {.rank = 9},
      {.interleaved = false},
      {.heads = 1, .qk_nope_head_dim = 1, .qk_rope_head_dim = 2, .v_head_dim = 1, .kv_lora_rank = 1},
      {.heads = 70, .qk_nope_head_dim = 3, .qk_rope_head_dim = 4, .v_head_dim = 5, .kv_lora_rank = 8},
      {.heads = 2, .qk_nope_head_dim = 33, .qk_rope_head_dim = 32, .v_head_dim = 65, .kv_lora_rank = 64, .rank = 40},
  };
  for (const Ops* ops : latent_implementations()) {
    for (std::size_t i = 0; i < shapes.size(); ++i) {
      const LatentFixture fixture(shapes[i]);
      // Around the 64 positions of a block and the 128 tokens of a chunk.
      for (const std::int64_t tokens : {1, 63, 64, 65, 131}) {
        SCOPED_TRACE(std::string(ops->name()) + " shape " + std::to_string(i) + " tokens " + std::to_string(tokens));
        auto state = test::lone_state(fixture.layout);
        ASSERT_TRUE(state.ok());
        const auto x = latent_input(tokens, fixture.shape.hidden, 6);
        const auto got = fixture.run({state->get()}, {x}, *ops, 2);
        const auto want = fixture.naive(x);
        ASSERT_EQ(got.size(), want.size());
        double largest = 0.0;
        for (std::size_t k = 0; k < want.size(); ++k) {
          largest = std::max(largest, std::abs(static_cast<double>(got[k]) - want[k]));
        }
        EXPECT_LT(largest, 1e-5);  // values are about 1; sums of up to 130 f32 terms
      }
    }
  }
}

// The latent is quantized as the linear would do it. A code at a tie may fall to the other side, which moves that token
// and later ones; without any quantization every token would be off by more than 4e-3.
TEST(LatentAttention, QuantizesTheLatentAsItsProjectionWould) {
  for (const QuantKey& key : {kGroups, kTokens}) {
    const LatentFixture fixture({.activation = key});
    const LatentFixture plain({});
    const auto x = latent_input(40, fixture.shape.hidden, 7);
    auto state = test::lone_state(fixture.layout);
    const auto got = fixture.run({state->get()}, {x}, ref_ops(), 1);
    const auto want = fixture.naive(x);
    const auto unquantized = plain.naive(x);
    std::vector<double> errors;
    double dropped = 0.0;
    for (std::size_t i = 0; i < want.size(); ++i) {
      errors.push_back(std::abs(static_cast<double>(got[i]) - want[i]));
      dropped = std::max(dropped, std::abs(unquantized[i] - want[i]));
    }
    std::sort(errors.begin(), errors.end());
    EXPECT_LT(errors[errors.size() / 2], 1e-5);
    EXPECT_GT(dropped, 1e-3);
  }
}

TEST(LatentAttention, AnyBatchCutAndThreadCountGivesTheSameBits) {
  const LatentFixture fixture({.heads = 37, .rank = 9, .activation = kTokens});
  const auto hidden = static_cast<std::ptrdiff_t>(fixture.shape.hidden);
  const auto x = latent_input(140, hidden, 8);
  const auto other = latent_input(67, hidden, 9);
  for (const Ops* ops : latent_implementations()) {
    auto whole_state = test::lone_state(fixture.layout);
    const auto whole = fixture.run({whole_state->get()}, {x}, *ops, 3);
    auto alone_state = test::lone_state(fixture.layout);
    const auto alone = fixture.run({alone_state->get()}, {other}, *ops, 1);

    auto state = test::lone_state(fixture.layout);
    std::vector<float> pieces;
    std::ptrdiff_t done = 0;
    for (const std::ptrdiff_t count : {1, 62, 1, 1, 1, 7, 64, 3}) {
      const auto out =
          fixture.run({state->get()}, {{x.begin() + done * hidden, x.begin() + (done + count) * hidden}}, *ops, 1);
      pieces.insert(pieces.end(), out.begin(), out.end());
      done += count;
    }
    EXPECT_EQ(whole, pieces) << ops->name();

    auto first = test::lone_state(fixture.layout);
    auto second = (*first)->fork();
    const auto together = fixture.run({first->get(), second.get()}, {other, x}, *ops, 8);
    std::vector<float> expected = alone;
    expected.insert(expected.end(), whole.begin(), whole.end());
    EXPECT_EQ(together, expected) << ops->name();
  }
}

// Latents in fewer bytes, within the bounds of narrow keys and values: the same bits however a prompt was cut, whatever
// else is in the batch, for any number of threads.
TEST(LatentAttention, NarrowLatentsStayNear) {
  const std::vector<std::pair<KvType, double>> bounds{{KvType::bf16, 0.02}, {KvType::int8, 0.05}};
  for (const auto& [kv, bound] : bounds) {
    for (const LatentShape& shape :
         {LatentShape{}, LatentShape{.rank = 9, .interleaved = false},
          LatentShape{
              .heads = 37, .qk_nope_head_dim = 33, .qk_rope_head_dim = 32, .v_head_dim = 65, .kv_lora_rank = 64}}) {
      LatentShape narrow = shape;
      narrow.kv = kv;
      const LatentFixture fixture(narrow);
      const auto hidden = static_cast<std::ptrdiff_t>(narrow.hidden);
      const auto x = latent_input(150, hidden, 10);
      const auto other = latent_input(67, hidden, 11);
      const auto want = fixture.naive(x);
      for (const Ops* ops : latent_implementations()) {
        SCOPED_TRACE(std::string(to_string(kv)) + " " + std::string(ops->name()));
        auto whole_state = test::lone_state(fixture.layout);
        const auto whole = fixture.run({whole_state->get()}, {x}, *ops, 3);
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
          const auto out =
              fixture.run({state->get()}, {{x.begin() + done * hidden, x.begin() + (done + count) * hidden}}, *ops, 1);
          pieces.insert(pieces.end(), out.begin(), out.end());
          done += count;
        }
        EXPECT_EQ(whole, pieces);
        auto first = test::lone_state(fixture.layout);
        auto second = (*first)->fork();
        const auto together = fixture.run({first->get(), second.get()}, {other, x}, *ops, 8);
        EXPECT_TRUE(std::equal(whole.begin(), whole.end(), together.begin() + std::ssize(other)));
      }
    }
  }
}

// A latent that is not finite has no int8 scale, and its own sequence alone is spoiled.
TEST(LatentAttention, NotFiniteLatentsSpoilTheirOwnSequence) {
  for (const KvType kv : {KvType::f32, KvType::bf16, KvType::int8}) {
    LatentShape shape;
    shape.kv = kv;
    const LatentFixture fixture(shape);
    auto broken = latent_input(70, shape.hidden, 12);
    const auto sound = latent_input(3, shape.hidden, 13);
    broken[static_cast<std::size_t>(5 * shape.hidden)] = std::nanf("");
    auto alone_state = test::lone_state(fixture.layout);
    const auto alone = fixture.run({alone_state->get()}, {sound}, ref_ops(), 1);
    auto first = test::lone_state(fixture.layout);
    auto second = (*first)->fork();
    const auto together = fixture.run({first->get(), second.get()}, {broken, sound}, ref_ops(), 2);
    EXPECT_TRUE(std::isfinite(together[static_cast<std::size_t>(4 * shape.hidden)])) << "before it";
    EXPECT_TRUE(std::isnan(together[static_cast<std::size_t>(69 * shape.hidden)])) << "behind it";
    EXPECT_TRUE(std::equal(alone.begin(), alone.end(), together.begin() + std::ssize(broken)));
  }
}

// A projection that cannot be read is an error, not a wrong model.
TEST(LatentAttention, PassesOnWhatReadingSays) {
  class Broken final : public MatrixSource {
   public:
    Broken() : MatrixSource({.name = "kv_b_proj", .rows = 8, .cols = 4, .key = {.element = Element::f32}}) {}
    [[nodiscard]] Result<> read(std::int64_t, std::int64_t, MatrixPanel&) const override {
      return Error{.code = "value.nan", .found = "NaN"};
    }
  };
  CanonicalLinear linear;
  linear.weight = std::make_shared<Broken>();
  ThreadPool pool(2);
  WeightStore store(std::make_shared<HostDevice>(Machine{}, pool));
  const auto projection =
      read_latent(linear, {.heads = 2, .qk_nope_head_dim = 2, .v_head_dim = 2, .kv_lora_rank = 4}, pool, store);
  ASSERT_FALSE(projection.ok());
  EXPECT_EQ(projection.error().code, "value.nan");
}

}  // namespace
}  // namespace moracle
