// Linears on the test's device, whose kernels are those of few tokens, of several and of many.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <string>
#include <vector>

#include "device/kernels_fixture.h"
#include "support/device_calls.h"

namespace moracle {
namespace {

// Every code, groups narrower and wider than what a lane takes at a time, zero points, two levels of scales.
const Scheme kSchemes[] = {
    {.weight = {.element = Element::f32}, .activation = {}},
    {.weight = {.element = Element::f16}, .activation = {}},
    {.weight = {.element = Element::bf16}, .activation = {}},
    {.weight = kInt4, .activation = {}},
    {.weight =
         {.element = Element::int4, .scale = ScaleType::f16, .granularity = Granularity::group(16), .symmetric = false},
     .activation = {}},
    {.weight =
         {.element = Element::int4, .scale = ScaleType::f16, .granularity = Granularity::group(64), .symmetric = false},
     .activation = {}},
    {.weight = {.element = Element::int8,
                .scale = ScaleType::bf16,
                .granularity = Granularity::group(32),
                .symmetric = false},
     .activation = {}},
    {.weight = {.element = Element::int8, .scale = ScaleType::f32, .granularity = Granularity::group(128)},
     .activation = {}},
    {.weight = kFp8Block,
     .activation = QuantKey{.element = Element::e4m3,
                            .scale = ScaleType::f32,
                            .granularity = Granularity::group(128),
                            .dynamic = true}},
    {.weight = kMxfp4, .activation = {}},
    {.weight = {.element = Element::e2m1,
                .scale = ScaleType::e4m3,
                .granularity = Granularity::group(16),
                .second_level = true},
     .activation = {}}};

struct Size {
  std::int64_t rows, cols;
};
// Columns that end in part of a group, more than lie in shared memory at a time, rows that a cluster shares, and few.
constexpr Size kSizes[] = {{50, 208}, {37, 3000}, {300, 1024}, {8, 2560}};

const KernelCard& card_of(const Scheme& scheme, std::string_view backend) {
  const Table table = test::table_of(scheme);
  const auto row =
      std::find_if(table.rows.begin(), table.rows.end(), [&](const TableRow& r) { return r.card->backend == backend; });
  EXPECT_NE(row, table.rows.end()) << to_string(scheme);
  return *row->card;
}

double bound_of(const Scheme& scheme) {
  const bool rounds =
      !scheme.activation && scheme.weight.element != Element::f16 && scheme.weight.element != Element::f32;
  return rounds ? 4 * relative_rounding(InputRounding::bf16) : 1e-5;
}

// About each width of a tile; the fake device has one kernel for all.
std::vector<std::int64_t> token_counts() {
  if (!test::has_gpu()) return {1, 9, 65};
  return {1, 2, 3, 4, 5, 7, 8, 9, 16, 17, 32, 33, 64, 65, 150};
}

using LinearTest = DeviceKernelsTest;

TEST_F(LinearTest, AnyNumberOfTokensIsTheHosts) {
  ThreadPool pool(2);
  for (const Scheme& scheme : kSchemes) {
    for (const Size& size : kSizes) {
      const CanonicalLinear linear = test::random_linear(
          {.key = scheme.weight, .activation = scheme.activation, .rows = size.rows, .cols = size.cols, .bias = true},
          rng_);
      for (const std::int64_t tokens : token_counts()) {
        const auto x = normal_values(static_cast<std::size_t>(tokens * size.cols), rng_);
        const auto found = test::run_linear(card_of(scheme, "portable"), linear, x, pool);
        EXPECT_LE(relative_error(found, test::run_linear(card_of(scheme, "ref"), linear, x, pool)), bound_of(scheme))
            << to_string(scheme) << ", " << size.cols << " columns, " << tokens << " tokens";
        EXPECT_EQ(found, test::run_linear(card_of(scheme, "portable"), linear, x, pool))
            << "another run gave other bits";
      }
    }
  }
}

// So many rows that blocks take tiles in turn, and tokens that fill tiles of both widths.
TEST_F(LinearTest, ManyTokensOfManyRowsAreTheHosts) {
  if (!test::has_gpu()) GTEST_SKIP() << "the fake device has no tiles";
  ThreadPool pool(16);
  constexpr Size kSize{2948, 208};
  for (const Scheme& scheme : kSchemes) {
    const CanonicalLinear linear = test::random_linear(
        {.key = scheme.weight, .activation = scheme.activation, .rows = kSize.rows, .cols = kSize.cols, .bias = true},
        rng_);
    for (const std::int64_t tokens : {300, 777}) {
      const auto x = normal_values(static_cast<std::size_t>(tokens * kSize.cols), rng_);
      const auto found = test::run_linear(card_of(scheme, "portable"), linear, x, pool);
      EXPECT_LE(relative_error(found, test::run_linear(card_of(scheme, "ref"), linear, x, pool)), bound_of(scheme))
          << to_string(scheme) << ", " << tokens << " tokens";
      EXPECT_EQ(found, test::run_linear(card_of(scheme, "portable"), linear, x, pool)) << "another run gave other bits";
    }
  }
}

// Up to four that read one input, more of them, and one of another code among them: each its own, whatever the order of
// its sums is. On one order of sums all have the bits of their own calls.
TEST_F(LinearTest, FusedLinearsAreEachItsOwn) {
  ThreadPool pool(2);
  // At least 6: of 2 outputs for a token, both are small in one of 50 draws, and the error relative to them large.
  const std::int64_t rows[] = {50, 6, 37, 129, 24, 8};
  constexpr std::int64_t kCols = 272;
  for (const Scheme& scheme : kSchemes) {
    const Scheme& other = scheme.weight.element == Element::f32 ? kSchemes[3] : kSchemes[0];
    std::vector<CanonicalLinear> linears;
    std::vector<const KernelCard*> cards;
    std::vector<const KernelCard*> references;
    std::vector<double> bounds;
    for (const std::int64_t out : rows) {
      const Scheme& of = out == 6 ? other : scheme;
      linears.push_back(test::random_linear(
          {.key = of.weight, .activation = of.activation, .rows = out, .cols = kCols, .bias = out != 37}, rng_));
      cards.push_back(&card_of(of, "portable"));
      references.push_back(&card_of(of, "ref"));
      bounds.push_back(bound_of(of));
    }
    for (const std::int64_t tokens : {1, 3, 9, 40, 70}) {
      const auto x = normal_values(static_cast<std::size_t>(tokens * kCols), rng_);
      const auto found = test::run_fused(cards, linears, x, pool);
      const auto again = test::run_fused(cards, linears, x, pool);
      const auto in_order = test::run_fused(cards, linears, x, pool, true);
      ASSERT_EQ(found.size(), linears.size());
      EXPECT_EQ(again, found) << "another run gave other bits";
      for (std::size_t i = 0; i < linears.size(); ++i) {
        EXPECT_LE(relative_error(found[i], test::run_linear(*references[i], linears[i], x, pool)), bounds[i])
            << to_string(scheme) << ", linear " << i << ", " << tokens << " tokens";
        EXPECT_EQ(in_order[i], test::run_linear(*cards[i], linears[i], x, pool, true)) << to_string(scheme);
      }
    }
  }
}

TEST_F(LinearTest, OneOrderForEveryBatchWhereItIsAskedFor) {
  if (!test::has_gpu()) GTEST_SKIP() << "the fake device has no batches";
  ThreadPool pool(2);
  constexpr std::int64_t kCols = 3000;
  for (const Scheme& scheme : kSchemes) {
    const KernelCard& card = card_of(scheme, "portable");
    const CanonicalLinear linear =
        test::random_linear({.key = scheme.weight, .activation = scheme.activation, .rows = 37, .cols = kCols}, rng_);
    const auto x = normal_values(20 * kCols, rng_);
    const auto all = test::run_linear(card, linear, x, pool, true);
    const auto one = test::run_linear(card, linear, {x.begin(), x.begin() + kCols}, pool, true);
    EXPECT_TRUE(std::equal(one.begin(), one.end(), all.begin())) << to_string(scheme);
    const auto either = test::run_linear(card, linear, {x.begin(), x.begin() + kCols}, pool);
    EXPECT_NE(either, one) << "one kernel for all, " << to_string(scheme);
    const CanonicalLinear narrow =
        test::random_linear({.key = scheme.weight, .activation = scheme.activation, .rows = 3, .cols = kCols}, rng_);
    const auto many = test::run_linear(card, narrow, x, pool, true);
    const auto alone = test::run_linear(card, narrow, {x.begin(), x.begin() + kCols}, pool, true);
    EXPECT_TRUE(std::equal(alone.begin(), alone.end(), many.begin())) << "three rows, " << to_string(scheme);
  }
}

}  // namespace
}  // namespace moracle
