// Driver of one linear layer over the panel micro-kernels.
#include <algorithm>

#include "base/checked.h"
#include "base/first_error.h"
#include "kernels/cpu/dispatch.h"
#include "kernels/cpu/packed_matrix.h"

namespace moracle::cpu {

namespace {

// Work items per thread: enough to even out, few enough that a thread reads long runs of panels.
constexpr std::int64_t kItemsPerThread = 8;

class CpuLinear final : public PackedLinear {
 public:
  CpuLinear(const PanelOps& ops, PanelFormat format, PageBuffer memory, std::vector<std::int32_t> order,
            std::vector<float> bias, float global_scale, std::optional<float> input_scale)
      : ops_(ops),
        format_(format),
        memory_(std::move(memory)),
        order_(std::move(order)),
        bias_(std::move(bias)),
        global_scale_(global_scale),
        input_scale_(input_scale) {}

  [[nodiscard]] std::size_t bytes() const override { return format_.bytes(); }

  [[nodiscard]] std::size_t workspace_bytes(std::int64_t tokens, int threads) const override {
    return PreparedRows::bytes(format_, static_cast<std::size_t>(tokens)) +
           BumpArena::cost<float>(static_cast<std::size_t>(threads * format_.padded_cols()));
  }

  void run(const RunContext& context, std::int64_t tokens, const float* x, float* y) const override {
    BumpArena arena(context.workspace);
    const PreparedRows rows = PreparedRows::take(format_, static_cast<std::size_t>(tokens), arena);
    const auto scratch = arena.take<float>(static_cast<std::size_t>(context.pool.threads() * format_.padded_cols()));
    context.pool.parallel_for(tokens, [&](std::int64_t t, int thread) {
      prepare_row(ops_, format_, order_, input_scale_, x + t * format_.cols,
                  scratch.data() + thread * format_.padded_cols(), rows.row(format_, t));
    });
    const std::int64_t items = std::min(format_.panels, context.pool.threads() * kItemsPerThread);
    context.pool.parallel_for(items, [&](std::int64_t item, int) {
      const std::int64_t end = format_.panels * (item + 1) / items;
      for (std::int64_t p = format_.panels * item / items; p < end; ++p) multiply_panel(p, tokens, rows, y);
    });
  }

 private:
  void multiply_panel(std::int64_t panel, std::int64_t tokens, const PreparedRows& rows, float* y) const {
    alignas(64) float out[kMaxRun * kPanelRows];
    const std::int64_t first = panel * kPanelRows;
    const std::int64_t count = std::min(kPanelRows, format_.rows - first);
    const Parts runs(tokens, kMaxRun);
    for (std::int64_t i = 0; i < runs.size(); ++i) {
      const std::int64_t begin = runs.begin(i);
      const auto run = narrow<std::size_t>(runs.begin(i + 1) - begin);
      PreparedRow run_rows[kMaxRun];
      for (std::size_t t = 0; t < run; ++t) run_rows[t] = rows.row(format_, begin + narrow<std::int64_t>(t));
      multiply_rows(format_, global_scale_, {run_rows, run},
                    memory_.data() + static_cast<std::size_t>(panel) * format_.panel_bytes, out, kPanelRows);
      for (std::size_t t = 0; t < run; ++t) {
        float* to = y + (begin + narrow<std::int64_t>(t)) * format_.rows + first;
        const float* from = out + t * kPanelRows;
        for (std::int64_t r = 0; r < count; ++r) {
          to[r] = from[r] + (bias_.empty() ? 0.0F : bias_[static_cast<std::size_t>(first + r)]);
        }
      }
    }
  }

  const PanelOps& ops_;
  PanelFormat format_;
  PageBuffer memory_;
  std::vector<std::int32_t> order_;
  std::vector<float> bias_;
  float global_scale_;
  std::optional<float> input_scale_;
};

}  // namespace

Result<std::unique_ptr<PackedLinear>> pack_linear(const PanelOps& ops, const CanonicalLinear& linear,
                                                  const PackOptions& options) {
  const MatrixSource& source = *linear.weight;
  MORACLE_ASSIGN(const PanelFormat format, panel_format(linear, ops));
  std::vector<std::int32_t> order = column_order(source.spec());
  const auto packed = [&](PageBuffer memory) {
    return std::unique_ptr<PackedLinear>(std::make_unique<CpuLinear>(
        ops, format, std::move(memory), std::move(order), linear.bias, source.spec().global_scale, linear.input_scale));
  };
  if (options.layout_only) return packed(PageBuffer());
  MORACLE_ASSIGN(PageBuffer memory, PageBuffer::allocate(format.bytes()));
  const std::span<std::byte> bytes(memory.data(), memory.size());
  if (options.store != nullptr && options.store->restore(options.name, bytes, options.pool)) {
    return packed(std::move(memory));
  }
  constexpr std::int64_t kPanelsPerItem = 16;
  constexpr std::int64_t kItemsPerRelease = 16;  // a head of 600 MB must not stay mapped beside its packed copy
  std::vector<MatrixPanel> scratch(static_cast<std::size_t>(options.pool.threads()));
  FirstError failed;
  options.pool.parallel_for(ceil_div(format.panels, kPanelsPerItem), [&](std::int64_t item, int thread) {
    const std::int64_t begin = item * kPanelsPerItem;
    const std::int64_t end = std::min(begin + kPanelsPerItem, format.panels);
    failed.keep(item, pack_panels(source, format, order, begin, end,
                                  memory.data() + static_cast<std::size_t>(begin) * format.panel_bytes,
                                  format.panel_bytes, scratch[static_cast<std::size_t>(thread)]));
    if (item % kItemsPerRelease == kItemsPerRelease - 1) source.release();
  });
  MORACLE_TRY(failed.take());
  source.release();
  if (options.store != nullptr) options.store->keep(options.name, bytes);
  return packed(std::move(memory));
}

}  // namespace moracle::cpu
