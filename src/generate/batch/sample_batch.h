// Rows of logits whose tokens are chosen or scored in one operation: of a model's step, or behind it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "device/stream.h"
#include "generate/token_chooser.h"
#include "kernels/ops.h"
#include "model/model.h"

namespace moracle {

class SampleBatch {
 public:
  // Empties it. Rows of logits have `vocab` numbers.
  void begin(std::int64_t vocab);
  // Adds the choice of a request's next token from a row of logits, or from the highest-ranking that decide it.
  void choose(const TokenChooser& chooser, const BatchSamples::Row& row);
  void choose(const TokenChooser& chooser, std::span<const TokenLogit> top);
  // Adds the score of a token that is known.
  void score(std::int32_t id, const BatchSamples::Row& row, std::int64_t tops);
  [[nodiscard]] bool empty() const { return rows_.empty(); }
  [[nodiscard]] std::size_t size() const { return rows_.size(); }

  // For a step of a model, of which take() has what it gave. Until the next begin().
  [[nodiscard]] const BatchSamples& samples();
  void take(BatchResult& result);
  // Behind a step: rows are those of `logits`, whatever their span.
  void run(const float* logits, const Ops& ops, ThreadPool& pool);

  // By a row's place, until the next begin(). The id is -1 where none can be chosen: no_choice() says why.
  [[nodiscard]] std::int32_t id(std::size_t row) const { return ids_[row]; }
  [[nodiscard]] std::optional<double> logprob(std::size_t row) const;
  [[nodiscard]] std::span<const TokenLogprob> top(std::size_t row) const;

 private:
  void add(const TokenChooser* chooser, const BatchSamples::Row& row, std::int32_t given, std::int64_t tops);
  // The bits of all rows, where one of them may not have every token.
  void fill_mask();

  std::int64_t vocab_ = 0;
  std::vector<BatchSamples::Row> rows_;
  std::vector<const TokenChooser*> choosers_;  // of rows_; null: a token that is known
  BatchSamples samples_;
  // As of SampleArgs.
  std::vector<SampleParams> params_;
  std::vector<std::int32_t> logit_rows_, given_, tops_;
  std::vector<TokenLogit> candidates_;
  std::vector<TokenCount> counts_;
  std::vector<LogitBias> bias_;
  std::vector<std::int32_t> candidates_start_, counts_start_, bias_start_;
  std::vector<std::uint32_t> mask_;
  bool reads_logits_ = false;
  std::int32_t most_tops_ = 0, most_candidates_ = 0;
  std::vector<std::int32_t> ids_;
  std::vector<double> logprobs_;
  std::vector<TokenLogprob> top_;
  std::vector<std::byte> workspace_;
};

// Why no token can be chosen from logits: "numeric.nan".
[[nodiscard]] Error no_choice(std::span<const float> logits);

}  // namespace moracle
