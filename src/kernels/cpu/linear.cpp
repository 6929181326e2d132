// Driver of one linear layer over the panel micro-kernels.
#include <algorithm>
#include <atomic>
#include <cmath>
#include <cstring>
#include <numeric>

#include "base/checked.h"
#include "base/first_error.h"
#include "kernels/cpu/compact.h"
#include "kernels/cpu/dispatch.h"
#include "kernels/cpu/head_search.h"
#include "kernels/cpu/multiply_rows.h"
#include "kernels/cpu/stretches.h"

namespace moracle::cpu {

namespace {

class CpuLinear final : public PackedLinear {
 public:
  CpuLinear(const PanelOps& ops, const PanelForms& forms, PageBuffer memory, std::vector<std::int32_t> order,
            std::vector<float> bias, float global_scale, std::optional<float> input_scale,
            std::optional<HeadScreen> screen)
      : ops_(ops),
        forms_(forms),
        memory_(std::move(memory)),
        order_(std::move(order)),
        bias_(std::move(bias)),
        global_scale_(global_scale),
        input_scale_(input_scale),
        screen_(std::move(screen)) {}

  [[nodiscard]] std::size_t bytes() const override { return forms_.many.bytes() + (screen_ ? screen_->bytes() : 0); }

  [[nodiscard]] std::size_t workspace_bytes(std::int64_t tokens, int threads) const override {
    const PanelFormat& format = forms_.of(tokens);
    const std::size_t rows = PreparedRows::bytes(format, static_cast<std::size_t>(tokens)) +
                             BumpArena::cost<float>(static_cast<std::size_t>(threads * format.padded_cols()));
    return screen_ ? std::max(rows, largest_workspace()) : rows;
  }

  void run(const RunContext& context, std::int64_t tokens, const float* x, float* y) const override {
    const LinearRun alone{.linear = this, .y = y};
    run_alike(context, {&alone, 1}, tokens, x);
  }

  void run_together(const RunContext& context, std::span<const LinearRun> linears, std::int64_t tokens,
                    const float* x) const override {
    std::size_t alike = 1;
    while (alike < linears.size() && reads_alike(*linears[alike].linear, tokens)) ++alike;
    run_alike(context, linears.first(alike), tokens, x);
    const auto others = linears.subspan(alike);
    if (!others.empty()) others.front().linear->run_together(context, others, tokens, x);
  }

  [[nodiscard]] bool finds_largest() const override { return screen_.has_value(); }

  [[nodiscard]] bool largest(const RunContext& context, const float* x, std::span<RankedOutput> out) const override {
    if (!screen_) return false;
    const PanelFormat& format = forms_.of(1);
    BumpArena arena(context.workspace);
    const auto query = screen_->prepare(x, format.input, arena);
    if (!query) return false;
    const PreparedRow row = PreparedRows::take(format, 1, arena).row(format, 0);
    prepare_row(ops_, format, order_, input_scale_, x,
                arena.take<float>(static_cast<std::size_t>(format.padded_cols())).data(), row);
    const Tuning tuning = tuning_of_linears();
    RunRows run;
    run.add(format, row);
    HeadSearch search(ops_, *screen_, *query, format.rows, tuning.streams, arena);
    const auto compute = [&](std::int64_t panel, float* products) {
      PanelSet set;
      set.add(panel_at(format, panel), global_scale_, products);
      multiply_rows(format, tuning, run, set);
    };
    return search.run(context.pool, compute, out);
  }

 private:
  [[nodiscard]] bool reads_alike(const PackedLinear& other, std::int64_t tokens) const {
    const auto* const linear = dynamic_cast<const CpuLinear*>(&other);
    return linear != nullptr && prepared_alike(linear->forms_.of(tokens), forms_.of(tokens)) &&
           linear->input_scale_ == input_scale_ && linear->order_ == order_;
  }

