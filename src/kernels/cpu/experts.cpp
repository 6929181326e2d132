// Driver of one layer's routed experts. Weights of an expert are contiguous: gate panel, up panel, gate panel, ... then
// the w2 panels; ungated experts have no up panels. Every weight is read once per call, for all tokens that share the
// expert. Experts of a store are computed in waves, as they come: an output is of one pair, and sums are made behind
// the last wave.
#include <algorithm>
#include <cstring>
#include <utility>

#include "base/checked.h"
#include "base/generic/equal_parts.h"
#include "base/memory.h"
#include "base/work_stealing.h"
#include "kernels/cpu/activations/rows.h"
#include "kernels/cpu/cards.h"
#include "kernels/cpu/faults.h"
#include "kernels/cpu/interleaved_panels.h"
#include "kernels/cpu/kernels.h"
#include "kernels/cpu/weights/pack/pack.h"
#include "kernels/expert_schedule.h"
#include "kernels/expert_store.h"
#include "kernels/weight_sink.h"

namespace moracle::cpu {

namespace {

constexpr std::int64_t kMaxChoices = 64;
// Rows of an expert's inputs that are at hand at a time, copied to one place where kernels like that.
constexpr std::int64_t kItemRows = 256;
constexpr std::int64_t kItemBlocks = kItemRows / kMaxTokens;

struct ExpertExtras {
  MatrixExtras gate, up, down;
};

// What a pack has of its experts.
struct PackedWeights {
  std::vector<ExpertExtras> extras;
  PageBuffer memory;                     // of all experts, one behind the other
  std::vector<const std::byte*> blocks;  // of each in it
  std::unique_ptr<LayerExperts> layer;   // in place of both: they are in a store
};

struct Layout {
  PackedFormat w13;  // of gate and of up
  bool gated = true;
  PackedFormat w2;
  std::int64_t experts = 0;
  std::int64_t hidden = 0;
  bool per_pair = false;  // inputs depend on the expert (column order, static scale): prepared per pair, not per token
  bool own_up = false;    // inputs of up differ from those of gate somewhere
  // Of a gate panel and its up panel.
  [[nodiscard]] std::size_t pair_bytes() const { return (gated ? 2 : 1) * w13.layout().panel_bytes; }
  [[nodiscard]] std::size_t w13_bytes() const { return (gated ? 2 : 1) * w13.layout().bytes(); }
  [[nodiscard]] std::size_t expert_bytes() const { return w13_bytes() + w2.layout().bytes(); }
  [[nodiscard]] std::size_t bytes() const { return static_cast<std::size_t>(experts) * expert_bytes(); }
};

// Activation rows in every form that kernels take. A row is made in the forms that its experts ask for.
struct InputRows {
  ActivationRows of[PackedFormat::kMaxForms];

  static InputRows take(const PackedFormat& format, std::size_t rows, BumpArena& arena) {
    InputRows result;
    for (std::size_t i = 0; i < format.forms(); ++i) result.of[i] = ActivationRows::take(format.form(i), rows, arena);
    return result;
  }
  // As `tokens` tokens of one expert meet it.
  [[nodiscard]] ActivationRow row(const PackedFormat& format, std::int64_t tokens, std::int64_t index) const {
    const std::size_t form = format.form_of(tokens);
    return of[form].row(format.form(form), index);
  }
};

// Memory of one call.
struct Workspace {
  ExpertSchedule schedule;
  std::span<const std::int32_t> active;      // experts that are computed now
  std::span<const std::byte* const> blocks;  // [experts]: the weights of those
  std::span<std::uint8_t> missing;           // [experts]: of a store, whether it has not given the expert
  InputRows x, x_up;                         // inputs of gate and of up, per token or per sorted pair
  std::span<float> h;                        // activated w13 output, [pairs, padded intermediate]
  InputRows h_rows;                          // the same, as inputs of w2
  std::span<float> y;                        // [pairs, padded hidden]
  std::span<float> scratch;                  // [threads, widest row]
  std::int64_t scratch_stride = 0;
  std::span<std::byte> gathered;  // [threads, gather_rows, input stride of w13]
  std::int64_t gather_rows = 0;
};

class CpuExperts final : public PackedExperts {
 public:
  CpuExperts(const Target& target, const Layout& layout, const ActivationSpec& activation, PackedWeights weights)
      : kernels_(*target.activations), layout_(layout), activation_(activation), weights_(std::move(weights)) {}

