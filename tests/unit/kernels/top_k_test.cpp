// The operation that ranks rows, against a sort of all numbers.
#include <gtest/gtest.h>

#include <algorithm>
#include <iterator>
#include <random>
#include <span>
#include <string>
#include <vector>

#include "base/random/gumbel.h"
#include "kernels/ops.h"

namespace moracle {
namespace {

constexpr double kTemperature = 0.7;

struct Keyed {
  double key = 0.0;
  RankedOutput number{};
};

std::vector<RankedOutput> sorted(std::span<const float> row, const std::uint64_t* seed) {
  std::vector<Keyed> all;
  for (std::size_t col = 0; col < row.size(); ++col) {
    Keyed keyed{.key = static_cast<double>(row[col]), .number = {row[col], static_cast<std::int64_t>(col)}};
    if (seed != nullptr) keyed.key = keyed.key / kTemperature + gumbel(*seed, col);
    all.push_back(keyed);
  }
  std::sort(all.begin(), all.end(), [](const auto& a, const auto& b) {
    return a.key > b.key || (a.key == b.key && a.number.row < b.number.row);
  });
  std::vector<RankedOutput> numbers;
  std::ranges::transform(all, std::back_inserter(numbers), &Keyed::number);
  return numbers;
}

// Rows of several pieces with many ties, of which one is bad; with and without seeds.
TEST(TopK, IsTheBeginningOfASort) {
  constexpr std::int64_t kRows = 3;
  constexpr std::int64_t kCols = 20000;
  std::mt19937 rng(5);
  std::vector<float> x(kRows * kCols);
  for (float& value : x) value = static_cast<float>(rng() % 1000) / 64.0F;
  const std::vector<std::uint8_t> bad{0, 1, 0};
  const std::vector<std::uint64_t> seeds{7, 8, 9};
  for (const bool seeded : {false, true}) {
    std::vector<std::vector<RankedOutput>> want;
    for (std::size_t row = 0; row < kRows; ++row) {
      want.push_back(sorted(std::span(x).subspan(row * kCols, kCols), seeded ? &seeds[row] : nullptr));
    }
    for (const std::int64_t k : {std::int64_t{1}, std::int64_t{40}, kMaxHeadTopK, std::int64_t{1000}, kCols}) {
      for (const int threads : {1, 3}) {
        SCOPED_TRACE("k " + std::to_string(k) + (seeded ? ", seeded, " : ", ") + std::to_string(threads) + " threads");
        ThreadPool pool(threads);
        Stream stream(pool);
        std::vector<RankedOutput> out(static_cast<std::size_t>(kRows * k), RankedOutput{.value = -1.0F, .row = -1});
        const RankArgs args{.rows = kRows,
                            .cols = kCols,
                            .k = k,
                            .x = x.data(),
                            .bad = bad.data(),
                            .seeds = seeded ? seeds.data() : nullptr,
                            .temperature = kTemperature,
                            .out = out.data()};
        std::vector<std::byte> workspace(ref_ops().workspace(args, threads));
        ref_ops().top_k({.stream = stream, .workspace = workspace}, args);
        for (std::size_t i = 0; i < out.size(); ++i) {
          const std::size_t row = i / static_cast<std::size_t>(k);
          const RankedOutput& number = want[row][i % static_cast<std::size_t>(k)];
          ASSERT_EQ(out[i].row, bad[row] != 0 ? -1 : number.row) << i;
          ASSERT_EQ(out[i].value, bad[row] != 0 ? -1.0F : number.value) << i;
        }
      }
    }
  }
}

}  // namespace
}  // namespace moracle
