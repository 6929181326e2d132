// One layer of the C interface as tests want it: handles that close themselves, and an input of random tokens.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "scheme/codes.h"
#include "unit/api/c_call.h"

namespace moracle::test {

template <class T, moracle_status (*close)(T*)>
struct Close {
  void operator()(T* handle) const { EXPECT_EQ(close(handle), MORACLE_OK); }
};
using CheckpointPtr = std::unique_ptr<moracle_checkpoint, Close<moracle_checkpoint, moracle_checkpoint_close>>;
using ExpertsPtr = std::unique_ptr<moracle_experts, Close<moracle_experts, moracle_experts_close>>;
using PoolPtr = std::unique_ptr<moracle_pool, Close<moracle_pool, moracle_pool_close>>;

inline CheckpointPtr open_checkpoint(const std::string& folder, const char* backend = nullptr) {
  moracle_policy policy{};
  policy.size = sizeof policy;
  policy.backend = backend;
  moracle_checkpoint* handle = nullptr;
  CallError error;
  EXPECT_EQ(moracle_checkpoint_open(folder.c_str(), &policy, &handle, &error.error), MORACLE_OK) << error.message();
  return CheckpointPtr(handle);
}

using ParallelFor = void (*)(void*, std::int64_t, moracle_task, void*);

// Of a host's threads.
inline PoolPtr open_pool(ParallelFor host, void* context, std::int32_t threads = 3) {
  moracle_executor executor{};
  executor.size = sizeof executor;
  executor.threads = threads;
  executor.context = context;
  executor.parallel_for = host;
  moracle_pool_options options{};
  options.size = sizeof options;
  options.executor = &executor;
  moracle_pool* handle = nullptr;
  EXPECT_EQ(moracle_pool_open(&options, &handle, nullptr), MORACLE_OK);
  return PoolPtr(handle);
}

using DensePtr = std::unique_ptr<moracle_dense, Close<moracle_dense, moracle_dense_close>>;

inline moracle_dense_options dense_options() {
  moracle_dense_options options{};
  options.size = sizeof options;
  return options;
}
inline moracle_tensor no_tensor() {
  moracle_tensor tensor{};
  tensor.size = sizeof tensor;
  return tensor;
}
inline DensePtr open_dense(const CheckpointPtr& checkpoint, const moracle_dense_options& options = dense_options()) {
  moracle_dense* handle = nullptr;
  CallError error;
  EXPECT_EQ(moracle_dense_open(checkpoint.get(), &options, &handle, &error.error), MORACLE_OK) << error.message();
  return DensePtr(handle);
}

inline moracle_experts_options no_options() {
  moracle_experts_options options{};
  options.size = sizeof options;
  return options;
}

inline ExpertsPtr open_experts(const CheckpointPtr& checkpoint, const moracle_experts_options& options,
                               std::int64_t layer = 0) {
  moracle_experts* handle = nullptr;
  CallError error;
  EXPECT_EQ(moracle_experts_open(checkpoint.get(), layer, &options, &handle, &error.error), MORACLE_OK)
      << error.message();
  return ExpertsPtr(handle);
}

inline moracle_experts_info info_of(const ExpertsPtr& experts) {
  moracle_experts_info info{};
  info.size = sizeof info;
  EXPECT_EQ(moracle_experts_describe(experts.get(), &info, nullptr), MORACLE_OK);
  return info;
}

struct Input {
  std::int64_t tokens, top_k, hidden;
  std::vector<float> x, weights;
  std::vector<std::int32_t> ids;

  Input(std::int64_t tokens_, std::int64_t top_k_, const moracle_experts_info& info)
      : tokens(tokens_), top_k(top_k_), hidden(info.hidden) {
    std::mt19937 random(17);
    std::normal_distribution<float> normal;
    for (std::int64_t i = 0; i < tokens * hidden; ++i) x.push_back(decode_bf16(encode_bf16(normal(random))));
    std::vector<std::int32_t> all(static_cast<std::size_t>(info.experts));
    for (std::size_t e = 0; e < all.size(); ++e) all[e] = static_cast<std::int32_t>(e);
    for (std::int64_t t = 0; t < tokens; ++t) {
      std::shuffle(all.begin(), all.end(), random);
      for (std::int64_t k = 0; k < top_k; ++k) {
        ids.push_back(all[static_cast<std::size_t>(k)]);
        weights.push_back(decode_bf16(encode_bf16(std::abs(normal(random)))));
      }
    }
  }
  [[nodiscard]] moracle_experts_call call(std::vector<float>& out) const {
    out.assign(x.size(), NAN);
    moracle_experts_call made{};
    made.size = sizeof made;
    made.x_dtype = made.out_dtype = made.weights_dtype = MORACLE_F32;
    made.ids_dtype = MORACLE_INT32;
    made.tokens = tokens;
    made.top_k = top_k;
    made.x = x.data();
    made.ids = ids.data();
    made.weights = weights.data();
    made.out = out.data();
    return made;
  }
};

inline std::vector<float> run(const ExpertsPtr& experts, const Input& input) {
  std::vector<float> out;
  const moracle_experts_call call = input.call(out);
  CallError error;
  EXPECT_EQ(moracle_experts_run(experts.get(), &call, &error.error), MORACLE_OK) << error.message();
  return out;
}

class CExpertsCall : public ::testing::Test {
 protected:
  const CheckpointPtr checkpoint_ = open_checkpoint(checkpoint_folder(kQwen));
  const ExpertsPtr experts_ = open_experts(checkpoint_, no_options(), 1);
  const moracle_experts_info info_ = info_of(experts_);
  const Input input_{7, info_.top_k, info_};
  const std::vector<float> expected_ = run(experts_, input_);
};

}  // namespace moracle::test