  [[nodiscard]] std::size_t bytes() const override { return layout_.bytes(); }
  [[nodiscard]] std::span<const std::byte> expert(std::int64_t index) const override {
    const auto at = static_cast<std::size_t>(index);
    if (at >= weights_.blocks.size()) return {};
    return {weights_.blocks[at], layout_.expert_bytes()};
  }
  [[nodiscard]] std::size_t slot_bytes() const override { return layout_.expert_bytes(); }

  [[nodiscard]] std::size_t workspace_bytes(std::int64_t tokens, std::int64_t top_k, int threads) const override {
    BumpArena counting = BumpArena::counting();
    static_cast<void>(take_workspace(ExpertSchedule::take(tokens, top_k, layout_.experts, counting), tokens, top_k,
                                     threads, counting));
    return counting.used() + BumpArena::kAlignment;
  }

  void run(const RunContext& context, const ExpertsInput& input, const Activations& out) const override {
    BumpArena arena(context.workspace);
    const ExpertSchedule schedule = ExpertSchedule::make(input, layout_.experts, arena);
    Workspace work = take_workspace(schedule, input.tokens, input.top_k, context.pool().threads(), arena);
    prepare_inputs(context, input, work);
    if (weights_.layer == nullptr) {
      work.active = schedule.active;
      work.blocks = weights_.blocks;
      compute(context, input, work);
    } else {
      compute_waves(context, input, work);
    }
    combine(context, input, work, out.f32());
  }

 private:
  // In the order in which experts are there.
  void compute_waves(const RunContext& context, const ExpertsInput& input, Workspace& work) const {
    std::ranges::fill(work.missing, std::uint8_t{1});
    LayerExperts& layer = *weights_.layer;
    layer.begin(work.schedule.active);
    for (work.active = layer.next(context.pool()); !work.active.empty(); work.active = layer.next(context.pool())) {
      work.blocks = layer.blocks();
      for (const std::int32_t expert : work.active) work.missing[static_cast<std::size_t>(expert)] = 0;
      compute(context, input, work);
    }
    for (const std::int32_t expert : work.schedule.active) {
      if (work.missing[static_cast<std::size_t>(expert)] != 0) leave_out(context, input, work, expert);
    }
  }

  // Of an expert that could not be read: its outputs are zero, its tokens have no answer.
  void leave_out(const RunContext& context, const ExpertsInput& input, const Workspace& work,
                 std::int32_t expert) const {
    const auto width = static_cast<std::size_t>(layout_.w2.layout().padded_rows());
    const auto first = static_cast<std::size_t>(work.schedule.offsets[static_cast<std::size_t>(expert)]);
    const auto pairs = static_cast<std::size_t>(tokens_of(work, expert));
    std::ranges::fill(work.y.subspan(first * width, pairs * width), 0.0F);
    if (context.status == nullptr) return;
    for (const std::int32_t pair : work.schedule.pairs.subspan(first, pairs))
      context.status->bad_layer[pair / input.top_k] = DeviceStatus::kUnread;
  }

