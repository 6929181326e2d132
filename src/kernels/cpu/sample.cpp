// Sampling on the host: a task a row, in double from the logits on.
#include <algorithm>
#include <array>
#include <cmath>
#include <limits>

#include "base/checked.h"
#include "base/generic/count.h"
#include "base/generic/ranking.h"
#include "base/memory.h"
#include "base/random/gumbel.h"
#include "kernels/cpu/ops/cpu_ops.h"

namespace moracle::cpu {

namespace {

// A vocabulary is looked through once a token, in chains that do not wait for each other: plain loops over them are
// what a compiler puts into vectors.
constexpr std::size_t kChains = 64;
// Of candidates, those that top-p sorts first: the prefix that it keeps is usually short.
constexpr std::size_t kSortedHead = 64;

struct Scan {
  float largest = -INFINITY;
  bool bad = false;  // NaN or +infinity is among them
};

Scan scan(std::span<const float> logits) {
  std::array<float, kChains> largest{};
  std::array<float, kChains> bad{};
  largest.fill(-INFINITY);
  for (std::size_t i = 0; i < logits.size(); i += kChains) {
    const float* const from = logits.data() + i;
    const std::size_t chains = std::min(kChains, logits.size() - i);
    for (std::size_t j = 0; j < chains; ++j) largest[j] = from[j] > largest[j] ? from[j] : largest[j];
    for (std::size_t j = 0; j < chains; ++j) bad[j] += from[j] < INFINITY ? 0.0F : 1.0F;
  }
  return {.largest = *std::max_element(largest.begin(), largest.end()),
          .bad = std::any_of(bad.begin(), bad.end(), [](float found) { return found != 0.0F; })};
}

// The part of a list that a row has.
template <class T>
std::span<const T> part_of(const T* list, const std::int32_t* start, std::int64_t row) {
  if (start == nullptr) return {};
  return {list + start[row], count(start[row + 1] - start[row])};
}

template <class Change>
void change(std::span<float> logits, std::int32_t id, const Change& changed) {
  if (id < 0 || count(id) >= logits.size()) return;
  float& logit = logits[count(id)];
  constexpr float kLargest = std::numeric_limits<float>::max();
  if (std::isfinite(logit)) logit = std::clamp(changed(logit), -kLargest, kLargest);
}

void penalize(std::span<float> logits, const SampleParams& params, std::span<const TokenCount> counts) {
  const auto repetition = static_cast<float>(params.repetition_penalty);
  const auto presence = static_cast<float>(params.presence_penalty);
  const auto frequency = static_cast<float>(params.frequency_penalty);
  for (const TokenCount& token : counts) {
    if (repetition != 1.0F) {
      change(logits, token.id, [&](float logit) { return logit < 0 ? logit * repetition : logit / repetition; });
    }
    if (token.answered == 0 || (presence == 0.0F && frequency == 0.0F)) continue;
    change(logits, token.id,
           [&](float logit) { return logit - static_cast<float>(token.answered) * frequency - presence; });
  }
}

// What one task works in.
struct RowWork {
  std::span<float> logits;  // [vocab]
  std::span<TokenLogit> candidates;
  std::span<double> weights;
};

// One row's choice. `candidates` are the first so many of the work's.
class Draw {
 public:
  Draw(const SampleParams& params, const RowWork& work) : params_(params), work_(work) {}

  // -1: none can be chosen.
  [[nodiscard]] std::int32_t from_all(std::span<const float> logits) {
    if (params_.draws_from_all()) return first_by_noise(logits);
    const Scan seen = scan(logits);
    if (seen.bad || seen.largest == -INFINITY) return -1;
    if (params_.temperature == 0.0)
      return static_cast<std::int32_t>(std::find(logits.begin(), logits.end(), seen.largest) - logits.begin());
    kept_ = 0;
    for (std::size_t i = 0; i < logits.size(); ++i) {
      if (logits[i] != -INFINITY) work_.candidates[kept_++] = {logits[i], static_cast<std::int32_t>(i)};
    }
    keep_top_k();
    return choose(seen.largest);
  }