  // Of linears that read x alike, which is prepared once: each thread reads a part of all their panels.
  void run_alike(const RunContext& context, std::span<const LinearRun> linears, std::int64_t tokens,
                 const float* x) const {
    const PanelFormat& format = forms_.of(tokens);
    BumpArena arena(context.workspace);
    const PreparedRows rows = PreparedRows::take(format, static_cast<std::size_t>(tokens), arena);
    const auto scratch = arena.take<float>(static_cast<std::size_t>(context.pool.threads() * format.padded_cols()));
    context.pool.parallel_for(tokens, [&](std::int64_t t, int thread) {
      prepare_row(ops_, format, order_, input_scale_, x + t * format.cols,
                  scratch.data() + thread * format.padded_cols(), rows.row(format, t));
    });
    struct Place {
      const CpuLinear* linear;
      float* y;
      const PanelFormat& format;
      std::int64_t panel;
    };
    const auto place_of = [&](std::int64_t panel) {
      for (std::size_t i = 0;; ++i) {
        const auto* const linear = static_cast<const CpuLinear*>(linears[i].linear);
        const PanelFormat& own = linear->forms_.of(tokens);
        if (panel < own.panels) return Place{linear, linears[i].y, own, panel};
        panel -= own.panels;
      }
    };
    std::int64_t panels = 0;
    for (const LinearRun& of : linears) panels += static_cast<const CpuLinear*>(of.linear)->forms_.of(tokens).panels;
    const Tuning tuning = tuning_of_linears();
    const auto to_its_end = [&](std::int64_t begin) {
      const Place place = place_of(begin);
      return place.format.panels - place.panel;
    };
    share_stretches(
        context.pool, panels, to_its_end, [&](std::int64_t begin, std::int64_t end, std::int64_t after, int) {
          const Place place = place_of(begin);
          const Place next = place_of(after);
          const PanelStreams streams(place.panel, place.panel + end - begin, tuning.together(tokens) ? kMaxPanels : 1);
          place.linear->multiply_stretch(place.format, tuning, streams, next.linear->panel_at(next.format, next.panel),
                                         tokens, rows, place.y);
        });
  }

  [[nodiscard]] std::size_t largest_workspace() const {
    const PanelFormat& format = forms_.of(1);
    return screen_->query_bytes() + PreparedRows::bytes(format, 1) +
           BumpArena::cost<float>(static_cast<std::size_t>(format.padded_cols())) + HeadSearch::bytes(format.rows);
  }

  [[nodiscard]] const std::byte* panel_at(const PanelFormat& format, std::int64_t panel) const {
    return memory_.data() + static_cast<std::size_t>(panel) * format.panel_bytes;
  }

  // A run of tokens meets many panels before the next run does, so that its activations stay in the second-level cache;
  // panels come from a cache or, asked for in time, from memory.
  void multiply_stretch(const PanelFormat& format, const Tuning& tuning, const PanelStreams& panels,
                        const std::byte* after, std::int64_t tokens, const PreparedRows& rows, float* y) const {
    constexpr std::int64_t kBlockBytes = std::int64_t{2} << 20U;
    const std::int64_t most = std::max<std::int64_t>(kBlockBytes / narrow<std::int64_t>(format.panel_bytes), 1);
    const Parts runs(tokens, kMaxRun);
    const Parts blocks(panels.size(), most);
    for (std::int64_t block = 0; block < blocks.size(); ++block) {
      for (std::int64_t i = 0; i < runs.size(); ++i) {
        const std::int64_t first = runs.begin(i);
        RunRows run;
        for (std::int64_t t = first; t < runs.begin(i + 1); ++t) run.add(format, rows.row(format, t));
        for (std::int64_t group = blocks.begin(block); group < blocks.begin(block + 1); ++group) {
          const PanelGroup ahead = i == 0 ? panels.at(group + 1) : PanelGroup();
          const std::byte* const next = group + 1 == panels.size() ? after : nullptr;
          multiply_panels(format, tuning, panels.at(group), ahead, next, run, y + first * format.rows);
        }
      }
    }
  }

  void multiply_panels(const PanelFormat& format, const Tuning& tuning, const PanelGroup& panels,
                       const PanelGroup& next, const std::byte* after, const RunRows& run, float* y) const {
    alignas(64) float out[kMaxPanels][kMaxRun * kPanelRows];
    PanelSet set;
    for (std::int64_t p = 0; p < panels.count; ++p) set.add(panel_at(format, panels.panel[p]), global_scale_, out[p]);
    for (std::int64_t p = 0; tuning.together(run.count) && p < next.count; ++p)
      set.add_ahead(panel_at(format, next.panel[p]));
    set.after = after;
    multiply_rows(format, tuning, run, set);
    for (std::int64_t p = 0; p < panels.count; ++p) {
      for (std::int64_t t = 0; t < run.count; ++t)
        store(format.rows, panels.panel[p] * kPanelRows, out[p] + t * kPanelRows, y + t * format.rows);
    }
  }

