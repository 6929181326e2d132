// Rows of logits whose tokens are chosen or scored in one operation.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "device/stream.h"
#include "generate/token_chooser.h"
#include "kernels/ops.h"

namespace moracle {

class SampleBatch {
 public:
  // Empties it. Rows of `logits` have `vocab` numbers; the next run() reads them.
  void begin(const float* logits, std::int64_t vocab);
  // Adds the choice of a request's next token from a row of logits, or from the highest-ranking that decide it.
  void choose(const TokenChooser& chooser, std::int64_t logit_row);
  void choose(const TokenChooser& chooser, std::span<const TokenLogit> top);
  // Adds the score of a token that is known.
  void score(std::int32_t id, std::int64_t logit_row, std::int64_t tops);
  void run(const Ops& ops, ThreadPool& pool);

  // Of a row by its place in the order of the calls, until the next begin(). The id is -1 where none can be chosen:
  // no_choice() says why.
  [[nodiscard]] std::int32_t id(std::size_t row) const { return ids_[row]; }
  [[nodiscard]] std::optional<double> logprob(std::size_t row) const;
  [[nodiscard]] std::span<const TokenLogprob> top(std::size_t row) const;

 private:
  struct Row {
    const TokenChooser* chooser = nullptr;  // null: a token that is known
    std::int64_t logit_row = 0;
  };
  void add(const Row& row, const SampleParams& params, std::int32_t given, std::int64_t tops);
  // The bits of all rows, where one of them may not have every token.
  void fill_mask();

  const float* logits_ = nullptr;
  std::int64_t vocab_ = 0;
  std::vector<Row> rows_;
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