  [[nodiscard]] std::int32_t from_candidates(std::span<const TokenLogit> top) {
    if (params_.temperature == 0.0 || params_.draws_from_all()) return top.front().id;
    std::copy(top.begin(), top.end(), work_.candidates.begin());
    kept_ = top.size();
    return choose(top.front().logit);
  }

 private:
  [[nodiscard]] std::span<TokenLogit> candidates() const { return work_.candidates.first(kept_); }
  [[nodiscard]] std::span<double> weights() const { return work_.weights.first(kept_); }
  [[nodiscard]] double weight(float logit, float best) const {
    return std::exp((static_cast<double>(logit) - static_cast<double>(best)) / params_.temperature);
  }

  // Which the head of a model finds without all logits (PackedLinear::top_k).
  [[nodiscard]] std::int32_t first_by_noise(std::span<const float> logits) const {
    double best = -INFINITY;
    std::int32_t chosen = -1;
    for (std::size_t id = 0; id < logits.size(); ++id) {
      const double scaled = static_cast<double>(logits[id]) / params_.temperature;
      if (scaled + gumbel_bound(params_.seed, id) < best) continue;
      const double key = scaled + gumbel(params_.seed, id);
      if (!(key > best)) continue;
      best = key;
      chosen = static_cast<std::int32_t>(id);
    }
    return chosen;
  }

  void keep_top_k() {
    const std::size_t k = count(params_.top_k);
    if (k == 0 || k >= kept_) return;
    const auto all = candidates();
    std::nth_element(all.begin(), all.begin() + static_cast<std::ptrdiff_t>(k), all.end(), before);
    kept_ = k;
  }

  void keep_top_p() {
    if (params_.top_p >= 1.0) return;
    const auto all = candidates();
    const float best =
        std::max_element(all.begin(), all.end(), [](const auto& a, const auto& b) { return a.logit < b.logit; })->logit;
    double total = 0;
    for (const TokenLogit& each : all) total += weight(each.logit, best);
    double mass = 0;
    std::size_t kept = 0;
    std::size_t sorted = 0;
    while (kept < all.size() && (kept == 0 || mass < params_.top_p * total)) {
      if (kept == sorted) {
        sorted = std::min(all.size(), std::max(kSortedHead, sorted * 4));
        std::partial_sort(all.begin() + static_cast<std::ptrdiff_t>(kept),
                          all.begin() + static_cast<std::ptrdiff_t>(sorted), all.end(), before);
      }
      mass += weight(all[kept].logit, best);
      ++kept;
    }
    kept_ = kept;
  }

  [[nodiscard]] std::int32_t choose(float best) {
    keep_top_p();
    // Drawing in one fixed order makes the outcome independent of how the filters happened to arrange the survivors.
    const auto all = candidates();
    std::sort(all.begin(), all.end(), [](const auto& a, const auto& b) { return a.id < b.id; });
    double total = 0;
    for (std::size_t i = 0; i < all.size(); ++i) {
      const double each = weight(all[i].logit, best);
      weights()[i] = each < params_.min_p ? 0 : each;  // the best one weighs exp(0) = 1
      total += weights()[i];
    }
    const double target = static_cast<double>(params_.seed >> 11U) * 0x1.0p-53 * total;
    double mass = 0;
    std::int32_t last = all.front().id;
    for (std::size_t i = 0; i < all.size(); ++i) {
      if (weights()[i] <= 0) continue;
      mass += weights()[i];
      last = all[i].id;
      if (target < mass) return last;
    }
    return last;  // rounding left the target at the very end
  }

  static bool before(const TokenLogit& a, const TokenLogit& b) { return a.before(b); }

  const SampleParams& params_;
  const RowWork& work_;
  std::size_t kept_ = 0;
};

class RowsSampler {
 public:
  explicit RowsSampler(const SampleArgs& args) : args_(args) {}

  // Rows of a task are `tasks` apart.
  void run(const RowWork& work, std::int64_t task, std::int64_t tasks) const {
    for (std::int64_t row = task; row < args_.rows; row += tasks) sample(work, row);
  }

