// Driver of one linear layer over the panel micro-kernels.
#include <algorithm>
#include <atomic>
#include <cstring>

#include "base/checked.h"
#include "base/first_error.h"
#include "kernels/cpu/compact.h"
#include "kernels/cpu/dispatch.h"
#include "kernels/cpu/packed_matrix.h"
#include "kernels/cpu/stretches.h"

namespace moracle::cpu {

namespace {

class CpuLinear final : public PackedLinear {
 public:
  CpuLinear(const PanelOps& ops, const PanelForms& forms, PageBuffer memory, std::vector<std::int32_t> order,
            std::vector<float> bias, float global_scale, std::optional<float> input_scale)
      : ops_(ops),
        forms_(forms),
        memory_(std::move(memory)),
        order_(std::move(order)),
        bias_(std::move(bias)),
        global_scale_(global_scale),
        input_scale_(input_scale) {}

  [[nodiscard]] std::size_t bytes() const override { return forms_.many.bytes(); }

  [[nodiscard]] std::size_t workspace_bytes(std::int64_t tokens, int threads) const override {
    const PanelFormat& format = forms_.of(tokens);
    return PreparedRows::bytes(format, static_cast<std::size_t>(tokens)) +
           BumpArena::cost<float>(static_cast<std::size_t>(threads * format.padded_cols()));
  }

  void run(const RunContext& context, std::int64_t tokens, const float* x, float* y) const override {
    const PanelFormat& format = forms_.of(tokens);
    BumpArena arena(context.workspace);
    const PreparedRows rows = PreparedRows::take(format, static_cast<std::size_t>(tokens), arena);
    const auto scratch = arena.take<float>(static_cast<std::size_t>(context.pool.threads() * format.padded_cols()));
    context.pool.parallel_for(tokens, [&](std::int64_t t, int thread) {
      prepare_row(ops_, format, order_, input_scale_, x + t * format.cols,
                  scratch.data() + thread * format.padded_cols(), rows.row(format, t));
    });
    const Tuning tuning = tuning_of_linears();
    const auto any_length = [&](std::int64_t) { return format.panels; };
    share_stretches(context.pool, format.panels, any_length, [&](std::int64_t begin, std::int64_t end, int) {
      const PanelStreams panels(begin, end, tuning.together(tokens) ? kMaxPanels : 1);
      for (std::int64_t i = 0; i < panels.size(); ++i)
        multiply_panels(format, tuning, panels.at(i), panels.at(i + 1), tokens, rows, y);
    });
  }

 private:
  void multiply_panels(const PanelFormat& format, const Tuning& tuning, const PanelGroup& panels,
                       const PanelGroup& next, std::int64_t tokens, const PreparedRows& rows, float* y) const {
    alignas(64) float out[kMaxPanels][kMaxRun * kPanelRows];
    PanelSet set;
    for (std::int64_t p = 0; p < panels.count; ++p) {
      set.add(memory_.data() + static_cast<std::size_t>(panels.panel[p]) * format.panel_bytes, global_scale_, out[p]);
    }
    for (std::int64_t p = 0; tuning.together(tokens) && p < next.count; ++p)
      set.add_ahead(memory_.data() + static_cast<std::size_t>(next.panel[p]) * format.panel_bytes);
    const Parts runs(tokens, kMaxRun);
    for (std::int64_t i = 0; i < runs.size(); ++i) {
      const std::int64_t begin = runs.begin(i);
      const auto run = narrow<std::size_t>(runs.begin(i + 1) - begin);
      PreparedRow run_rows[kMaxRun];
      for (std::size_t t = 0; t < run; ++t) run_rows[t] = rows.row(format, begin + narrow<std::int64_t>(t));
      multiply_rows(format, tuning, {run_rows, run}, set);
      set.ahead_count = 0;
      for (std::int64_t p = 0; p < panels.count; ++p) {
        for (std::size_t t = 0; t < run; ++t)
          store(format.rows, panels.panel[p] * kPanelRows, out[p] + t * kPanelRows,
                y + (begin + narrow<std::int64_t>(t)) * format.rows);
      }
    }
  }

