// Driver of one linear layer.
#include <algorithm>
#include <atomic>
#include <cmath>
#include <cstring>
#include <numeric>

#include "base/checked.h"
#include "base/first_error.h"
#include "base/generic/equal_parts.h"
#include "base/memory.h"
#include "base/work_stealing.h"
#include "kernels/cpu/activations/rows.h"
#include "kernels/cpu/interleaved_panels.h"
#include "kernels/cpu/kernels.h"
#include "kernels/cpu/ops/head_top_k.h"
#include "kernels/cpu/targets/targets.h"
#include "kernels/cpu/weights/pack/pack.h"
#include "kernels/cpu/weights/pack/pack_lines.h"
#include "kernels/weight_sink.h"

namespace moracle::cpu {

namespace {

class CpuLinear final : public PackedLinear {
 public:
  CpuLinear(const Target& target, const PackedFormat& format, PageBuffer memory, MatrixExtras extras,
            std::unique_ptr<HeadTopK> top_k)
      : target_(target),
        format_(format),
        memory_(std::move(memory)),
        extras_(std::move(extras)),
        top_k_(std::move(top_k)) {}

  [[nodiscard]] std::size_t bytes() const override { return format_.layout().bytes() + (top_k_ ? top_k_->bytes() : 0); }

  [[nodiscard]] std::size_t workspace_bytes(std::int64_t tokens, int threads) const override {
    BumpArena counting = BumpArena::counting();
    take_rows(format_.of(tokens), tokens, threads, counting);
    if (top_k_)
      static_cast<void>(counting.take<std::byte>(top_k_->workspace_bytes(std::min(tokens, kMaxTokens), threads)));
    return counting.used() + BumpArena::kAlignment;
  }

  void run(const RunContext& context, std::int64_t tokens, const ConstActivations& x,
           const Activations& y) const override {
    const LinearRun alone{.linear = this, .y = y};
    run_alike(context, {&alone, 1}, tokens, x.f32());
  }

  void run_fused(const RunContext& context, std::span<const LinearRun> linears, std::int64_t tokens,
                 const ConstActivations& x) const override {
    std::size_t alike = 1;
    while (alike < linears.size() && reads_alike(*linears[alike].linear, tokens)) ++alike;
    run_alike(context, linears.first(alike), tokens, x.f32());
    const auto others = linears.subspan(alike);
    if (!others.empty()) others.front().linear->run_fused(context, others, tokens, x);
  }

  [[nodiscard]] bool has_top_k() const override { return top_k_ != nullptr; }

  [[nodiscard]] bool top_k(const RunContext& context, const TopKQuery& query,
                           std::span<RankedOutput> out) const override {
    const PanelFormat& format = format_.of(query.tokens);
    const EqualParts<> parts(query.tokens, kMaxTokens);  // as run() has them
    if (!top_k_ || parts.begin(1) * query.k > format.panels / kLeastPanelsPerOutput) return false;
    for (std::int64_t i = 0; i < parts.size(); ++i) {
      TopKQuery part = query;
      part.tokens = parts.begin(i + 1) - parts.begin(i);
      part.x += parts.begin(i) * format.cols;
      if (part.seeds != nullptr) part.seeds += parts.begin(i);
      const auto place = out.subspan(static_cast<std::size_t>(parts.begin(i) * query.k));
      if (!top_k_of_block(context, format, part, place)) return false;
    }
    return true;
  }

 private:
  // Where a query wants more outputs than a quarter of the panels, most panels would have to be multiplied.
  static constexpr std::int64_t kLeastPanelsPerOutput = 4;

  [[nodiscard]] bool reads_alike(const PackedLinear& other, std::int64_t tokens) const {
    const auto* const linear = dynamic_cast<const CpuLinear*>(&other);
    return linear != nullptr && activations_alike(linear->format_.of(tokens), format_.of(tokens)) &&
           linear->extras_.input_scale == extras_.input_scale && linear->extras_.order == extras_.order;
  }