  // The outputs of work.active.
  void compute(const RunContext& context, const ExpertsInput& input, Workspace& work) const {
    spread(context, work, layout_.w13.layout().panels, kMaxPanels / 2, [&](const PanelRange& range, int thread) {
      for_blocks(
          work, range, layout_.w13, gate_at(work, range.next_expert, range.next_panel),
          [&](BlockRows& rows) { find_w13_rows(work, input, range.expert, thread, rows); },
          [&](const Step& step) { gemm_w13(work, step); });
    });
    prepare_hidden(context, work);
    spread(context, work, layout_.w2.layout().panels, kMaxPanels, [&](const PanelRange& range, int) {
      for_blocks(
          work, range, layout_.w2, down_at(work, range.next_expert, range.next_panel),
          [&](BlockRows& rows) { find_w2_rows(work, range.expert, rows); },
          [&](const Step& step) { gemm_w2(work, step); });
    });
  }

  // None where every pair has its own prepared row, since these lie in order.
  [[nodiscard]] std::int64_t gather_rows(std::int64_t pairs) const {
    if (!layout_.w13.even_rows() || layout_.per_pair) return 0;
    return std::min(pairs, kItemRows) * (layout_.own_up ? 2 : 1);
  }
  // Lays out one call's memory; with a counting arena it tells how much that is.
  Workspace take_workspace(const ExpertSchedule& schedule, std::int64_t tokens, std::int64_t top_k, int threads,
                           BumpArena& arena) const {
    Workspace work;
    work.schedule = schedule;
    work.missing = arena.take<std::uint8_t>(static_cast<std::size_t>(layout_.experts));
    const auto pairs = static_cast<std::size_t>(tokens * top_k);
    const auto rows = static_cast<std::size_t>(layout_.per_pair ? tokens * top_k : tokens);
    work.x = InputRows::take(layout_.w13, rows, arena);
    work.x_up = layout_.own_up ? InputRows::take(layout_.w13, rows, arena) : work.x;
    work.h = arena.take<float>(pairs * static_cast<std::size_t>(layout_.w13.layout().padded_rows()));
    work.h_rows = InputRows::take(layout_.w2, pairs, arena);
    work.y = arena.take<float>(pairs * static_cast<std::size_t>(layout_.w2.layout().padded_rows()));
    work.scratch_stride = std::max(layout_.w13.layout().padded_cols(), layout_.w2.layout().padded_cols());
    work.scratch = arena.take<float>(static_cast<std::size_t>(threads * work.scratch_stride));
    work.gather_rows = gather_rows(tokens * top_k);
    work.gathered = arena.take<std::byte>(static_cast<std::size_t>(threads * work.gather_rows) *
                                          layout_.w13.layout().input_stride());
    return work;
  }

  // Panels of one expert, and the one that the thread will probably read behind them.
  struct PanelRange {
    std::int32_t expert;
    InterleavedPanels panels;
    std::int32_t next_expert;
    std::int64_t next_panel;
  };

  // Shares the panels of all active experts; a range lies in one expert, and is read as up to `most` streams. Experts
  // that meet more tokens than others are cut into shorter ranges.
  template <class Body>
  void spread(const RunContext& context, const Workspace& work, std::int64_t panels, std::int64_t most,
              Body body) const {
    const auto active = narrow<std::int64_t>(work.active.size());
    if (active == 0) return;
    const auto expert_at = [&](std::int64_t index) { return work.active[static_cast<std::size_t>(index / panels)]; };
    const auto all = narrow<std::int64_t>(work.schedule.active.size());
    const std::int64_t mean_cost = panel_cost(narrow<std::int64_t>(work.schedule.pairs.size()) / all);
    const auto longest = [&](std::int64_t begin) {
      const std::int64_t of_cost = panels * mean_cost / panel_cost(tokens_of(work, expert_at(begin)));
      return std::clamp(of_cost, std::int64_t{1}, panels - begin % panels);
    };
    parallel_ranges(context.pool(), active * panels, longest,
                    [&](std::int64_t begin, std::int64_t end, std::int64_t following, int thread) {
                      const std::int32_t expert = expert_at(begin);
                      const std::int64_t streams = layout_.w13.interleaves(tokens_of(work, expert)) ? most : 1;
                      body({.expert = expert,
                            .panels = InterleavedPanels(begin % panels, begin % panels + end - begin, streams),
                            .next_expert = expert_at(following),
                            .next_panel = following % panels},
                           thread);
                    });
  }