  // One token's values of the panel whose first row is `first`.
  void store(std::int64_t rows, std::int64_t first, const float* from, float* y) const {
    const std::int64_t count = std::min(kPanelRows, rows - first);
    if (bias_.empty()) {
      std::copy(from, from + count, y + first);
      return;
    }
    const float* const bias = bias_.data() + first;
    for (std::int64_t r = 0; r < count; ++r) y[first + r] = from[r] + bias[r];
  }

  const PanelOps& ops_;
  PanelForms forms_;
  PageBuffer memory_;
  std::vector<std::int32_t> order_;
  std::vector<float> bias_;
  float global_scale_;
  std::optional<float> input_scale_;
  std::optional<HeadScreen> screen_;
};

// Packs one matrix, in the plain format of its panels or in the compact one, and its screen where it is asked for.
class LinearPacker {
 public:
  LinearPacker(const PanelOps& ops, const CanonicalLinear& linear, const PanelFormat& plain, const PackOptions& options)
      : ops_(ops),
        linear_(linear),
        source_(*linear.weight),
        plain_(plain),
        options_(options),
        order_(column_order(source_.spec())) {
    const bool bounded = !quantized(plain.code) && linear.bias.empty() && plain.cols <= HeadScreen::kMostCols;
    if (options.find_largest && bounded) screen_.emplace(plain.rows, plain.cols);
  }

  // Null where the matrix does not fit the compact format.
  [[nodiscard]] Result<std::unique_ptr<PackedLinear>> pack(const PanelForms& forms) {
    const PanelFormat& format = forms.many;
    if (options_.layout_only) return packed(forms, PageBuffer());
    MORACLE_ASSIGN(PageBuffer memory, PageBuffer::allocate(format.bytes()));
    const std::span<std::byte> bytes(memory.data(), memory.size());
    const bool kept = restored(options_.name, bytes) && lists_hold(format, bytes);
    MORACLE_TRY(prepare_screen());
    if (!kept || !screen_packed_) {
      MORACLE_ASSIGN(const bool fits, fill(format, kept ? std::span<std::byte>() : bytes));
      if (!fits) return std::unique_ptr<PackedLinear>();
    }
    if (options_.store != nullptr && !kept) options_.store->keep(options_.name, bytes);
    if (options_.store != nullptr && !screen_packed_) options_.store->keep(screen_name(), screen_bytes());
    return packed(forms, std::move(memory));
  }

 private:
  struct Scratch {
    PackScratch pack;
    std::vector<std::byte> plain;
    HeadScreen::Scratch screen;
  };

  [[nodiscard]] std::unique_ptr<PackedLinear> packed(const PanelForms& forms, PageBuffer memory) {
    if (screen_) screen_->take(std::move(screen_memory_));
    return std::make_unique<CpuLinear>(ops_, forms, std::move(memory), order_, linear_.bias,
                                       source_.spec().global_scale, linear_.input_scale, std::move(screen_));
  }

  [[nodiscard]] bool restored(std::string_view name, std::span<std::byte> bytes) const {
    return options_.store != nullptr && options_.store->restore(name, bytes, options_.pool);
  }

  [[nodiscard]] std::string screen_name() const { return std::string(options_.name) + " screen"; }
  [[nodiscard]] std::span<std::byte> screen_bytes() { return {screen_memory_.data(), screen_memory_.size()}; }

  Result<> prepare_screen() {
    if (!screen_) {
      screen_packed_ = true;
    } else if (screen_memory_.size() == 0) {
      MORACLE_ASSIGN(screen_memory_, PageBuffer::allocate(screen_->bytes()));
      screen_packed_ = restored(screen_name(), screen_bytes());
    }
    return Ok{};
  }

  // Packs into `panels`, where that is not empty, and the screen where it is not packed yet, while the weights are in a
  // cache. False: the matrix does not fit the format.
  Result<bool> fill(const PanelFormat& format, std::span<std::byte> panels) {
    constexpr std::int64_t kPanelsPerItem = 16;
    constexpr std::int64_t kItemsPerRelease = 16;  // a head of 600 MB must not stay mapped beside its packed copy
    const std::int64_t together = std::min(kPanelsPerItem, panels_together(source_, plain_, order_));
    std::vector<Scratch> scratch(static_cast<std::size_t>(options_.pool.threads()));
    std::atomic<bool> fits{true};
    FirstError failed;
    options_.pool.parallel_for(ceil_div(format.panels, kPanelsPerItem), [&](std::int64_t item, int thread) {
      if (!fits.load(std::memory_order_relaxed)) return;
      const std::int64_t begin = item * kPanelsPerItem;
      const std::int64_t end = std::min(begin + kPanelsPerItem, format.panels);
      Scratch& own = scratch[static_cast<std::size_t>(thread)];
      for (std::int64_t first = begin; first < end && fits.load(std::memory_order_relaxed); first += together)
        failed.keep(item, fill(format, panels, first, std::min(first + together, end), own, fits));
      if (item % kItemsPerRelease == kItemsPerRelease - 1) source_.release();
    });
    MORACLE_TRY(failed.take());
    source_.release();
    return fits.load();
  }

