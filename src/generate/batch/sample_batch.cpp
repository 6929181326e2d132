#include "generate/batch/sample_batch.h"

#include <algorithm>
#include <cmath>
#include <string>

#include "base/generic/count.h"

namespace moracle {

void SampleBatch::begin(std::int64_t vocab) {
  vocab_ = vocab;
  reads_logits_ = false;
  most_tops_ = 0;
  most_candidates_ = 0;
  rows_.clear();
  choosers_.clear();
  params_.clear();
  logit_rows_.clear();
  given_.clear();
  tops_.clear();
  candidates_.clear();
  counts_.clear();
  bias_.clear();
  for (auto* const start : {&candidates_start_, &counts_start_, &bias_start_}) start->assign(1, 0);
}

void SampleBatch::add(const TokenChooser* chooser, const BatchSamples::Row& row, std::int32_t given,
                      std::int64_t tops) {
  const auto candidates = static_cast<std::int32_t>(candidates_.size()) - candidates_start_.back();
  reads_logits_ = reads_logits_ || candidates == 0;
  most_candidates_ = std::max(most_candidates_, candidates);
  rows_.push_back(row);
  choosers_.push_back(chooser);
  params_.push_back(chooser != nullptr ? chooser->params() : SampleParams{});
  logit_rows_.push_back(static_cast<std::int32_t>(row.row));
  given_.push_back(given);
  tops_.push_back(static_cast<std::int32_t>(tops));
  most_tops_ = std::max(most_tops_, tops_.back());
  candidates_start_.push_back(static_cast<std::int32_t>(candidates_.size()));
  counts_start_.push_back(static_cast<std::int32_t>(counts_.size()));
  bias_start_.push_back(static_cast<std::int32_t>(bias_.size()));
}

void SampleBatch::choose(const TokenChooser& chooser, const BatchSamples::Row& row) {
  counts_.insert(counts_.end(), chooser.counts().begin(), chooser.counts().end());
  bias_.insert(bias_.end(), chooser.bias().begin(), chooser.bias().end());
  add(&chooser, row, -1, chooser.logprobs().value_or(-1));
}

void SampleBatch::choose(const TokenChooser& chooser, std::span<const TokenLogit> top) {
  candidates_.insert(candidates_.end(), top.begin(), top.end());
  add(&chooser, {}, -1, -1);
}

void SampleBatch::score(std::int32_t id, const BatchSamples::Row& row, std::int64_t tops) {
  add(nullptr, row, id, tops);
}

void SampleBatch::fill_mask() {
  mask_.clear();
  const auto constrained = [](const TokenChooser* chooser) { return chooser != nullptr && !chooser->allows_all(); };
  if (std::none_of(choosers_.begin(), choosers_.end(), constrained)) return;
  const std::size_t words = count(mask_words(vocab_));
  mask_.assign(rows_.size() * words, ~std::uint32_t{0});
  for (std::size_t row = 0; row < rows_.size(); ++row) {
    if (constrained(choosers_[row])) choosers_[row]->narrow(std::span(mask_).subspan(row * words, words));
  }
}

const BatchSamples& SampleBatch::samples() {
  fill_mask();
  samples_ = {.rows = rows_,
              .args = {.rows = static_cast<std::int32_t>(rows_.size()),
                       .vocab = static_cast<std::int32_t>(vocab_),
                       .params = params_.data(),
                       .counts = counts_.data(),
                       .counts_start = counts_start_.data(),
                       .bias = bias_.data(),
                       .bias_start = bias_start_.data(),
                       .mask = mask_.empty() ? nullptr : mask_.data(),
                       .given = given_.data(),
                       .tops = tops_.data(),
                       .most_tops = most_tops_}};
  return samples_;
}

void SampleBatch::take(BatchResult& result) {
  ids_.swap(result.ids);
  logprobs_.swap(result.logprobs);
  top_.swap(result.tops);
}

void SampleBatch::run(const float* logits, const Ops& ops, ThreadPool& pool) {
  if (rows_.empty()) return;
  ids_.resize(rows_.size());
  logprobs_.resize(rows_.size());
  top_.resize(rows_.size() * count(most_tops_));
  SampleArgs args = samples().args;
  args.logits = reads_logits_ ? logits : nullptr;
  args.logit_row = logit_rows_.data();
  args.candidates = candidates_.data();
  args.most_candidates = most_candidates_;
  args.candidates_start = candidates_start_.data();
  args.ids = ids_.data();
  args.logprobs = logprobs_.data();
  args.top = top_.data();
  const std::size_t bytes = ops.workspace(args, pool.threads());
  if (workspace_.size() < bytes) workspace_.resize(bytes);
  Stream stream(pool);
  ops.sample({.stream = stream, .workspace = workspace_}, args);
}

std::optional<double> SampleBatch::logprob(std::size_t row) const {
  return tops_[row] < 0 ? std::nullopt : std::optional(logprobs_[row]);
}

std::span<const TokenLogprob> SampleBatch::top(std::size_t row) const {
  const std::int64_t tops = std::clamp<std::int64_t>(tops_[row], 0, vocab_);
  return std::span(top_).subspan(row * count(most_tops_), count(tops));
}

Error no_choice(std::span<const float> logits) {
  const auto bad = std::find_if_not(logits.begin(), logits.end(), [](float logit) { return logit < INFINITY; });
  if (bad == logits.end())
    return Error{.code = "numeric.nan", .where = "logits", .wanted = "a finite logit", .found = "none"};
  return Error{.code = "numeric.nan",
               .where = "logits[" + std::to_string(bad - logits.begin()) + "]",
               .wanted = "a finite logit",
               .found = std::isnan(*bad) ? "NaN" : "infinity",
               .advice = "run `moracle verify` on the model"};
}

}  // namespace moracle
