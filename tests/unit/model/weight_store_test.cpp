#include "model/load/weight_store.h"

#include <gtest/gtest.h>

#include <cmath>
#include <numeric>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "device/gpu_device.h"
#include "device/host_device.h"
#include "model/load/read_arrays.h"
#include "support/fake_device.h"

namespace moracle {
namespace {

std::vector<float> counted(std::size_t size, float first) {
  std::vector<float> numbers(size);
  std::iota(numbers.begin(), numbers.end(), first);
  return numbers;
}

// The host's memory, and that of a GPU, which a fake keeps on the host.
enum class Memory : std::uint8_t { host, gpu };

class WeightStoreTest : public testing::TestWithParam<Memory> {
 protected:
  void SetUp() override {
    if (GetParam() == Memory::host) {
      store_.emplace(std::make_shared<HostDevice>(Machine{}, pool_));
      return;
    }
    const auto device = GpuDevice::open(fake_.api(), 0);
    ASSERT_TRUE(device.ok());
    upload_.emplace(**device);
    store_.emplace(*device, &*upload_);
    fake_.late_copies = true;
  }

  test::FakeDevice fake_;
  ThreadPool pool_{3};
  std::optional<WeightStore> store_;
  std::optional<UploadBuffer> upload_;
};

// Small arrays share an allocation, large ones have their own; none moves when others come.
TEST_P(WeightStoreTest, ArraysStayWhereTheyAre) {
  std::vector<std::pair<DeviceArray<float>, std::vector<float>>> added;
  for (const std::size_t size : {std::size_t{1}, std::size_t{7}, std::size_t{0}, std::size_t{40000}, std::size_t{16},
                                 std::size_t{32768}, std::size_t{1} << 20U}) {
    for (int copy = 0; copy < 12; ++copy) {
      std::vector<float> numbers = counted(size, static_cast<float>(added.size()));
      const auto array = store_->add(std::span<const float>(numbers));
      ASSERT_TRUE(array.ok()) << array.error().message();
      added.emplace_back(*array, std::move(numbers));
    }
  }
  const float* const first = added.front().first.data;
  for (const auto& [array, numbers] : added) {
    ASSERT_EQ(array.size, std::ssize(numbers));
    EXPECT_EQ(array.bytes(), numbers.size() * sizeof(float));
    EXPECT_TRUE(std::equal(numbers.begin(), numbers.end(), array.data)) << numbers.size();
    if (numbers.size() == 7) {
      EXPECT_EQ((array.data - first) * 4 % 64, 0) << "whole cache lines";
    }
  }
}

TEST_P(WeightStoreTest, BlocksOfASinkAreTheArray) {
  constexpr std::int64_t kBlocks = 50;
  const auto write = [&](WeightSink& sink) {
    return write_blocks(sink, pool_, kBlocks, 4 * sizeof(std::int32_t), [](std::int64_t block, auto bytes, int) {
      auto* const numbers = reinterpret_cast<std::int32_t*>(bytes.data());
      for (std::int32_t i = 0; i < 4; ++i) numbers[i] += static_cast<std::int32_t>(block) * 4 + i;
      return Result<>(Ok{});
    });
  };
  const auto array = store_->fill<std::int32_t>(kBlocks * 4, 4 * sizeof(std::int32_t), pool_.threads(), write);
  ASSERT_TRUE(array.ok()) << array.error().message();
  for (std::int64_t i = 0; i < kBlocks * 4; ++i) EXPECT_EQ(array->data[i], i);
}

TEST_P(WeightStoreTest, PassesOnWhatWritingSays) {
  const auto array = store_->fill<float>(64, 4, 2, [&](WeightSink& sink) {
    return on_workers(sink, pool_, 64, [](std::int64_t i, int) {
      return i < 5 ? Result<>(Ok{}) : Result<>(Error{.code = "block." + std::to_string(i)});
    });
  });
  ASSERT_FALSE(array.ok());
  EXPECT_EQ(array.error().code, "block.5") << "the lowest one";
}

INSTANTIATE_TEST_SUITE_P(, WeightStoreTest, testing::Values(Memory::host, Memory::gpu),
                         [](const auto& info) { return info.param == Memory::host ? "host" : "gpu"; });

// Whichever call of a GPU fails: one error, and nothing is left there.
TEST(WeightStore, AnyCallOfAGpuThatFails) {
  const std::vector<float> small(100, 1.0F);
  const std::vector<float> large(std::size_t{1} << 18U, 2.0F);
  for (const char* const call : {"allocate", "allocate_pinned", "make_stream", "copy", "wait"}) {
    for (int at = 1;; ++at) {
      SCOPED_TRACE(std::string(call) + " " + std::to_string(at));
      test::FakeDevice fake;
      fake.failure = {.call = call, .at = at, .error = 700};
      Result<> done = Ok{};
      {
        const auto device = GpuDevice::open(fake.api(), 0);
        ASSERT_TRUE(device.ok());
        UploadBuffer upload(**device);
        WeightStore store(*device, &upload);
        for (const std::vector<float>* numbers : {&small, &large, &small}) {
          const auto array = store.add(std::span(*numbers));
          if (!array.ok() && done.ok()) done = array.error();
        }
      }
      EXPECT_EQ(fake.live_objects(), 0U);
      if (fake.calls(call) < at) {
        EXPECT_TRUE(done.ok());
        EXPECT_GT(at, 1) << "never called";
        break;
      }
      ASSERT_FALSE(done.ok());
      EXPECT_EQ(done.error().code, "device.call");
    }
  }
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
  std::vector<float> multiplied = stored;
  bring_into(ArrayForm::one_plus, 2, multiplied, 3.0F);
  EXPECT_EQ(multiplied, (std::vector<float>{3, 6, 9, 12, 15, 18}));
}

}  // namespace
}  // namespace moracle
