// The largest of a head's outputs for one token, without reading the whole head: its screen (head_screen.h) bounds all
// of them, and few panels have to be computed.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "base/function_ref.h"
#include "base/memory.h"
#include "base/ranking.h"
#include "base/thread_pool.h"
#include "kernels/cpu/head_screen.h"
#include "kernels/kernel.h"

namespace moracle::cpu {

class HeadSearch {
 public:
  // Writes the products of a panel's 32 rows, as the head computes them. Called by several threads at once.
  using ComputePanel = FunctionRef<void(std::int64_t panel, float* products)>;

  // Of a head of `rows` rows, with its screen. `streams`: as ScreenArgs.
  HeadSearch(const PanelOps& ops, const HeadScreen& screen, const HeadScreen::Query& query, std::int64_t rows,
             bool streams, BumpArena& arena);
  [[nodiscard]] static std::size_t bytes(std::int64_t rows);

  // As PackedLinear::largest().
  [[nodiscard]] bool run(ThreadPool& pool, ComputePanel compute, std::span<RankedOutput> out);

 private:
  using Panel = RankedOutput;  // `row` is a panel's number, `value` its highest bound

  [[nodiscard]] bool bound_panels(ThreadPool& pool);
  [[nodiscard]] std::size_t highest_panels(std::span<Panel> found) const;
  void narrow_bounds(ThreadPool& pool, float known);
  [[nodiscard]] std::span<const Panel> doubtful_panels(float known) const;
  void compute_panels(ThreadPool& pool, ComputePanel compute, std::span<const Panel> panels,
                      Ranking<RankedOutput>& ranking);
  [[nodiscard]] std::span<float> rows_of(std::span<float> all, std::int64_t panel) const;

  const PanelOps& ops_;
  const HeadScreen& screen_;
  const HeadScreen::Query& query_;
  std::int64_t rows_;
  std::int64_t panels_;
  bool streams_;
  std::span<float> bounds_;     // of products, by row; of rows that have been computed: minus infinity
  std::span<float> products_;   // of panels that have been computed
  std::span<float> of_panels_;  // the highest bound of each
  std::span<Panel> doubtful_;
};

}  // namespace moracle::cpu
