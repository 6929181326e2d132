#include "model/load/weight_store.h"

#include <gtest/gtest.h>

#include <cmath>
#include <numeric>
#include <string>
#include <utility>
#include <vector>

#include "model/load/read_arrays.h"

namespace moracle {
namespace {

std::vector<float> counted(std::size_t size, float first) {
  std::vector<float> numbers(size);
  std::iota(numbers.begin(), numbers.end(), first);
  return numbers;
}

// Small arrays share pages, large ones have their own; none moves when others come.
TEST(WeightStore, ArraysStayWhereTheyAre) {
  WeightStore store;
  std::vector<std::pair<DeviceArray<float>, std::vector<float>>> added;
  for (const std::size_t size : {std::size_t{1}, std::size_t{7}, std::size_t{0}, std::size_t{40000}, std::size_t{16},
                                 std::size_t{32768}, std::size_t{1} << 20U}) {
    for (int copy = 0; copy < 12; ++copy) {
      std::vector<float> numbers = counted(size, static_cast<float>(added.size()));
      const auto array = store.add(std::span<const float>(numbers));
      ASSERT_TRUE(array.ok()) << array.error().message();
      added.emplace_back(*array, std::move(numbers));
    }
  }
  for (const auto& [array, numbers] : added) {
    ASSERT_EQ(array.size, std::ssize(numbers));
    EXPECT_EQ(array.bytes(), numbers.size() * sizeof(float));
    EXPECT_EQ(reinterpret_cast<std::uintptr_t>(array.data) % BumpArena::kAlignment, 0U);
    EXPECT_TRUE(std::equal(numbers.begin(), numbers.end(), array.data)) << numbers.size();
  }
}

TEST(WeightStore, BlocksOfASinkAreTheArray) {
  WeightStore store;
  ThreadPool pool(3);
  constexpr std::int64_t kBlocks = 50;
  const auto array = store.fill<std::int32_t>(kBlocks * 4, [&](WeightSink& sink) {
    return write_blocks(sink, pool, kBlocks, 4 * sizeof(std::int32_t), [](std::int64_t block, auto bytes, int) {
      auto* const numbers = reinterpret_cast<std::int32_t*>(bytes.data());
      for (std::int32_t i = 0; i < 4; ++i) numbers[i] += static_cast<std::int32_t>(block) * 4 + i;
      return Result<>(Ok{});
    });
  });
  ASSERT_TRUE(array.ok()) << array.error().message();
  for (std::int64_t i = 0; i < kBlocks * 4; ++i) EXPECT_EQ(array->data[i], i);
}

TEST(WeightStore, PassesOnWhatWritingSays) {
  WeightStore store;
  ThreadPool pool(2);
  const auto array = store.fill<float>(64, [&](WeightSink& sink) {
    return on_workers(sink, pool, 64, [](std::int64_t i, int) {
      return i < 5 ? Result<>(Ok{}) : Result<>(Error{.code = "block." + std::to_string(i)});
    });
  });
  ASSERT_FALSE(array.ok());
  EXPECT_EQ(array.error().code, "block.5") << "the lowest one";
}

TEST(ReadArrays, Forms) {
  const std::vector<float> stored{0, 1, 2, 3, 4, 5};
  const auto brought = [&](ArrayForm form) {
    std::vector<float> numbers = stored;
    bring_into(form, 2, numbers);
    return numbers;
  };
  EXPECT_EQ(brought(ArrayForm::stored), stored);
  EXPECT_EQ(brought(ArrayForm::one_plus), (std::vector<float>{1, 2, 3, 4, 5, 6}));
  EXPECT_EQ(brought(ArrayForm::exponential)[1], std::exp(1.0F));
  EXPECT_EQ(brought(ArrayForm::transposed), (std::vector<float>{0, 3, 1, 4, 2, 5}));
}

}  // namespace
}  // namespace moracle
