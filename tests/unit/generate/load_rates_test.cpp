#include "generate/load_rates.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "support/fake_device.h"
#include "support/temporary_folder.h"

namespace moracle {
namespace {

TEST(LoadRates, OfMemoryAndOfFiles) {
  const test::TemporaryFolder folder;
  folder.write("x.bin", std::string(std::size_t{9} << 20, 'x'));
  const std::string path = (folder.path() / "x.bin").string();
  ThreadPool pool(2);
  const std::vector<std::string> files = {path, path};
  const LoadRates rates = measure_load_rates(files, std::uint64_t{64} << 20, pool);
  for (const double rate : {rates.copy, rates.read}) {
    EXPECT_GT(rate, 1e7);
    EXPECT_LT(rate, 1e13);
  }
}

TEST(LoadRates, AreNothingWhereNothingCanBeRead) {
  ThreadPool pool(1);
  const std::vector<std::string> absent = {"/no/such/file"};
  EXPECT_EQ(measure_load_rates(absent, 1, pool).read, 0.0);
  EXPECT_EQ(measure_load_rates({}, 1, pool).read, 0.0);
  EXPECT_GT(measure_load_rates({}, 1, pool).copy, 0.0);
}

TEST(LoadRates, OfCopiesToADevice) {
  test::FakeDevice fake;
  {
    const auto device = GpuDevice::open(fake.api(), 0);
    ASSERT_TRUE(device.ok()) << device.error().message();
    const Result<double> rate = measure_copy_rate(**device);
    ASSERT_TRUE(rate.ok()) << rate.error().message();
    EXPECT_EQ(*rate, 8 * (64 << 20) / 0.001) << "the fake's events are a millisecond apart";
  }
  EXPECT_EQ(fake.live_objects(), 0U);
}

}  // namespace
}  // namespace moracle
