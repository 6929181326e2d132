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
  Result<> forward(const Batch& batch, std::span<SequenceState* const> states, LogitRows rows,
                   std::vector<float>& logits) override {
    calls.emplace_back(batch.ids.begin(), batch.ids.end());
    EXPECT_EQ(batch.positions.front(), states[0]->length());
    EXPECT_EQ(batch.positions.back(), states[0]->length() + std::ssize(batch.ids) - 1);
    EXPECT_LE(std::ssize(batch.ids), reserved);
    states[0]->commit(states[0]->length() + std::ssize(batch.ids));
    const std::size_t first = rows == LogitRows::all ? 0 : batch.ids.size() - 1;
    logits.clear();
    for (std::size_t i = first; i < batch.ids.size(); ++i) {
      std::vector<float> row(10, 0.0F);
      row[static_cast<std::size_t>((batch.ids[i] + 1) % 10)] = poison ? std::nanf("") : 2.0F;
      logits.insert(logits.end(), row.begin(), row.end());
    }
    return Ok{};
  }
  // Of one span.
  Result<> run(const Batch& batch, std::span<SequenceState* const> states, BatchResult& result) override {
    const Batch::Span& span = batch.spans[0];
    result.spans.assign(1, {});
    TopK which{.k = span.top_k};
    if (span.seed) which.seeds = {&*span.seed, 1};
    Result<> done = span.top_k > 0 ? forward_top_k(batch, states, which, result.top)
                                   : forward(batch, states, LogitRows::last_of_each, result.logits);
    if (!done.ok()) result.spans[0].error = std::move(done).error();
    return Ok{};
  }
  Result<> forward_top_k(const Batch& batch, std::span<SequenceState* const> states, const TopK& which,
                         std::vector<TokenLogit>& top) override {
    std::vector<float> logits;
    MORACLE_TRY(forward(batch, states, LogitRows::last_of_each, logits));
    seeds.push_back(which.seeds.empty() ? 0 : which.seeds[0]);
    if (poison) return Error{.code = "numeric.nan"};
    top.clear();
    for (const float logit : logits) top.push_back({logit, static_cast<std::int32_t>(top.size())});
    std::sort(top.begin(), top.end(), [](const auto& a, const auto& b) { return a.before(b); });
    top.resize(std::min(top.size(), static_cast<std::size_t>(which.k)));
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