  // Of a panel that meets so many tokens, in units of one token's products: reading it costs as much as four.
  static std::int64_t panel_cost(std::int64_t tokens) { return tokens + 4; }

  // Tokens that meet the expert.
  static std::int64_t tokens_of(const Workspace& work, std::int32_t expert) {
    const auto e = static_cast<std::size_t>(expert);
    return work.schedule.offsets[e + 1] - work.schedule.offsets[e];
  }

  void prepare_inputs(const RunContext& context, const ExpertsInput& input, Workspace& work) const {
    const bool per_pair = layout_.per_pair;
    // The forms that some expert of this call asks for.
    bool used[PackedFormat::kMaxForms] = {};
    for (const std::int32_t expert : work.schedule.active) used[layout_.w13.form_of(tokens_of(work, expert))] = true;
    const std::int64_t rows = per_pair ? narrow<std::int64_t>(work.schedule.pairs.size()) : input.tokens;
    context.pool().parallel_for(rows, [&](std::int64_t row, int thread) {
      std::int64_t token = row;
      std::size_t only = PackedFormat::kMaxForms;             // the form, where it follows from the pair
      const ExpertExtras* extras = &weights_.extras.front();  // without per_pair all experts prepare alike
      if (per_pair) {
        const auto pair = static_cast<std::size_t>(work.schedule.pairs[static_cast<std::size_t>(row)]);
        token = narrow<std::int64_t>(pair) / input.top_k;
        extras = &weights_.extras[static_cast<std::size_t>(input.ids[pair])];
        only = layout_.w13.form_of(tokens_of(work, input.ids[pair]));
      }
      const float* x = input.x.f32() + token * layout_.hidden;
      float* scratch = work.scratch.data() + thread * work.scratch_stride;
      for (std::size_t i = 0; i < layout_.w13.forms(); ++i) {
        if (only < PackedFormat::kMaxForms ? only != i : !used[i]) continue;
        const PanelFormat& format = layout_.w13.form(i);
        make_activation_row(kernels_, format, extras->gate, x, scratch, work.x.of[i].row(format, row));
        if (layout_.own_up)
          make_activation_row(kernels_, format, extras->up, x, scratch, work.x_up.of[i].row(format, row));
      }
    });
  }

  // The inputs of some pairs of one expert, in blocks of tokens.
  struct BlockRows {
    BlockRows(std::int64_t first, std::int64_t count) : position(first), blocks(count, kMaxTokens) {}
    std::int64_t position;  // of the first pair
    EqualParts<> blocks;
    TokenBlock gate[kItemBlocks];  // or the inputs of w2
    TokenBlock up[kItemBlocks];    // with own_up only
  };

  // A block of an expert's tokens against some panels.
  struct Step {
    std::int32_t expert;
    std::int64_t position;  // of the first pair
    const TokenBlock& gate;
    const TokenBlock& up;
    PanelGroup panels;
    PanelGroup next;             // to be prefetched, where panels are interleaved
    const std::byte* following;  // as of GemmArgs
  };

  // All tokens of a range's expert, in items that are walked panel by panel.
  template <class FindRows, class Gemm>
  void for_blocks(const Workspace& work, const PanelRange& range, const PackedFormat& matrix,
                  const std::byte* following, const FindRows& find_rows, const Gemm& gemm) const {
    const std::int64_t tokens = tokens_of(work, range.expert);
    const EqualParts<> items(tokens, kItemRows);
    for (std::int64_t item = 0; item < items.size(); ++item) {
      BlockRows rows(work.schedule.offsets[static_cast<std::size_t>(range.expert)] + items.begin(item),
                     items.count(item));
      find_rows(rows);
      for (std::int64_t i = 0; i < range.panels.size(); ++i) {
        const PanelGroup next = matrix.interleaves(tokens) ? range.panels.at(i + 1) : PanelGroup();
        for (std::int64_t block = 0; block < rows.blocks.size(); ++block) {
          gemm({.expert = range.expert,
                .position = rows.position + rows.blocks.begin(block),
                .gate = rows.gate[block],
                .up = rows.up[block],
                .panels = range.panels.at(i),
                .next = next,
                .following = i + 1 == range.panels.size() ? following : nullptr});
        }
      }
    }
  }

