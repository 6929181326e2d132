#include <gtest/gtest.h>

#include <numeric>
#include <random>

#include "format/format.h"
#include "support/memory_checkpoint.h"
#include "support/open_whole.h"

namespace moracle {
namespace {

using test::MemoryCheckpoint;
using Fake = std::shared_ptr<MemoryCheckpoint>;

constexpr std::int64_t kExperts = 3;
constexpr std::int64_t kHidden = 16;
constexpr std::int64_t kInner = 8;

ExpertsRef ref_of(ExpertsLayout layout) {
  return ExpertsRef{
      .name = "l.mlp.experts",
      .layouts = {ExpertsLayout{.gate = "x.{e}.w1", .up = "x.{e}.w3", .down = "x.{e}.w2"}, std::move(layout)},
      .experts = kExperts,
      .hidden = kHidden,
      .intermediate = kInner};
}
ExpertsRef per_expert() {
  return ref_of({.gate = "l.mlp.experts.{e}.gate_proj",
                 .up = "l.mlp.experts.{e}.up_proj",
                 .down = "l.mlp.experts.{e}.down_proj"});
}

Fake per_expert_checkpoint() {
  auto c = std::make_shared<MemoryCheckpoint>();
  for (std::int64_t e = 0; e < kExperts; ++e) {
    const std::string prefix = "l.mlp.experts." + std::to_string(e) + ".";
    c->add_zeros(prefix + "gate_proj.weight", Dtype::bf16, {kInner, kHidden});
    c->add_zeros(prefix + "up_proj.weight", Dtype::bf16, {kInner, kHidden});
    c->add_zeros(prefix + "down_proj.weight", Dtype::bf16, {kHidden, kInner});
  }
  return c;
}

Result<CanonicalExperts> open(const Fake& c, const ExpertsRef& ref) {
  TensorClaims claims(c);
  const auto format = make_format(*c);
  return test::open_whole(**format, ref, claims);
}

void expect_error(const Result<CanonicalExperts>& result, const std::string& code, const std::string& text) {
  ASSERT_FALSE(result.ok());
  EXPECT_EQ(result.error().code, code) << result.error().message();
  EXPECT_NE(result.error().message().find(text), std::string::npos) << result.error().message();
}

TEST(Experts, PerExpert) {
  const auto experts = open(per_expert_checkpoint(), per_expert());
  ASSERT_TRUE(experts.ok()) << experts.error().message();
  EXPECT_EQ(experts->experts.size(), 3U);
  EXPECT_EQ(experts->experts[2].up.weight->spec().name, "l.mlp.experts.2.up_proj");
  EXPECT_FALSE(experts->bias);
  EXPECT_EQ(to_string(experts->scheme), "W: bf16");
}

TEST(Experts, GapsExtrasAndNone) {
  auto gap = per_expert_checkpoint();
  gap->remove("l.mlp.experts.1.up_proj.weight");
  expect_error(open(gap, per_expert()), "experts.count", "2 experts; missing: 1");
  auto extra = per_expert_checkpoint();
  extra->add_zeros("l.mlp.experts.7.gate_proj.weight", Dtype::bf16, {kInner, kHidden});
  expect_error(open(extra, per_expert()), "experts.count", "beyond the config's number: 7");
  expect_error(open(std::make_shared<MemoryCheckpoint>(), per_expert()), "experts.count", "none");
  ExpertsRef huge = per_expert();
  huge.experts = std::int64_t{1} << 30;
  expect_error(open(per_expert_checkpoint(), huge), "experts.count", "3 experts; missing: 3, 4, 5");
  huge.experts = std::int64_t{1} << 40;
  expect_error(open(per_expert_checkpoint(), huge), "config.range", "1099511627776");
}

TEST(Experts, OneSchemeForAll) {
  auto dtype = per_expert_checkpoint();
  dtype->add_zeros("l.mlp.experts.2.down_proj.weight", Dtype::f16, {kHidden, kInner});
  expect_error(open(dtype, per_expert()), "experts.scheme", "l.mlp.experts.0.gate_proj W: bf16");
  expect_error(open(dtype, per_expert()), "experts.scheme", "found l.mlp.experts.2.down_proj W: f16");
  auto bias = per_expert_checkpoint();
  bias->add_zeros("l.mlp.experts.1.up_proj.bias", Dtype::bf16, {kInner});
  expect_error(open(bias, per_expert()), "experts.scheme", "up_proj W: bf16 with bias");
}

TEST(Experts, MixedBitsAreRefused) {
  auto c = std::make_shared<MemoryCheckpoint>(Json{{"quantization_config",
                                                    {{"quant_method", "gptq"},
                                                     {"bits", 4},
                                                     {"group_size", 8},
                                                     {"sym", true},
                                                     {"dynamic", {{".*experts\\.1\\.", {{"bits", 8}}}}}}}});
  for (std::int64_t e = 0; e < kExperts; ++e)
    for (const auto& [name, out, in] :
         {std::tuple{"gate_proj", kInner, kHidden}, {"up_proj", kInner, kHidden}, {"down_proj", kHidden, kInner}}) {
      const std::string path = "l.mlp.experts." + std::to_string(e) + "." + name;
      c->add_zeros(path + ".qweight", Dtype::i32, {in * (e == 1 ? 8 : 4) / 32, out});
      c->add_zeros(path + ".scales", Dtype::f16, {in / 8, out});
    }
  expect_error(open(c, per_expert()), "experts.scheme", "l.mlp.experts.1.gate_proj W: int8 g8 sym");
}

// Element i of a tensor is i, so that each read value tells where it came from.
void add_counted(MemoryCheckpoint& c, const std::string& name, std::vector<std::int64_t> shape) {
  std::int64_t count = 1;
  for (const std::int64_t dim : shape) count *= dim;
  std::vector<float> values(static_cast<std::size_t>(count));
  std::iota(values.begin(), values.end(), 0.0F);
  c.add(name, Dtype::f32, std::move(shape), values);
}

float value_at(const CanonicalLinear& linear, std::int64_t row, std::int64_t col) {
  MatrixPanel panel;
  EXPECT_TRUE(linear.weight->read(row, row + 1, panel).ok());
  return panel.values.at(static_cast<std::size_t>(col));
}

struct StackedCase {
  const char* name;
  bool interleaved;
  bool transposed;
};

TEST(Experts, StackedInAllFourWays) {
  for (const StackedCase& s : {StackedCase{"split", false, false}, StackedCase{"interleaved", true, false},
                               StackedCase{"transposed", false, true}, StackedCase{"both", true, true}}) {
    SCOPED_TRACE(s.name);
    auto c = std::make_shared<MemoryCheckpoint>();
    const std::string gate_up = "l.mlp.experts.gate_up_proj";
    const std::string down = "l.mlp.experts.down_proj";
    add_counted(*c, gate_up,
                s.transposed ? std::vector{kExperts, kHidden, 2 * kInner} : std::vector{kExperts, 2 * kInner, kHidden});
    add_counted(*c, down,
                s.transposed ? std::vector{kExperts, kInner, kHidden} : std::vector{kExperts, kHidden, kInner});
    add_counted(*c, gate_up + "_bias", {kExperts, 2 * kInner});
    add_counted(*c, down + "_bias", {kExperts, kHidden});
    TensorClaims claims(c);
    const auto format = make_format(*c);
    const auto experts = test::open_whole(
        **format,
        ref_of({.gate_up = gate_up, .stacked_down = down, .interleaved = s.interleaved, .transposed = s.transposed}),
        claims);
    ASSERT_TRUE(experts.ok()) << experts.error().message();
    EXPECT_TRUE(claims.unclaimed().empty());
    EXPECT_TRUE(experts->bias);
    for (std::int64_t e = 0; e < kExperts; ++e) {
      const auto& expert = experts->experts[static_cast<std::size_t>(e)];
      for (const auto& [row, col] : {std::pair{0, 0}, {3, 5}, {7, 15}}) {
        for (const bool up : {false, true}) {
          const std::int64_t stored = s.interleaved ? 2 * row + (up ? 1 : 0) : row + (up ? kInner : 0);
          const std::int64_t base = e * 2 * kInner * kHidden;
          const std::int64_t wanted = base + (s.transposed ? col * 2 * kInner + stored : stored * kHidden + col);
          const CanonicalLinear& linear = up ? expert.up : expert.gate;
          EXPECT_EQ(value_at(linear, row, col), static_cast<float>(wanted));
          EXPECT_EQ(linear.bias.at(static_cast<std::size_t>(row)), static_cast<float>(e * 2 * kInner + stored));
        }
        const std::int64_t wanted = e * kInner * kHidden + (s.transposed ? row * kHidden + col : col * kInner + row);
        EXPECT_EQ(value_at(expert.down, col, row), static_cast<float>(wanted));
      }
    }
  }
}

// One projection of all experts in one tensor, and gate and up of one expert in one tensor.
TEST(Experts, StackedByProjectionAndFusedPerExpert) {
  auto c = std::make_shared<MemoryCheckpoint>();
  add_counted(*c, "m.gate_proj.weight", {kExperts, kInner, kHidden});
  add_counted(*c, "m.up_proj.weight", {kExperts, kInner, kHidden});
  add_counted(*c, "m.down_proj.weight", {kExperts, kHidden, kInner});
  const auto stacked = open(c, ref_of({.gate = "m.gate_proj", .up = "m.up_proj", .down = "m.down_proj"}));
  ASSERT_TRUE(stacked.ok()) << stacked.error().message();
  EXPECT_EQ(value_at(stacked->experts[2].up, 3, 1), static_cast<float>(2 * kInner * kHidden + 3 * kHidden + 1));

  auto fused = std::make_shared<MemoryCheckpoint>();
  for (std::int64_t e = 0; e < kExperts; ++e) {
    add_counted(*fused, "m." + std::to_string(e) + ".gate_up_proj.weight", {2 * kInner, kHidden});
    add_counted(*fused, "m." + std::to_string(e) + ".down_proj.weight", {kHidden, kInner});
    add_counted(*fused, "m." + std::to_string(e) + ".gate_up_proj.bias", {2 * kInner});
    add_counted(*fused, "m." + std::to_string(e) + ".down_proj.bias", {kHidden});
  }
  const auto experts =
      open(fused, ref_of({.gate_up = "m.{e}.gate_up_proj", .stacked_down = "m.{e}.down_proj", .interleaved = true}));
  ASSERT_TRUE(experts.ok()) << experts.error().message();
  EXPECT_EQ(value_at(experts->experts[1].up, 3, 1), static_cast<float>(7 * kHidden + 1));
  EXPECT_EQ(experts->experts[1].up.bias[3], 7.0F);

  const auto halves = open(fused, ref_of({.gate_up = "m.{e}.gate_up_proj", .stacked_down = "m.{e}.down_proj"}));
  ASSERT_TRUE(halves.ok()) << halves.error().message();
  EXPECT_EQ(value_at(halves->experts[1].gate, 3, 1), static_cast<float>(3 * kHidden + 1));
  EXPECT_EQ(value_at(halves->experts[1].up, 3, 1), static_cast<float>((kInner + 3) * kHidden + 1));
  EXPECT_EQ(halves->experts[1].up.bias[3], static_cast<float>(kInner + 3));
}

// Gate and up of a packed matrix: any rows of it, alone or in panels, as the whole has them.
TEST(Experts, PackedPairIsDivided) {
  auto c = std::make_shared<MemoryCheckpoint>(
      Json{{"quantization_config", {{"quant_method", "gptq"}, {"bits", 4}, {"group_size", 8}, {"sym", false}}}});
  std::mt19937 rng(5);
  const auto words = [&](std::int64_t count) {
    std::vector<std::uint32_t> values(static_cast<std::size_t>(count));
    for (std::uint32_t& value : values) value = static_cast<std::uint32_t>(rng()) & 0x77777777U;  // no zero point of 16
    return values;
  };
  for (std::int64_t e = 0; e < kExperts; ++e) {
    const std::string number = std::to_string(e);
    for (const auto& [path, in, out] :
         {std::tuple{"gate_up." + number, kHidden, 2 * kInner}, {"down." + number, kInner, kHidden}}) {
      c->add(path + ".qweight", Dtype::i32, {in / 8, out}, words(in / 8 * out));
      c->add(path + ".qzeros", Dtype::i32, {in / 8, out / 8}, words(in / 8 * out / 8));
      c->add(path + ".scales", Dtype::f32, {in / 8, out},
             std::vector<float>(static_cast<std::size_t>(in / 8 * out), 0.5F));
    }
  }
  const auto experts = open(c, ref_of({.gate_up = "gate_up.{e}", .stacked_down = "down.{e}", .interleaved = true}));
  ASSERT_TRUE(experts.ok()) << experts.error().message();
  TensorClaims claims(c);
  const auto format = make_format(*c);
  const auto both =
      test::open_whole(**format, ModuleRef{.path = "gate_up.1", .fused = {}, .out = 2 * kInner, .in = kHidden}, claims);
  ASSERT_TRUE(both.ok());
  const auto whole = dequantize(*both->weight);
  ASSERT_TRUE(whole.ok());
  for (const bool up : {false, true}) {
    const MatrixSource& half = up ? *experts->experts[1].up.weight : *experts->experts[1].gate.weight;
    EXPECT_EQ(half.spec().rows, kInner);
    MatrixPanel panel;
    ASSERT_TRUE(half.read(1, 1, panel).ok());
    EXPECT_EQ(panel.rows, 0);
    ASSERT_FALSE(half.read(0, kInner + 1, panel).ok());
    for (const auto& [begin, end] : {std::pair<std::int64_t, std::int64_t>{0, kInner}, {3, 4}, {2, 5}}) {
      ASSERT_TRUE(half.read(begin, end, panel).ok());
      std::vector<float> values(static_cast<std::size_t>((end - begin) * kHidden));
      dequantize_panel(half.spec(), panel, values);
      for (std::int64_t row = begin; row < end; ++row) {
        const auto* const want = whole->data() + (2 * row + (up ? 1 : 0)) * kHidden;
        EXPECT_TRUE(std::equal(want, want + kHidden, values.data() + (row - begin) * kHidden)) << row;
      }
    }
  }
}

TEST(Experts, StackedErrors) {
  auto c = std::make_shared<MemoryCheckpoint>();
  c->add_zeros("g", Dtype::bf16, {kExperts + 1, 2 * kInner, kHidden});
  c->add_zeros("d", Dtype::bf16, {kExperts, kHidden, kInner});
  const ExpertsRef ref = ref_of({.gate_up = "g", .stacked_down = "d"});
  expect_error(open(c, ref), "experts.count", "found 4");
  c->add_zeros("g", Dtype::bf16, {kExperts, kHidden, 2 * kInner + 2});
  expect_error(open(c, ref), "tensor.shape", "[3, 16, 18]");
  c->add_zeros("g", Dtype::u8, {kExperts, 2 * kInner, kHidden});
  expect_error(open(c, ref), "config.contradiction", "U8");
  c->mutable_config()["quantization_config"] = {{"quant_method", "gptq"}, {"bits", 4}, {"group_size", 8}};
  expect_error(open(c, ref), "quant.unsupported", "stacked experts");
  std::vector<float> values(static_cast<std::size_t>(kExperts * 2 * kInner * kHidden), 1.0F);
  values[300] = -HUGE_VALF;
  auto nan = std::make_shared<MemoryCheckpoint>();
  nan->add("g", Dtype::f32, {kExperts, 2 * kInner, kHidden}, values);
  nan->add_zeros("d", Dtype::f32, {kExperts, kHidden, kInner});
  const auto experts = open(nan, ref);
  ASSERT_TRUE(experts.ok());
  MatrixPanel panel;
  const auto read = experts->experts[1].gate.weight->read(0, kInner, panel);
  ASSERT_FALSE(read.ok());
  EXPECT_NE(read.error().message().find("element 300"), std::string::npos) << read.error().message();
}

}  // namespace
}  // namespace moracle