  // Of linears that read x alike, which is prepared once: each thread reads a part of all their panels.
  void run_alike(const RunContext& context, std::span<const LinearRun> linears, std::int64_t tokens,
                 const float* x) const {
    const PanelFormat& format = format_.of(tokens);
    BumpArena arena(context.workspace);
    const ActivationRows rows = prepare_rows(context.pool(), format, tokens, x, arena);
    struct Place {
      const CpuLinear* linear;
      float* y;
      const PanelFormat& format;
      std::int64_t panel;
    };
    const auto place_of = [&](std::int64_t panel) {
      for (std::size_t i = 0;; ++i) {
        const auto* const linear = static_cast<const CpuLinear*>(linears[i].linear);
        const PanelFormat& own = linear->format_.of(tokens);
        if (panel < own.panels) return Place{linear, linears[i].y.f32(), own, panel};
        panel -= own.panels;
      }
    };
    std::int64_t panels = 0;
    for (const LinearRun& of : linears) panels += static_cast<const CpuLinear*>(of.linear)->format_.of(tokens).panels;
    const auto to_its_end = [&](std::int64_t begin) {
      const Place place = place_of(begin);
      return place.format.panels - place.panel;
    };
    parallel_ranges(context.pool(), panels, to_its_end,
                    [&](std::int64_t begin, std::int64_t end, std::int64_t following, int) {
                      const Place place = place_of(begin);
                      const Place next = place_of(following);
                      const InterleavedPanels streams(place.panel, place.panel + end - begin,
                                                      format_.interleaves(tokens) ? kMaxPanels : 1);
                      place.linear->gemm_range(place.format, streams, next.linear->panel_at(next.format, next.panel),
                                               tokens, rows, place.y);
                    });
  }

  bool top_k_of_block(const RunContext& context, const PanelFormat& format, const TopKQuery& query,
                      std::span<RankedOutput> out) const {
    BumpArena arena(context.workspace);
    const ActivationRows rows = prepare_rows(context.pool(), format, query.tokens, query.x, arena);
    const auto gemm_panel = [&](std::int64_t panel, float* y) {
      gemm_range(format, InterleavedPanels(panel, panel + 1, 1), panel_at(format, panel), query.tokens, rows, y);
    };
    const auto memory = arena.take<std::byte>(top_k_->workspace_bytes(query.tokens, context.pool().threads()));
    return top_k_->run(context.stream, memory, query, gemm_panel, out);
  }

  // Activation rows of a call, and a row of scratch for each thread.
  struct CallRows {
    ActivationRows rows;
    std::span<float> scratch;
  };
  static CallRows take_rows(const PanelFormat& format, std::int64_t tokens, int threads, BumpArena& arena) {
    return {.rows = ActivationRows::take(format, static_cast<std::size_t>(tokens), arena),
            .scratch = arena.take<float>(static_cast<std::size_t>(threads * format.padded_cols()))};
  }

  ActivationRows prepare_rows(ThreadPool& pool, const PanelFormat& format, std::int64_t tokens, const float* x,
                              BumpArena& arena) const {
    const auto [rows, scratch] = take_rows(format, tokens, pool.threads(), arena);
    pool.parallel_for(tokens, [&](std::int64_t t, int thread) {
      make_activation_row(*target_.activations, format, extras_, x + t * format.cols,
                          scratch.data() + thread * format.padded_cols(), rows.row(format, t));
    });
    return rows;
  }

  [[nodiscard]] const std::byte* panel_at(const PanelFormat& format, std::int64_t panel) const {
    return memory_.data() + static_cast<std::size_t>(panel) * format.panel_bytes;
  }

