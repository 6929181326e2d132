// A model that counts: each token is followed by the next.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <memory>
#include <span>
#include <utility>
#include <vector>

#include "model/model.h"
#include "support/lone_state.h"
#include "support/sample_on_host.h"

namespace moracle::test {

// Of a model without layers: it holds a number of positions and no block.
inline Result<std::unique_ptr<SequenceState>> counted_state() {
  return lone_state(std::make_shared<const StateLayout>(std::vector<LayerState>{}));
}

// After token t it expects t + 1 (modulo the vocabulary) with a logit of 2, all others 0.
class SuccessorModel final : public Model {
 public:
  explicit SuccessorModel(std::int64_t positions) {
    info_.vocab_size = 10;
    info_.max_context = positions;
  }
  [[nodiscard]] const ModelInfo& info() const override { return info_; }
  [[nodiscard]] Result<std::unique_ptr<SequenceState>> new_sequence() const override { return counted_state(); }
  Result<> reserve(std::int64_t tokens) override {
    reserved = std::max(reserved, tokens);
    return Ok{};
  }
  // Of one span.
  Result<> run(const Batch& batch, std::span<SequenceState* const> states, BatchResult& result) override {
    const Batch::Span& span = batch.spans[0];
    calls.emplace_back(batch.ids.begin(), batch.ids.end());
    EXPECT_EQ(batch.positions.front(), states[0]->length());
    EXPECT_EQ(batch.positions.back(), states[0]->length() + std::ssize(batch.ids) - 1);
    EXPECT_LE(std::ssize(batch.ids), reserved);
    states[0]->commit(states[0]->length() + std::ssize(batch.ids));
    result.spans.assign(1, {});
    const std::size_t first = batch.ids.size() - static_cast<std::size_t>(span.rows);
    std::vector<float> logits;
    for (std::size_t i = first; i < batch.ids.size(); ++i) {
      std::vector<float> row(10, 0.0F);
      row[static_cast<std::size_t>((batch.ids[i] + 1) % 10)] = poison ? std::nanf("") : 2.0F;
      logits.insert(logits.end(), row.begin(), row.end());
    }
    if (span.top_k == 0) {
      result.logits = std::move(logits);
      sample_on_host(batch, info_.vocab_size, result);
      return Ok{};
    }
    seeds.push_back(span.seed.value_or(0));
    if (poison) result.spans[0].error = Error{.code = "numeric.nan"};
    result.top.clear();
    for (const float logit : logits) result.top.push_back({logit, static_cast<std::int32_t>(result.top.size())});
    std::sort(result.top.begin(), result.top.end(), [](const auto& a, const auto& b) { return a.before(b); });
    result.top.resize(std::min(result.top.size(), static_cast<std::size_t>(span.top_k)));
    return Ok{};
  }

  std::vector<std::vector<std::int32_t>> calls;
  std::vector<std::uint64_t> seeds;  // of calls that rank; 0: none
  std::int64_t reserved = 0;
  bool poison = false;

 private:
  ModelInfo info_;
};

}  // namespace moracle::test