  // Gate of the panel, up lies behind it.
  [[nodiscard]] const std::byte* gate_at(const Workspace& work, std::int32_t expert, std::int64_t panel) const {
    return work.blocks[static_cast<std::size_t>(expert)] + static_cast<std::size_t>(panel) * layout_.pair_bytes();
  }
  [[nodiscard]] const std::byte* down_at(const Workspace& work, std::int32_t expert, std::int64_t panel) const {
    return work.blocks[static_cast<std::size_t>(expert)] + layout_.w13_bytes() +
           static_cast<std::size_t>(panel) * layout_.w2.layout().panel_bytes;
  }

  void find_w13_rows(const Workspace& work, const ExpertsInput& input, std::int32_t expert, int thread,
                     BlockRows& rows) const {
    const std::int64_t tokens = tokens_of(work, expert);
    const PanelFormat& format = layout_.w13.of(tokens);
    const std::size_t stride = layout_.w13.layout().input_stride();
    const bool gather = work.gather_rows > 0 && layout_.w13.kernel(tokens).even_rows;
    std::byte* copy = work.gathered.data() + static_cast<std::size_t>(thread * work.gather_rows) * stride;
    const auto add = [&](TokenBlock& block, ActivationRow row) {
      if (gather) {
        std::memcpy(copy, row.x, stride);
        row.x = copy;
        copy += stride;
      }
      block.add(format, row);
    };
    for (std::int64_t block = 0; block < rows.blocks.size(); ++block) {
      for (std::int64_t i = rows.blocks.begin(block); i < rows.blocks.begin(block + 1); ++i) {
        std::int64_t index = rows.position + i;
        if (!layout_.per_pair) index = work.schedule.pairs[static_cast<std::size_t>(index)] / input.top_k;
        add(rows.gate[block], work.x.row(layout_.w13, tokens, index));
        if (layout_.own_up) add(rows.up[block], work.x_up.row(layout_.w13, tokens, index));
      }
    }
  }

  // gate and up of up to two panels, four streams where their inputs are the same, then the activation.
  void gemm_w13(const Workspace& work, const Step& step) const {
    const std::int64_t tokens = tokens_of(work, step.expert);
    const PanelFormat& format = layout_.w13.of(tokens);
    const ExpertExtras& extras = weights_.extras[static_cast<std::size_t>(step.expert)];
    alignas(64) float g[2][kMaxTokens * kPanelRows];
    alignas(64) float u[2][kMaxTokens * kPanelRows];
    float* const h = work.h.data() + step.position * format.padded_rows();
    // What activate() will write is in no cache, if this is a prompt. Not in a function of its own, which GCC 12
    // would take for one without effect.
    for (std::int64_t p = 0; p < step.panels.count; ++p) {
      const float* out = h + step.panels.panel[p] * kPanelRows;
      for (std::int64_t row = 0; row < step.gate.count; ++row, out += format.padded_rows()) {
        for (std::int64_t line = 0; line < kPanelRows; line += 16) __builtin_prefetch(out + line, 1);
      }
    }
    const auto gemm = [&](const TokenBlock& rows, bool gate, bool up) {
      GemmArgs call = rows.call(format);
      for (std::int64_t p = 0; p < step.panels.count; ++p) {
        const std::byte* const at = gate_at(work, step.expert, step.panels.panel[p]);
        if (gate) call.add(at, extras.gate.scale, g[p]);
        if (up) call.add(at + format.panel_bytes, extras.up.scale, u[p]);
      }
      for (std::int64_t p = 0; p < step.next.count; ++p) {
        const std::byte* const at = gate_at(work, step.expert, step.next.panel[p]);
        if (gate) call.next[call.next_count++] = at;
        if (up) call.next[call.next_count++] = at + format.panel_bytes;
      }
      if (up || !layout_.gated) call.following = step.following;
      layout_.w13.kernel(tokens).run(call);
    };
    gemm(step.gate, true, layout_.gated && !layout_.own_up);
    if (layout_.own_up) gemm(step.up, false, true);
    for (std::int64_t p = 0; p < step.panels.count; ++p) {
      const std::int64_t first = step.panels.panel[p] * kPanelRows;
      ActivationArgs activation{.spec = activation_};
      activation.up = layout_.gated ? u[p] : g[p];
      activation.gate = fault(KernelFault::up_used_for_gate) ? activation.up : g[p];
      activation.gate_bias = extras.gate.bias_at(first);
      activation.up_bias = extras.up.bias_at(first);
      activation.out = h + first;
      activation.rows = step.gate.count;
      activation.out_stride = format.padded_rows();
      kernels_.activate(activation);
    }
  }

