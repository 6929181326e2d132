#include "generate/batch/sample_batch.h"

#include <algorithm>
#include <cmath>
#include <string>

#include "base/generic/count.h"

namespace moracle {

void SampleBatch::begin(const float* logits, std::int64_t vocab) {
  logits_ = logits;
  vocab_ = vocab;
  reads_logits_ = false;
  most_tops_ = 0;
  most_candidates_ = 0;
  rows_.clear();
  params_.clear();
  logit_rows_.clear();
  given_.clear();
  tops_.clear();
  candidates_.clear();
  counts_.clear();
  bias_.clear();
  for (auto* const start : {&candidates_start_, &counts_start_, &bias_start_}) start->assign(1, 0);
}

void SampleBatch::add(const Row& row, const SampleParams& params, std::int32_t given, std::int64_t tops) {
  const auto candidates = static_cast<std::int32_t>(candidates_.size()) - candidates_start_.back();
  reads_logits_ = reads_logits_ || candidates == 0;
  most_candidates_ = std::max(most_candidates_, candidates);
  rows_.push_back(row);
  params_.push_back(params);
  logit_rows_.push_back(static_cast<std::int32_t>(row.logit_row));
  given_.push_back(given);
  tops_.push_back(static_cast<std::int32_t>(tops));
  most_tops_ = std::max(most_tops_, tops_.back());
  candidates_start_.push_back(static_cast<std::int32_t>(candidates_.size()));
  counts_start_.push_back(static_cast<std::int32_t>(counts_.size()));
  bias_start_.push_back(static_cast<std::int32_t>(bias_.size()));
}

void SampleBatch::choose(const TokenChooser& chooser, std::int64_t logit_row) {
  counts_.insert(counts_.end(), chooser.counts().begin(), chooser.counts().end());
  bias_.insert(bias_.end(), chooser.bias().begin(), chooser.bias().end());
  add({.chooser = &chooser, .logit_row = logit_row}, chooser.params(), -1, chooser.logprobs().value_or(-1));
}

void SampleBatch::choose(const TokenChooser& chooser, std::span<const TokenLogit> top) {
  candidates_.insert(candidates_.end(), top.begin(), top.end());
  add({.chooser = &chooser}, chooser.params(), -1, -1);
}

void SampleBatch::score(std::int32_t id, std::int64_t logit_row, std::int64_t tops) {
  add({.logit_row = logit_row}, {}, id, tops);
}

void SampleBatch::fill_mask() {
  mask_.clear();
  const auto constrained = [](const Row& row) { return row.chooser != nullptr && !row.chooser->allows_all(); };
  if (std::none_of(rows_.begin(), rows_.end(), constrained)) return;
  const std::size_t words = count(mask_words(vocab_));
  mask_.assign(rows_.size() * words, ~std::uint32_t{0});
  for (std::size_t row = 0; row < rows_.size(); ++row) {
    if (constrained(rows_[row])) rows_[row].chooser->narrow(std::span(mask_).subspan(row * words, words));
  }
}

void SampleBatch::run(const Ops& ops, ThreadPool& pool) {
  fill_mask();
  ids_.resize(rows_.size());
  logprobs_.resize(rows_.size());
  top_.resize(rows_.size() * count(most_tops_));
  const SampleArgs args{.rows = static_cast<std::int32_t>(rows_.size()),
                        .vocab = static_cast<std::int32_t>(vocab_),
                        .params = params_.data(),
                        .logits = reads_logits_ ? logits_ : nullptr,
                        .logit_row = logit_rows_.data(),
                        .candidates = candidates_.data(),
                        .most_candidates = most_candidates_,
                        .candidates_start = candidates_start_.data(),
                        .counts = counts_.data(),
                        .counts_start = counts_start_.data(),
                        .bias = bias_.data(),
                        .bias_start = bias_start_.data(),
                        .mask = mask_.empty() ? nullptr : mask_.data(),
                        .given = given_.data(),
                        .tops = tops_.data(),
                        .most_tops = most_tops_,
                        .ids = ids_.data(),
                        .logprobs = logprobs_.data(),
                        .top = top_.data()};
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
