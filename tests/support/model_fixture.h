// Loads checkpoints and reference outputs for the tests of whole models.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "base/thread_pool.h"
#include "checkpoint/checkpoint.h"
#include "checkpoint/safetensors_file.h"
#include "machine/machine.h"
#include "model/model.h"
#include "support/test_data.h"

namespace moracle::test {

struct Loaded {
  std::unique_ptr<ThreadPool> pool;
  std::unique_ptr<Model> model;
};

// An empty model, with a failure recorded, when anything goes wrong.
inline Loaded load(const std::filesystem::path& folder, const Policy& policy, int threads = 2) {
  Loaded loaded;
  auto checkpoint = Checkpoint::open(folder);
  if (!checkpoint.ok()) {
    ADD_FAILURE() << checkpoint.error().message();
    return loaded;
  }
  auto plan = LoadPlan::make(*checkpoint, probe_machine(), policy);
  if (!plan.ok()) {
    ADD_FAILURE() << plan.error().message();
    return loaded;
  }
  loaded.pool = std::make_unique<ThreadPool>(threads);
  auto model = load_model(**plan, *loaded.pool);
  if (!model.ok()) {
    ADD_FAILURE() << model.error().message();
    return loaded;
  }
  loaded.model = std::move(*model);
  return loaded;
}

inline Policy pinned(const char* backend) {
  Policy policy;
  policy.pinned = backend;
  return policy;
}

template <class T>
std::vector<T> elements(const TensorView& tensor) {
  std::vector<T> values(tensor.bytes.size() / sizeof(T));
  std::memcpy(values.data(), tensor.bytes.data(), values.size() * sizeof(T));
  return values;
}

// One prompt of a ref.safetensors.
struct Reference {
  std::vector<std::int32_t> ids;
  std::vector<float> logits;  // [ids, vocabulary]
  std::vector<std::int32_t> greedy;
  std::vector<float> margin;  // gap between the two best tokens at each greedy step; empty where the file has none
};

inline std::vector<Reference> references(const std::filesystem::path& folder) {
  std::vector<Reference> all;
  auto file = SafetensorsFile::open(folder / "ref.safetensors");
  if (!file.ok()) {
    ADD_FAILURE() << file.error().message();
    return all;
  }
  for (int i = 0;; ++i) {
    const std::string prompt = "prompt" + std::to_string(i) + ".";
    const TensorView* ids = file->find(prompt + "input_ids");
    if (ids == nullptr) return all;
    Reference reference;
    reference.ids = elements<std::int32_t>(*ids);
    reference.logits = elements<float>(*file->find(prompt + "logits"));
    reference.greedy = elements<std::int32_t>(*file->find(prompt + "greedy"));
    if (const TensorView* margin = file->find(prompt + "greedy_margin")) reference.margin = elements<float>(*margin);
    all.push_back(std::move(reference));
  }
}

// Sequences to run together: owns what a Batch points to.
class Ragged {
 public:
  void add(SequenceState& state, const std::vector<std::int32_t>& ids) {
    spans_.push_back({static_cast<std::int64_t>(ids_.size()), static_cast<std::int64_t>(ids.size())});
    for (std::size_t i = 0; i < ids.size(); ++i) {
      ids_.push_back(ids[i]);
      positions_.push_back(static_cast<std::int32_t>(state.length() + static_cast<std::int64_t>(i)));
    }
    states_.push_back(&state);
  }
  Result<> forward(Model& model, LogitRows rows, std::vector<float>& logits) const {
    return model.forward({ids_, positions_, spans_}, states_, rows, logits);
  }
  Result<> forward_top_k(Model& model, const TopK& which, std::vector<TokenLogit>& top) const {
    return model.forward_top_k({ids_, positions_, spans_}, states_, which, top);
  }

 private:
  std::vector<std::int32_t> ids_;
  std::vector<std::int32_t> positions_;
  std::vector<Batch::Span> spans_;
  std::vector<SequenceState*> states_;
};

inline std::unique_ptr<SequenceState> new_state(const Model& model) {
  auto state = model.new_sequence();
  EXPECT_TRUE(state.ok());
  return state.ok() ? std::move(*state) : nullptr;
}

// Logits of all given tokens; empty, with a failure recorded, on an error.
inline std::vector<float> run(Model& model, SequenceState& state, const std::vector<std::int32_t>& ids,
                              LogitRows rows = LogitRows::all) {
  Ragged batch;
  batch.add(state, ids);
  std::vector<float> logits;
  const Result<> done = batch.forward(model, rows, logits);
  if (!done.ok()) {
    ADD_FAILURE() << done.error().message();
    logits.clear();
  }
  return logits;
}

// |a - b| / |b| of each row.
inline std::vector<double> relative_errors(const std::vector<float>& a, const std::vector<float>& b,
                                           std::size_t width) {
  std::vector<double> errors;
  for (std::size_t row = 0; row + width <= b.size() && row + width <= a.size(); row += width) {
    double difference = 0.0;
    double norm = 0.0;
    for (std::size_t i = row; i < row + width; ++i) {
      const double d = static_cast<double>(a[i]) - static_cast<double>(b[i]);
      difference += d * d;
      norm += static_cast<double>(b[i]) * static_cast<double>(b[i]);
    }
    errors.push_back(std::sqrt(difference / norm));
  }
  return errors;
}

inline double median(std::vector<double> values) {
  if (values.empty()) return std::nan("");
  std::sort(values.begin(), values.end());
  return values[values.size() / 2];
}

}  // namespace moracle::test