  void prepare_hidden(const RunContext& context, Workspace& work) const {
    const auto active = narrow<std::int64_t>(work.active.size());
    const PanelFormat& w13 = layout_.w13.layout();
    const std::int64_t stride = fault(KernelFault::padded_rows_leaked) ? w13.rows : w13.padded_rows();
    context.pool().parallel_for(active, [&](std::int64_t item, int thread) {
      const std::int32_t expert = work.active[static_cast<std::size_t>(item)];
      const auto e = static_cast<std::size_t>(expert);
      const std::int64_t tokens = tokens_of(work, expert);
      for (std::int64_t row = work.schedule.offsets[e]; row < work.schedule.offsets[e + 1]; ++row) {
        make_activation_row(kernels_, layout_.w2.of(tokens), weights_.extras[e].down, work.h.data() + row * stride,
                            work.scratch.data() + thread * work.scratch_stride,
                            work.h_rows.row(layout_.w2, tokens, row));
      }
    });
  }

  void find_w2_rows(const Workspace& work, std::int32_t expert, BlockRows& rows) const {
    const std::int64_t tokens = tokens_of(work, expert);
    for (std::int64_t block = 0; block < rows.blocks.size(); ++block) {
      for (std::int64_t i = rows.blocks.begin(block); i < rows.blocks.begin(block + 1); ++i)
        rows.gate[block].add(layout_.w2.of(tokens), work.h_rows.row(layout_.w2, tokens, rows.position + i));
    }
  }

  void gemm_w2(const Workspace& work, const Step& step) const {
    const std::int64_t tokens = tokens_of(work, step.expert);
    const PanelFormat& format = layout_.w2.of(tokens);
    const MatrixExtras& extras = weights_.extras[static_cast<std::size_t>(step.expert)].down;
    float* const y = work.y.data() + step.position * format.padded_rows();
    GemmArgs call = step.gate.call(format);
    call.out_stride = format.padded_rows();
    for (std::int64_t p = 0; p < step.panels.count; ++p)
      call.add(down_at(work, step.expert, step.panels.panel[p]), extras.scale, y + step.panels.panel[p] * kPanelRows);
    for (std::int64_t p = 0; p < step.next.count; ++p)
      call.next[call.next_count++] = down_at(work, step.expert, step.next.panel[p]);
    call.following = step.following;
    layout_.w2.kernel(tokens).run(call);
    for (std::int64_t p = 0; !extras.bias.empty() && p < step.panels.count; ++p)
      add_bias(extras.bias_at(step.panels.panel[p] * kPanelRows), step.gate.count, call.out[p], call.out_stride);
  }

  static void add_bias(const float* bias, std::int64_t rows, float* values, std::int64_t stride) {
    for (std::int64_t row = 0; row < rows; ++row, values += stride) {
      for (std::int64_t i = 0; i < kPanelRows; ++i) values[i] += bias[i];
    }
  }