  // A block of tokens meets many panels before the next one does, so that its activations stay in L2; panels come from
  // a cache or, prefetched in time, from memory.
  void gemm_range(const PanelFormat& format, const InterleavedPanels& panels, const std::byte* following,
                  std::int64_t tokens, const ActivationRows& rows, float* y) const {
    constexpr std::int64_t kBlockBytes = std::int64_t{2} << 20U;
    const std::int64_t most = std::max<std::int64_t>(kBlockBytes / narrow<std::int64_t>(format.panel_bytes), 1);
    const EqualParts<> blocks(tokens, kMaxTokens);
    const EqualParts<> panel_blocks(panels.size(), most);
    for (std::int64_t part = 0; part < panel_blocks.size(); ++part) {
      for (std::int64_t i = 0; i < blocks.size(); ++i) {
        const std::int64_t first = blocks.begin(i);
        TokenBlock block;
        for (std::int64_t t = first; t < blocks.begin(i + 1); ++t) block.add(format, rows.row(format, t));
        for (std::int64_t group = panel_blocks.begin(part); group < panel_blocks.begin(part + 1); ++group) {
          const PanelGroup upcoming = i == 0 ? panels.at(group + 1) : PanelGroup();
          const std::byte* const next = group + 1 == panels.size() ? following : nullptr;
          gemm_panels(format, panels.at(group), upcoming, next, block, y + first * format.rows);
        }
      }
    }
  }

  void gemm_panels(const PanelFormat& format, const PanelGroup& panels, const PanelGroup& next,
                   const std::byte* following, const TokenBlock& block, float* y) const {
    alignas(64) float out[kMaxPanels][kMaxTokens * kPanelRows];
    GemmArgs call = block.call(format);
    for (std::int64_t p = 0; p < panels.count; ++p) call.add(panel_at(format, panels.panel[p]), extras_.scale, out[p]);
    for (std::int64_t p = 0; format_.interleaves(block.count) && p < next.count; ++p)
      call.next[call.next_count++] = panel_at(format, next.panel[p]);
    call.following = following;
    format_.kernel(block.count).run(call);
    for (std::int64_t p = 0; p < panels.count; ++p) {
      for (std::int64_t t = 0; t < block.count; ++t)
        store(format.rows, panels.panel[p] * kPanelRows, out[p] + t * kPanelRows, y + t * format.rows);
    }
  }

  // One token's values of the panel whose first row is `first`.
  void store(std::int64_t rows, std::int64_t first, const float* from, float* y) const {
    const std::int64_t count = std::min(kPanelRows, rows - first);
    const float* const bias = extras_.bias_at(first);
    for (std::int64_t r = 0; r < count; ++r) y[first + r] = bias == nullptr ? from[r] : from[r] + bias[r];
  }

  const Target& target_;
  PackedFormat format_;
  PageBuffer memory_;
  MatrixExtras extras_;
  std::unique_ptr<HeadTopK> top_k_;
};

// Packs one matrix, in the plain format of its panels or in 12 bits.
struct LinearPacker {
  const MatrixSource& source;
  std::span<const std::int32_t> order;
  const PanelFormat& plain_format;
  const PackOptions& options;
  struct Scratch {
    PackScratch pack;
    std::vector<std::byte> plain;
  };

  // False: the matrix does not fit the 12-bit format.
  Result<bool> pack(const PanelFormat& format, PageBuffer& memory) const {
    if (options.layout_only) return true;
    MORACLE_ASSIGN(memory, PageBuffer::allocate(format.bytes()));
    constexpr std::int64_t kPanelsPerItem = 16;
    constexpr std::int64_t kItemsPerRelease = 16;  // a head of 600 MB must not stay mapped beside its packed copy
    HostSink sink(memory.data());
    std::vector<Scratch> scratch(static_cast<std::size_t>(options.pool.threads()));
    std::atomic<bool> fits{true};
    FirstError failed;
    options.pool.parallel_for(ceil_div(format.panels, kPanelsPerItem), [&](std::int64_t item, int thread) {
      if (!fits.load(std::memory_order_relaxed)) return;
      const std::int64_t begin = item * kPanelsPerItem;
      const std::int64_t end = std::min(begin + kPanelsPerItem, format.panels);
      std::byte* const out = sink.stage(static_cast<std::size_t>(begin) * format.panel_bytes,
                                        static_cast<std::size_t>(end - begin) * format.panel_bytes, thread)
                                 .data();
      Scratch& own = scratch[static_cast<std::size_t>(thread)];
      failed.keep(item, format.code == WeightCode::bf16x12
                            ? pack_narrow(format, begin, end, out, own, fits)
                            : pack_panels(source, format, order, begin, end, out, format.panel_bytes, own.pack));
      failed.keep(item, sink.commit(thread));
      if (item % kItemsPerRelease == kItemsPerRelease - 1) source.release();
    });
    MORACLE_TRY(failed.take());
    source.release();
    return fits.load();
  }

