#include "kernels/cpu/head_search.h"

#include <algorithm>
#include <array>
#include <cmath>

#include "base/checked.h"
#include "kernels/cpu/stretches.h"

namespace moracle::cpu {

namespace {

constexpr std::int64_t kTaskPanels = HeadScreen::kMostNarrowed / kPanelRows;  // whose bounds one task narrows

// Infinity where one of them is no number. In lanes, so that maxima do not wait for each other.
float highest(std::span<const float> values) {
  constexpr std::size_t kLanes = 8;
  std::array<float, kLanes> most;
  most.fill(-INFINITY);
  const auto take = [&](std::size_t lane, float value) {
    value = std::isnan(value) ? INFINITY : value;
    most[lane] = value > most[lane] ? value : most[lane];
  };
  std::size_t i = 0;
  for (; i + kLanes <= values.size(); i += kLanes) {
    for (std::size_t lane = 0; lane < kLanes; ++lane) take(lane, values[i + lane]);
  }
  for (; i < values.size(); ++i) take(0, values[i]);
  return *std::max_element(most.begin(), most.end());
}

}  // namespace

HeadSearch::HeadSearch(const PanelOps& ops, const HeadScreen& screen, const HeadScreen::Query& query, std::int64_t rows,
                       bool streams, BumpArena& arena)
    : ops_(ops),
      screen_(screen),
      query_(query),
      rows_(rows),
      panels_(ceil_div(rows, kPanelRows)),
      streams_(streams),
      bounds_(arena.take<float>(static_cast<std::size_t>(panels_ * kPanelRows))),
      products_(arena.take<float>(static_cast<std::size_t>(panels_ * kPanelRows))),
      of_panels_(arena.take<float>(static_cast<std::size_t>(panels_))),
      doubtful_(arena.take<Panel>(static_cast<std::size_t>(panels_))) {}

std::size_t HeadSearch::bytes(std::int64_t rows) {
  const auto panels = static_cast<std::size_t>(ceil_div(rows, kPanelRows));
  return 2 * BumpArena::cost<float>(panels * kPanelRows) + BumpArena::cost<float>(panels) +
         BumpArena::cost<Panel>(panels);
}

bool HeadSearch::run(ThreadPool& pool, ComputePanel compute, std::span<RankedOutput> out) {
  if (!bound_panels(pool)) return false;
  // Panels with the highest bounds, as many as rows are wanted, make most other rows impossible.
  std::array<Panel, kMostLargest> first;
  const std::size_t count = highest_panels(std::span(first).first(std::min(out.size(), of_panels_.size())));
  Ranking<RankedOutput> ranking(out);
  compute_panels(pool, compute, std::span(first).first(count), ranking);
  narrow_bounds(pool, ranking.last().value);
  // Of those that are left, the likeliest come first, since what they hold makes others impossible.
  std::span<const Panel> left = doubtful_panels(ranking.last().value);
  while (!left.empty() && left.front().value >= ranking.last().value) {
    const std::size_t together = std::min(left.size(), static_cast<std::size_t>(pool.threads()));
    compute_panels(pool, compute, left.first(together), ranking);
    left = left.subspan(together);
  }
  ranking.sort();
  return true;
}

// False where a bound is no number, or infinite.
bool HeadSearch::bound_panels(ThreadPool& pool) {
  const auto any_length = [&](std::int64_t) { return panels_; };
  share_stretches(pool, panels_, any_length, [&](std::int64_t begin, std::int64_t end, std::int64_t after, int) {
    screen_.bound(ops_, query_, {.begin = begin, .end = end, .after = after}, streams_, bounds_.data());
    for (std::int64_t p = begin; p < end; ++p) of_panels_[static_cast<std::size_t>(p)] = highest(rows_of(bounds_, p));
  });
  return std::all_of(of_panels_.begin(), of_panels_.end(), [](float bound) { return std::isfinite(bound); });
}

std::size_t HeadSearch::highest_panels(std::span<Panel> found) const {
  Ranking<Panel> ranking(found);
  for (std::int64_t p = 0; p < panels_; ++p)
    ranking.offer({.value = of_panels_[static_cast<std::size_t>(p)], .row = p});
  return ranking.sort();
}

// The bounds of rows that may come to `known`.
void HeadSearch::narrow_bounds(ThreadPool& pool, float known) {
  pool.parallel_for(ceil_div(panels_, kTaskPanels), [&](std::int64_t task, int) {
    const std::int64_t begin = task * kTaskPanels;
    const std::int64_t end = std::min(begin + kTaskPanels, panels_);
    screen_.narrow_bounds(query_, begin * kPanelRows, std::min(end * kPanelRows, rows_), known, bounds_.data());
    for (std::int64_t p = begin; p < end; ++p) of_panels_[static_cast<std::size_t>(p)] = highest(rows_of(bounds_, p));
  });
}

// Panels with a row that may come to `known`, the highest bound first.
std::span<const HeadSearch::Panel> HeadSearch::doubtful_panels(float known) const {
  std::size_t count = 0;
  for (std::int64_t p = 0; p < panels_; ++p) {
    const float bound = of_panels_[static_cast<std::size_t>(p)];
    if (bound >= known) doubtful_[count++] = {.value = bound, .row = p};
  }
  const auto doubtful = doubtful_.first(count);
  std::sort(doubtful.begin(), doubtful.end(), [](const Panel& a, const Panel& b) { return a.before(b); });
  return doubtful;
}

void HeadSearch::compute_panels(ThreadPool& pool, ComputePanel compute, std::span<const Panel> panels,
                                Ranking<RankedOutput>& ranking) {
  pool.parallel_for(narrow<std::int64_t>(panels.size()), [&](std::int64_t i, int) {
    const std::int64_t p = panels[static_cast<std::size_t>(i)].row;
    compute(p, products_.data() + p * kPanelRows);
    std::ranges::fill(rows_of(bounds_, p), -INFINITY);
  });
  for (const Panel& panel : panels) {
    std::int64_t row = panel.row * kPanelRows;
    for (const float value : rows_of(products_, panel.row)) ranking.offer({.value = value, .row = row++});
  }
}

// A panel's part of an array of rows.
std::span<float> HeadSearch::rows_of(std::span<float> all, std::int64_t panel) const {
  const std::int64_t first = panel * kPanelRows;
  return all.subspan(static_cast<std::size_t>(first), static_cast<std::size_t>(std::min(kPanelRows, rows_ - first)));
}

}  // namespace moracle::cpu