  // One token's values of the panel whose first row is `first`.
  void store(std::int64_t rows, std::int64_t first, const float* from, float* y) const {
    const std::int64_t count = std::min(kPanelRows, rows - first);
    for (std::int64_t r = 0; r < count; ++r)
      y[first + r] = from[r] + (bias_.empty() ? 0.0F : bias_[static_cast<std::size_t>(first + r)]);
  }

  const PanelOps& ops_;
  PanelForms forms_;
  PageBuffer memory_;
  std::vector<std::int32_t> order_;
  std::vector<float> bias_;
  float global_scale_;
  std::optional<float> input_scale_;
};

// Packs one matrix, in the plain format of its panels or in the compact one.
class LinearPacker {
 public:
  LinearPacker(const CanonicalLinear& linear, const PanelFormat& plain, const PackOptions& options)
      : source_(*linear.weight), plain_(plain), options_(options), order_(column_order(source_.spec())) {}

  [[nodiscard]] const std::vector<std::int32_t>& order() const { return order_; }

  // None where the matrix does not fit the compact format.
  [[nodiscard]] Result<std::optional<PageBuffer>> pack(const PanelFormat& format) const {
    MORACLE_ASSIGN(PageBuffer memory, PageBuffer::allocate(format.bytes()));
    const std::span<std::byte> bytes(memory.data(), memory.size());
    const bool kept = options_.store != nullptr && options_.store->restore(options_.name, bytes, options_.pool) &&
                      lists_hold(format, bytes);
    if (kept) return std::optional(std::move(memory));
    constexpr std::int64_t kPanelsPerItem = 16;
    constexpr std::int64_t kItemsPerRelease = 16;  // a head of 600 MB must not stay mapped beside its packed copy
    std::vector<Scratch> scratch(static_cast<std::size_t>(options_.pool.threads()));
    std::atomic<bool> fits{true};
    FirstError failed;
    options_.pool.parallel_for(ceil_div(format.panels, kPanelsPerItem), [&](std::int64_t item, int thread) {
      if (!fits.load(std::memory_order_relaxed)) return;
      const std::int64_t begin = item * kPanelsPerItem;
      const std::int64_t end = std::min(begin + kPanelsPerItem, format.panels);
      std::byte* const out = memory.data() + static_cast<std::size_t>(begin) * format.panel_bytes;
      Scratch& own = scratch[static_cast<std::size_t>(thread)];
      if (format.code != PanelCode::bf16_compact) {
        failed.keep(item, pack_panels(source_, format, order_, begin, end, out, format.panel_bytes, own.pack));
      } else {
        failed.keep(item, pack_compact(format, begin, end, out, own, fits));
      }
      if (item % kItemsPerRelease == kItemsPerRelease - 1) source_.release();
    });
    MORACLE_TRY(failed.take());
    source_.release();
    if (!fits) return std::optional<PageBuffer>();
    if (options_.store != nullptr) options_.store->keep(options_.name, bytes);
    return std::optional(std::move(memory));
  }

 private:
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

  struct Scratch {
    PackScratch pack;
    std::vector<std::byte> plain;
  };

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

  const MatrixSource& source_;
  const PanelFormat& plain_;
  const PackOptions& options_;
  std::vector<std::int32_t> order_;
};

}  // namespace

Result<std::unique_ptr<PackedLinear>> pack_linear(const PanelOps& ops, const CanonicalLinear& linear,
                                                  const PackOptions& options) {
  MORACLE_ASSIGN(const PanelForms plain, panel_forms(linear, ops));
  const LinearPacker packer(linear, plain.many, options);
  const auto packed = [&](const PanelForms& forms, PageBuffer memory) -> std::unique_ptr<PackedLinear> {
    return std::make_unique<CpuLinear>(ops, forms, std::move(memory), packer.order(), linear.bias,
                                       linear.weight->spec().global_scale, linear.input_scale);
  };
  if (const auto compact = compacted(plain.many, ops)) {
    PanelForms forms;
    forms.many = *compact;
    if (options.layout_only) return packed(forms, PageBuffer());
    MORACLE_ASSIGN(std::optional<PageBuffer> memory, packer.pack(*compact));
    if (memory) return packed(forms, std::move(*memory));
  }
  if (options.layout_only) return packed(plain, PageBuffer());
  MORACLE_ASSIGN(std::optional<PageBuffer> memory, packer.pack(plain.many));
  return packed(plain, std::move(*memory));
}

}  // namespace moracle::cpu