  // Sums a token's choices in the order of its choices, whatever the schedule was.
  void combine(const RunContext& context, const ExpertsInput& input, const Workspace& work, float* out) const {
    context.pool().parallel_for(input.tokens, [&](std::int64_t token, int) {
      const float* rows[kMaxChoices];
      float weights[kMaxChoices];
      std::int64_t count = 0;
      for (std::int64_t j = 0; j < input.top_k; ++j) {
        const auto pair = static_cast<std::size_t>(token * input.top_k + j);
        const std::int64_t position = work.schedule.inverse[pair];
        if (position < 0) continue;
        rows[count] = work.y.data() + position * layout_.w2.layout().padded_rows();
        weights[count++] = input.weights[pair];
      }
      kernels_.weighted_sum(rows, weights, count, out + token * layout_.hidden, layout_.hidden);
    });
  }

  const ActivationKernels& kernels_;
  Layout layout_;
  ActivationSpec activation_;
  PackedWeights weights_;
};

ExpertExtras expert_extras(const CanonicalExperts::Expert& expert) {
  ExpertExtras extras{.gate = MatrixExtras::of(expert.gate), .up = {}, .down = MatrixExtras::of(expert.down)};
  if (expert.gated()) extras.up = MatrixExtras::of(expert.up);
  if (fault(KernelFault::second_level_scale_dropped)) extras.down.scale = 1.0F;
  if (fault(KernelFault::w2_input_scale_of_w13)) extras.down.input_scale = expert.gate.input_scale;
  return extras;
}

// Panels of a matrix that a part of its expert's block has.
std::pair<std::int64_t, std::int64_t> panels_of(std::int64_t panels, const BlockPart& part) {
  return {panels * part.index / part.count, panels * (part.index + 1) / part.count};
}

// Into zeroed memory.
Result<> pack_expert(const CanonicalExperts::Expert& expert, const Layout& layout, const ExpertExtras& extras,
                     std::byte* memory, PackScratch& scratch, const BlockPart& part = {}) {
  const PanelFormat& w13 = layout.w13.layout();
  const PanelFormat& w2 = layout.w2.layout();
  const std::size_t pair = layout.pair_bytes();
  const std::int64_t step = panels_per_fetch(*expert.gate.weight, w13, extras.gate.order);
  const auto [begin, end] = panels_of(w13.panels, part);
  for (std::int64_t first = begin; first < end; first += step) {
    const std::int64_t last = std::min(first + step, end);
    std::byte* const gate = memory + static_cast<std::size_t>(first) * pair;
    MORACLE_TRY(pack_panels(*expert.gate.weight, w13, extras.gate.order, first, last, gate, pair, scratch));
    if (!layout.gated) continue;
    MORACLE_TRY(
        pack_panels(*expert.up.weight, w13, extras.up.order, first, last, gate + w13.panel_bytes, pair, scratch));
  }
  const auto [down, down_end] = panels_of(w2.panels, part);
  return pack_panels(*expert.down.weight, w2, extras.down.order, down, down_end,
                     memory + layout.w13_bytes() + static_cast<std::size_t>(down) * w2.panel_bytes, w2.panel_bytes,
                     scratch);
}

// What a part of a block has, of weights that were there before.
void clear(const Layout& layout, std::byte* memory, const BlockPart& part) {
  const PanelFormat& w13 = layout.w13.layout();
  const PanelFormat& w2 = layout.w2.layout();
  const auto [begin, end] = panels_of(w13.panels, part);
  const std::size_t pair = layout.pair_bytes();
  std::memset(memory + static_cast<std::size_t>(begin) * pair, 0, static_cast<std::size_t>(end - begin) * pair);
  const auto [down, down_end] = panels_of(w2.panels, part);
  std::memset(memory + layout.w13_bytes() + static_cast<std::size_t>(down) * w2.panel_bytes, 0,
              static_cast<std::size_t>(down_end - down) * w2.panel_bytes);
}

Result<> pack_all(const CanonicalExperts& experts, const Layout& layout, ThreadPool& pool, PackedWeights& weights) {
  MORACLE_ASSIGN(weights.memory, PageBuffer::allocate(layout.bytes()));
  weights.extras.resize(experts.experts.size());
  for (std::size_t e = 0; e < experts.experts.size(); ++e)
    weights.blocks.push_back(weights.memory.data() + e * layout.expert_bytes());
  std::vector<PackScratch> scratch(static_cast<std::size_t>(pool.threads()));
  HostSink sink(weights.memory.data());
  const auto write = [&](std::int64_t e, std::span<std::byte> block, int worker) -> Result<> {
    const auto at = static_cast<std::size_t>(e);
    const CanonicalExperts::Expert& expert = experts.experts[at];
    weights.extras[at] = expert_extras(expert);
    MORACLE_TRY(
        pack_expert(expert, layout, weights.extras[at], block.data(), scratch[static_cast<std::size_t>(worker)]));
    for (const CanonicalLinear* linear : matrices_of(expert)) linear->weight->release();
    return Ok{};
  };
  return write_blocks(sink, pool, layout.experts, layout.expert_bytes(), write);
}

// A pack of one expert begins with new scratch, which knows nothing of bytes that were at its addresses before.
Result<> add_to(ExpertStore& store, const CanonicalExperts& experts, const Layout& layout, PackedWeights& weights) {
  for (const auto& expert : experts.experts) weights.extras.push_back(expert_extras(expert));
  const auto pack = [layout, extras = weights.extras](std::int64_t e, const CanonicalExperts::Expert& stored,
                                                      std::span<std::byte> block, const BlockPart& part) -> Result<> {
    PackScratch scratch;
    clear(layout, block.data(), part);
    return pack_expert(stored, layout, extras[static_cast<std::size_t>(e)], block.data(), scratch, part);
  };
  MORACLE_ASSIGN(weights.layer, store.add(experts, layout.expert_bytes(), pack));
  return Ok{};
}

}  // namespace

Result<std::unique_ptr<PackedExperts>> pack_experts(const Target& target, Numerics numerics,
                                                    const CanonicalExperts& experts, const PackOptions& options) {
  if (std::ranges::count(kPanelActivations, options.activation.fn) == 0)
    return Error{.code = "kernel.activation",
                 .wanted = "silu, gelu_tanh, swigluoai, swiglustep or relu2_no_mul",
                 .found = std::string(to_string(options.activation.fn))};
  Layout layout;
  layout.experts = narrow<std::int64_t>(experts.experts.size());
  layout.hidden = experts.hidden;
  MORACLE_ASSIGN(layout.w13, packed_format(experts.experts.front().gate, target, numerics));
  MORACLE_ASSIGN(layout.w2, packed_format(experts.experts.front().down, target, numerics));
  const auto& first = experts.experts.front();
  layout.gated = first.gated();
  for (const auto& expert : experts.experts) {
    const auto& gate = expert.gate.weight->spec().g_idx;
    layout.per_pair = layout.per_pair || !gate.empty() || expert.gate.input_scale != first.gate.input_scale;
    if (!layout.gated) continue;
    const auto& up = expert.up.weight->spec().g_idx;
    layout.own_up = layout.own_up || gate != up || expert.gate.input_scale != expert.up.input_scale;
    layout.per_pair = layout.per_pair || !up.empty() || expert.up.input_scale != first.up.input_scale;
  }
  PackedWeights weights;
  if (options.store != nullptr) {
    MORACLE_TRY(add_to(*options.store, experts, layout, weights));
  } else if (!options.layout_only) {
    MORACLE_TRY(pack_all(experts, layout, options.pool, weights));
  }
  return std::unique_ptr<PackedExperts>(
      std::make_unique<CpuExperts>(target, layout, options.activation, std::move(weights)));
}

}  // namespace moracle::cpu