  // As many panels at a time as L2 holds in both formats.
  Result<> pack_narrow(const PanelFormat& format, std::int64_t begin, std::int64_t end, std::byte* out,
                       Scratch& scratch, std::atomic<bool>& fits) const {
    constexpr std::int64_t kTogether = 4;
    scratch.plain.resize(static_cast<std::size_t>(kTogether) * plain_format.panel_bytes);
    for (std::int64_t first = begin; first < end; first += kTogether) {
      const std::int64_t last = std::min(first + kTogether, end);
      MORACLE_TRY(pack_panels(source, plain_format, order, first, last, scratch.plain.data(), plain_format.panel_bytes,
                              scratch.pack));
      for (std::int64_t p = first; p < last; ++p, out += format.panel_bytes) {
        const std::byte* const plain =
            scratch.plain.data() + static_cast<std::size_t>(p - first) * plain_format.panel_bytes;
        if (kPacking.bf16x12(plain, format.last_steps, out)) continue;
        fits.store(false, std::memory_order_relaxed);
        return Ok{};
      }
    }
    return Ok{};
  }
};

// The copy of a head in 8 bits, where it has one; else null.
Result<std::unique_ptr<HeadTopK>> pack_head_copy(const Target& target, const CanonicalLinear& linear,
                                                 const PanelFormat& format, PackOptions options) {
  if (!options.head || quantized(format.code) || !linear.bias.empty() || format.cols > kMaxHeadCols)
    return std::unique_ptr<HeadTopK>();
  std::vector<RowNorms> norms(static_cast<std::size_t>(format.rows));
  const CanonicalLinear copy{.weight = int8_copy(*linear.weight, norms)};
  const Target& own = target.head.empty() ? target : *find_target(target.head);
  options.head = false;
  MORACLE_ASSIGN(const PackedFormat copy_format, packed_format(copy, own, Numerics::exact));
  MORACLE_ASSIGN(auto packed, pack_linear(own, Numerics::exact, copy, options));
  return std::make_unique<HeadTopK>(
      HeadTopK{std::move(packed), copy_format.layout().input, format.input, format.cols, std::move(norms)});
}

}  // namespace

Result<std::unique_ptr<PackedLinear>> pack_linear(const Target& target, Numerics numerics,
                                                  const CanonicalLinear& linear, const PackOptions& options) {
  MORACLE_ASSIGN(const PackedFormat plain, packed_format(linear, target, numerics));
  MORACLE_ASSIGN(auto top_k, pack_head_copy(target, linear, plain.layout(), options));
  MatrixExtras extras = MatrixExtras::of(linear);
  const LinearPacker packer{*linear.weight, extras.order, plain.layout(), options};
  const Result<PackedFormat> narrow = packed_format(linear, target, numerics, true);
  PackedFormat format = narrow.ok() ? *narrow : plain;
  PageBuffer memory;
  MORACLE_ASSIGN(const bool fits, packer.pack(format.layout(), memory));
  if (!fits) {
    format = plain;
    MORACLE_TRY(packer.pack(format.layout(), memory));
  }
  return std::unique_ptr<PackedLinear>(
      std::make_unique<CpuLinear>(target, format, std::move(memory), std::move(extras), std::move(top_k)));
}

}  // namespace moracle::cpu