  // The same of panels [begin, end), with one fetch from the file for both.
  Result<> fill(const PanelFormat& format, std::span<std::byte> panels, std::int64_t begin, std::int64_t end,
                Scratch& scratch, std::atomic<bool>& fits) {
    if (!panels.empty()) {
      std::byte* const out = panels.data() + static_cast<std::size_t>(begin) * format.panel_bytes;
      MORACLE_TRY(format.code == PanelCode::bf16_compact
                      ? pack_compact(format, begin, end, out, scratch, fits)
                      : pack_panels(source_, format, order_, begin, end, out, format.panel_bytes, scratch.pack));
    }
    if (screen_packed_) return Ok{};
    const std::int64_t end_row = std::min(end * kPanelRows, format.rows);
    return screen_->pack(ops_, source_, begin * kPanelRows, end_row, screen_bytes(), scratch.pack.words,
                         scratch.screen);
  }

  // Lists tell kernels what to read and where to write, so those of a file are looked at before.
  static bool lists_hold(const PanelFormat& format, std::span<const std::byte> panels) {
    if (format.code != PanelCode::bf16_compact) return true;
    for (std::size_t end = format.panel_bytes; end <= panels.size(); end += format.panel_bytes) {
      CompactTail tail;
      std::memcpy(&tail, panels.data() + end - sizeof tail, sizeof tail);
      if (tail.count > kMostOutside) return false;
      const std::span<const CompactTail::Outside> list(tail.outside, tail.count);
      const bool holds = std::all_of(list.begin(), list.end(), [&](const CompactTail::Outside& outside) {
        return outside.column < format.cols && outside.row < kPanelRows;
      });
      if (!holds) return false;
    }
    return true;
  }

  // As many panels at a time as the second-level cache holds in both formats.
  Result<> pack_compact(const PanelFormat& format, std::int64_t begin, std::int64_t end, std::byte* out,
                        Scratch& scratch, std::atomic<bool>& fits) const {
    constexpr std::int64_t kTogether = 4;
    scratch.plain.resize(static_cast<std::size_t>(kTogether) * plain_.panel_bytes);
    for (std::int64_t first = begin; first < end; first += kTogether) {
      const std::int64_t last = std::min(first + kTogether, end);
      MORACLE_TRY(
          pack_panels(source_, plain_, order_, first, last, scratch.plain.data(), plain_.panel_bytes, scratch.pack));
      for (std::int64_t p = first; p < last; ++p, out += format.panel_bytes) {
        const std::byte* const plain = scratch.plain.data() + static_cast<std::size_t>(p - first) * plain_.panel_bytes;
        if (compact_panel(plain, format.last_steps, out)) continue;
        fits.store(false, std::memory_order_relaxed);
        return Ok{};
      }
    }
    return Ok{};
  }

  const PanelOps& ops_;
  const CanonicalLinear& linear_;
  const MatrixSource& source_;
  const PanelFormat& plain_;
  const PackOptions& options_;
  std::vector<std::int32_t> order_;
  std::optional<HeadScreen> screen_;
  PageBuffer screen_memory_;
  bool screen_packed_ = false;  // or not asked for
};

}  // namespace

Result<std::unique_ptr<PackedLinear>> pack_linear(const PanelOps& ops, const CanonicalLinear& linear,
                                                  const PackOptions& options) {
  MORACLE_ASSIGN(const PanelForms plain, panel_forms(linear, ops));
  LinearPacker packer(ops, linear, plain.many, options);
  if (const auto compact = compacted(plain.many, ops)) {
    PanelForms forms;
    forms.many = *compact;
    MORACLE_ASSIGN(std::unique_ptr<PackedLinear> packed, packer.pack(forms));
    if (packed != nullptr) return packed;
  }
  return packer.pack(plain);
}

}  // namespace moracle::cpu
