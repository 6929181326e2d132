#include "model/model.h"

namespace moracle {

Result<> Model::forward(const Batch& batch, std::span<SequenceState* const> states, LogitRows rows,
                        std::vector<float>& logits) {
  wanted_.assign(batch.spans.begin(), batch.spans.end());
  for (Batch::Span& span : wanted_) {
    span.rows = rows == LogitRows::all ? span.count : 1;
    span.top_k = 0;
  }
  whole_.logits.swap(logits);
  Result<> done =
      run({.ids = batch.ids, .positions = batch.positions, .spans = wanted_, .whole = true}, states, whole_);
  whole_.logits.swap(logits);
  return done;
}

Result<> Model::forward_top_k(const Batch& batch, std::span<SequenceState* const> states, const TopK& which,
                              std::vector<TokenLogit>& top) {
  wanted_.assign(batch.spans.begin(), batch.spans.end());
  for (std::size_t s = 0; s < wanted_.size(); ++s) {
    wanted_[s].rows = 1;
    wanted_[s].top_k = which.k;
    wanted_[s].seed = which.seeds.empty() ? std::nullopt : std::optional(which.seeds[s]);
    wanted_[s].temperature = which.temperature;
    wanted_[s].min_share = 0;
  }
  whole_.top.swap(top);
  Result<> done =
      run({.ids = batch.ids, .positions = batch.positions, .spans = wanted_, .whole = true}, states, whole_);
  whole_.top.swap(top);
  return done;
}

}  // namespace moracle
