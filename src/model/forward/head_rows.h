// Which rows the head of a model meets in one call, and what is wanted of them.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "model/model.h"

namespace moracle {

// One sequence's part of the batch: tokens [begin, begin + count) continue `state` at position `start`.
struct SequenceSpan {
  std::int64_t begin = 0;
  std::int64_t count = 0;
  std::int64_t start = 0;
  SequenceState* state = nullptr;
};

struct HeadRow {
  std::size_t span = 0;
  std::int64_t token = 0;  // of the batch
};

// Rows of the head that are ranked alike.
struct Ranks {
  std::size_t first = 0;
  std::size_t rows = 0;
  std::int64_t k = 1;
  bool seeded = false;
  double temperature = 1.0;
  std::size_t out = 0;  // where its outputs begin among all, [rows, k]
};

class HeadRows {
 public:
  // Rows whose logits are wanted come first, then those that are ranked, alike ones together. Tells `result`, of which
  // span s is spans[indices[s]], where each span's own are. Allocates nothing once it has listed as many.
  void list(std::span<const SequenceSpan> spans, std::span<const Batch::Span> wanted,
            std::span<const std::size_t> indices, std::int64_t vocabulary, BatchResult& result);

  [[nodiscard]] std::span<const HeadRow> rows() const { return rows_; }
  [[nodiscard]] std::size_t logit_rows() const { return logit_rows_; }              // the first ones
  [[nodiscard]] std::span<const Ranks> ranks() const { return ranks_; }             // of the others
  [[nodiscard]] std::size_t ranked() const { return ranked_; }                      // outputs of all ranks
  [[nodiscard]] std::span<const std::uint64_t> seeds() const { return seeds_; }     // by row
  [[nodiscard]] std::size_t most_ranked_rows() const { return most_ranked_rows_; }  // of one of the ranks

 private:
  void list_ranks(std::span<const SequenceSpan> spans, std::span<const Batch::Span> wanted, std::size_t first,
                  std::span<const std::size_t> indices, std::int64_t vocabulary, BatchResult& result);

  std::vector<HeadRow> rows_;
  std::vector<std::uint64_t> seeds_;
  std::vector<Ranks> ranks_;
  std::size_t logit_rows_ = 0;
  std::size_t ranked_ = 0;
  std::size_t most_ranked_rows_ = 0;
};

}  // namespace moracle
