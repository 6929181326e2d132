// What tests of device kernels share: arrays of the device, random layers and routings.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <numeric>
#include <random>
#include <vector>

#include "kernels/cuda/host/kernels.h"
#include "kernels/device_ops.h"
#include "moe/layer_runner.h"
#include "support/random_experts.h"
#include "support/test_device.h"

namespace moracle {

using test::test_device;

// Another one in each run, which is printed: what fails can be tried again.
inline std::uint32_t fresh_seed() {
  const char* const given = std::getenv("MORACLE_TEST_SEED");
  const std::uint32_t seed = given != nullptr ? static_cast<std::uint32_t>(std::atoll(given)) : std::random_device{}();
  std::printf("MORACLE_TEST_SEED=%u\n", seed);
  return seed;
}

inline std::vector<float> normal_values(std::size_t count, std::mt19937& rng) {
  std::normal_distribution<float> normal;
  std::vector<float> values(count);
  for (float& value : values) value = normal(rng);
  return values;
}

inline double relative_error(const std::vector<float>& found, const std::vector<float>& wanted) {
  double difference = 0;
  double norm = 0;
  for (std::size_t i = 0; i < wanted.size(); ++i) {
    difference += std::pow(static_cast<double>(found[i]) - static_cast<double>(wanted[i]), 2);
    norm += std::pow(static_cast<double>(wanted[i]), 2);
  }
  return norm > 0 ? std::sqrt(difference / norm) : std::sqrt(difference);
}

// An array of the device.
template <class T>
class Array {
 public:
  explicit Array(std::size_t count) : count_(count) {
    auto buffer = test_device()->allocate(count * sizeof(T), "a test");
    EXPECT_TRUE(buffer.ok());
    buffer_ = std::move(*buffer);
  }
  Array(Stream& stream, const std::vector<T>& values) : Array(values.size()) {
    stream.to_device(data(), values.data(), values.size() * sizeof(T));
    EXPECT_TRUE(stream.wait().ok());
  }
  [[nodiscard]] T* data() const { return reinterpret_cast<T*>(buffer_.data()); }
  [[nodiscard]] std::vector<T> read(Stream& stream) const {
    std::vector<T> values(count_);
    stream.to_host(values.data(), data(), count_ * sizeof(T));
    const Result<> done = stream.wait();
    EXPECT_TRUE(done.ok()) << done.error().message();
    return values;
  }
  void poison(Stream& stream) const { stream.fill(data(), 0xFF, count_ * sizeof(T)); }

 private:
  std::size_t count_;
  Buffer buffer_;
};

class DeviceKernelsTest : public ::testing::Test {
 protected:
  void SetUp() override {
    auto stream = test_device()->make_stream();
    ASSERT_TRUE(stream.ok());
    stream_ = std::move(*stream);
    rng_.seed(fresh_seed());
  }
  [[nodiscard]] static const KernelApi& kernels() { return **kernel_api(*test_device()); }

  Stream stream_;
  std::mt19937 rng_;
};

struct Layer {
  std::int64_t experts, hidden, intermediate, tokens, top_k;
  QuantKey key;
  std::optional<QuantKey> activation;
  ActivationSpec fn;
  bool bias;
};

struct Routed {
  std::vector<float> x;
  std::vector<std::int32_t> ids;
  std::vector<float> weights;
  [[nodiscard]] ExpertsInput view(const Layer& layer) const {
    return {.tokens = layer.tokens, .top_k = layer.top_k, .x = x.data(), .ids = ids.data(), .weights = weights.data()};
  }
};

// Distinct experts of each token; `skewed` sends most tokens to a few.
inline Routed random_input(const Layer& layer, bool skewed, std::mt19937& rng) {
  Routed routed{
      .x = normal_values(static_cast<std::size_t>(layer.tokens * layer.hidden), rng), .ids = {}, .weights = {}};
  std::uniform_real_distribution<float> uniform(0.05F, 1.0F);
  for (std::int64_t t = 0; t < layer.tokens; ++t) {
    std::vector<std::int32_t> all(static_cast<std::size_t>(layer.experts));
    std::iota(all.begin(), all.end(), 0);
    if (!skewed) std::shuffle(all.begin(), all.end(), rng);
    for (std::int64_t j = 0; j < layer.top_k; ++j) {
      routed.ids.push_back(rng() % 16 == 0 ? -1 : all[static_cast<std::size_t>(j)]);
      routed.weights.push_back(uniform(rng));
    }
  }
  return routed;
}

inline const QuantKey kInt4{
    .element = Element::int4, .scale = ScaleType::bf16, .granularity = Granularity::group(128), .symmetric = true};
inline const QuantKey kMxfp4{.element = Element::e2m1, .scale = ScaleType::e8m0, .granularity = Granularity::group(32)};
inline const QuantKey kFp8Block{
    .element = Element::e4m3, .scale = ScaleType::f32, .granularity = Granularity::block(128, 128)};
inline const QuantKey kFp8Whole{
    .element = Element::e4m3, .scale = ScaleType::f32, .granularity = Granularity::channel()};

}  // namespace moracle
