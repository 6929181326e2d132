// The screen of a matrix (screen.h): packing, and upper bounds of its rows' products with one row of activations.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "base/memory.h"
#include "base/result.h"
#include "kernels/cpu/fetched.h"
#include "kernels/cpu/panel.h"
#include "kernels/cpu/screen.h"
#include "scheme/canonical.h"

namespace moracle::cpu {

class HeadScreen {
 public:
  // What one thread packs with.
  struct Scratch {
    MatrixPanel panel;
    std::vector<float> row;
    std::vector<float> groups;
  };
  // Activations, prepared; they lie in the arena that they were made in.
  struct Query {
    ScreenInput x{};
    double length = 0;    // |x|
    double off = 0;       // |x - x~|
    double rounding = 0;  // of the exact kernel and of the screen's, for each unit of |W_r| |x|
    double lost = 0;      // what they lose to underflow
  };

  // Of an unquantized matrix [rows, cols] of up to kMostCols columns: norms are sums in f32.
  static constexpr std::int64_t kMostCols = std::int64_t{1} << 16;
  static constexpr std::int64_t kMostNarrowed = 1024;
  HeadScreen(std::int64_t rows, std::int64_t cols);

  [[nodiscard]] std::size_t bytes() const {
    return fine_at_ + static_cast<std::size_t>(rows_ * fine_row_bytes(blocks_));
  }
  // Packs rows [begin, end) into `memory`, of bytes(), from what the panels of these rows have fetched. Errors: those
  // of MatrixSource::read.
  Result<> pack(const PanelOps& ops, const MatrixSource& source, std::int64_t begin, std::int64_t end,
                std::span<std::byte> memory, Fetched& fetched, Scratch& scratch) const;
  void take(PageBuffer memory) { memory_ = std::move(memory); }

  [[nodiscard]] std::size_t query_bytes() const;
  // Nothing where x [cols] has a value that is no number, or too large to tell. `input` is the form in which the exact
  // kernel takes x.
  [[nodiscard]] std::optional<Query> prepare(const float* x, InputForm input, BumpArena& arena) const;
  struct Panels {  // of 32 rows
    std::int64_t begin;
    std::int64_t end;
    std::int64_t after;  // the panel to be read behind them
  };
  // To bounds[32 begin .. 32 end): not below the products of these rows with x, as the exact kernel would compute them;
  // of what fills the last panel up, any. NaN or infinity: unknown. `streams`: as ScreenArgs.
  void bound(const PanelOps& ops, const Query& query, const Panels& panels, bool streams, float* bounds) const;
  // The same, closer, of those of rows [begin, end), at most kMostNarrowed, whose bounds are not below `known`.
  void narrow_bounds(const Query& query, std::int64_t begin, std::int64_t end, float known, float* bounds) const;

 private:
  [[nodiscard]] const std::byte* panel_at(std::int64_t panel) const {
    return memory_.data() + panel * screen_panel_bytes(blocks_);
  }
  [[nodiscard]] const std::byte* fine_at(std::int64_t row) const {
    return memory_.data() + fine_at_ + static_cast<std::size_t>(row * fine_row_bytes(blocks_));
  }

  std::int64_t rows_;
  std::int64_t cols_;
  std::int64_t blocks_;
  std::size_t fine_at_;  // where rows of finer bits begin
  PageBuffer memory_;
};

}  // namespace moracle::cpu
