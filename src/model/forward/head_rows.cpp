#include "model/forward/head_rows.h"

#include <algorithm>

#include "base/generic/count.h"

namespace moracle {

namespace {

bool ranked_alike(const Batch::Span& a, const Batch::Span& b) {
  return a.top_k == b.top_k && a.seed.has_value() == b.seed.has_value() && (!a.seed || a.temperature == b.temperature);
}

}  // namespace

void HeadRows::list(std::span<const SequenceSpan> spans, std::span<const Batch::Span> wanted,
                    std::span<const std::size_t> indices, std::int64_t vocabulary, BatchResult& result) {
  rows_.clear();
  seeds_.clear();
  ranks_.clear();
  ranked_ = most_ranked_rows_ = 0;
  for (std::size_t s = 0; s < spans.size(); ++s) {
    result.spans[indices[s]].logits = rows_.size() * count(vocabulary);
    const std::int64_t rows = wanted[s].top_k > 0 ? 0 : wanted[s].rows;
    for (std::int64_t i = rows; i > 0; --i) rows_.push_back({.span = s, .token = spans[s].begin + spans[s].count - i});
  }
  logit_rows_ = rows_.size();
  seeds_.resize(rows_.size());
  for (std::size_t s = 0; s < spans.size(); ++s) {
    if (wanted[s].top_k == 0) continue;
    const auto before =
        std::find_if(wanted.begin(), wanted.end(), [&](const auto& other) { return ranked_alike(other, wanted[s]); });
    // Else it was listed with the first that is like it.
    if (count(before - wanted.begin()) == s) list_ranks(spans, wanted, s, indices, vocabulary, result);
  }
}

void HeadRows::list_ranks(std::span<const SequenceSpan> spans, std::span<const Batch::Span> wanted, std::size_t first,
                          std::span<const std::size_t> indices, std::int64_t vocabulary, BatchResult& result) {
  const Batch::Span& like = wanted[first];
  Ranks ranks{.first = rows_.size(),
              .k = std::min(like.top_k, vocabulary),
              .seeded = like.seed.has_value(),
              .temperature = like.temperature,
              .out = ranked_};
  for (std::size_t s = first; s < spans.size(); ++s) {
    if (!ranked_alike(wanted[s], like)) continue;
    rows_.push_back({.span = s, .token = spans[s].begin + spans[s].count - 1});
    seeds_.push_back(wanted[s].seed.value_or(0));
    result.spans[indices[s]].top = ranked_;
    ranked_ += count(ranks.k);
    ++ranks.rows;
  }
  most_ranked_rows_ = std::max(most_ranked_rows_, ranks.rows);
  ranks_.push_back(ranks);
}

}  // namespace moracle
