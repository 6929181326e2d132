#include "engine/load_rates.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

namespace moracle {
namespace {

TEST(LoadRates, OfMemoryAndOfFiles) {
  const std::filesystem::path path = std::filesystem::path(testing::TempDir()) / "load_rates_test.bin";
  std::ofstream(path, std::ios::binary) << std::string(std::size_t{9} << 20, 'x');
  ThreadPool pool(2);
  const std::vector<std::string> files = {path.string(), path.string()};
  const LoadRates rates = measure_load_rates(files, std::uint64_t{64} << 20, pool);
  std::filesystem::remove(path);
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

}  // namespace
}  // namespace moracle