 private:
  void sample(const RowWork& work, std::int64_t row) const {
    Draw draw(args_.params[row], work);
    const auto candidates = part_of(args_.candidates, args_.candidates_start, row);
    if (!candidates.empty()) {
      args_.ids[row] = draw.from_candidates(candidates);
      return;
    }
    const std::int64_t at = args_.logit_row != nullptr ? args_.logit_row[row] : row;
    const std::span<const float> logits(args_.logits + at * args_.vocab, count(args_.vocab));
    const bool given = args_.given != nullptr && args_.given[row] >= 0;
    const std::int32_t id = given ? args_.given[row] : draw.from_all(changed(work, row, logits));
    args_.ids[row] = id;
    if (id >= 0 && args_.tops != nullptr && args_.tops[row] >= 0) score(work, row, logits, id);
  }

  // The logits that the row chooses from: its own where nothing changes them.
  [[nodiscard]] std::span<const float> changed(const RowWork& work, std::int64_t row,
                                               std::span<const float> logits) const {
    const SampleParams& params = args_.params[row];
    const auto counts = part_of(args_.counts, args_.counts_start, row);
    const auto biases = part_of(args_.bias, args_.bias_start, row);
    const bool penalizes = params.penalizes() && !counts.empty();
    if (!penalizes && biases.empty() && args_.mask == nullptr) return logits;
    std::copy(logits.begin(), logits.end(), work.logits.begin());
    if (penalizes) penalize(work.logits, params, counts);
    for (const LogitBias& bias : biases) work.logits[count(bias.id)] += bias.bias;
    if (args_.mask != nullptr) {
      const std::uint32_t* const words = args_.mask + row * mask_words(args_.vocab);
      for (std::size_t i = 0; i < work.logits.size(); ++i) {
        if ((words[i / 32] >> (i % 32) & 1U) == 0) work.logits[i] = -INFINITY;
      }
    }
    return work.logits;
  }

  void score(const RowWork& work, std::int64_t row, std::span<const float> logits, std::int32_t id) const {
    const auto most = static_cast<double>(*std::max_element(logits.begin(), logits.end()));
    double sum = 0.0;
    for (const float logit : logits) sum += std::exp(static_cast<double>(logit) - most);
    const double shift = most + std::log(sum);
    args_.logprobs[row] = static_cast<double>(logits[count(id)]) - shift;
    const auto kept = work.candidates.first(std::min(count(args_.tops[row]), logits.size()));
    if (kept.empty()) return;
    Ranking<TokenLogit> ranking(kept);
    for (std::size_t i = 0; i < logits.size(); ++i) ranking.offer({logits[i], static_cast<std::int32_t>(i)});
    ranking.sort();
    std::transform(kept.begin(), kept.end(), args_.top + row * args_.most_tops, [&](const TokenLogit& token) {
      return TokenLogprob{.id = token.id, .logprob = static_cast<double>(token.logit) - shift};
    });
  }

  const SampleArgs& args_;
};

std::int64_t tasks_of(const SampleArgs& args, int threads) {
  return std::min<std::int64_t>(args.rows, threads);
}

RowWork lay_out(BumpArena& arena, const SampleArgs& args) {
  const std::int32_t logits = args.logits != nullptr ? args.vocab : 0;
  const std::size_t most = count(std::max(logits, args.most_candidates));
  return {.logits = arena.take<float>(count(logits)),
          .candidates = arena.take<TokenLogit>(most),
          .weights = arena.take<double>(most)};
}

std::size_t task_bytes(const SampleArgs& args) {
  BumpArena arena = BumpArena::counting();
  static_cast<void>(lay_out(arena, args));
  return (arena.used() + BumpArena::kAlignment - 1) / BumpArena::kAlignment * BumpArena::kAlignment;
}

}  // namespace

std::size_t CpuOps::workspace(const SampleArgs& args, int threads) const {
  return count(tasks_of(args, threads)) * task_bytes(args);
}

void CpuOps::sample(const RunContext& context, const SampleArgs& args) const {
  const std::int64_t tasks = tasks_of(args, context.pool().threads());
  const std::size_t share = task_bytes(args);
  context.pool().parallel_for(tasks, [&](std::int64_t task, int) {
    BumpArena arena(context.workspace.subspan(count(task) * share, share));
    RowsSampler(args).run(lay_out(arena, args), task, tasks);
  });
}

}  // namespace moracle::cpu
