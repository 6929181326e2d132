#include "kernels/cpu/multiply_rows.h"

#include "base/checked.h"

namespace moracle::cpu {

namespace {

// What the work on one panel of a set asks for: its share of each panel of the next set.
struct Ahead {
  const std::byte* places[kAhead];

  Ahead(const PanelFormat& format, const PanelSet& set, std::int64_t panel) {
    const std::int64_t share = narrow<std::int64_t>(format.panel_bytes) / set.count / 64 * 64;
    for (std::int64_t i = 0; i < kAhead; ++i) places[i] = set.ahead[i % set.ahead_count] + panel * share;
  }
};

// The panel to be read behind panel p of a set: null where it follows in memory.
const std::byte* after(const PanelSet& set, std::int64_t p) {
  return p + 1 == set.count ? set.after : nullptr;
}

// Panels of a set from `first` on, as many as `multiply` takes, against the tokens of `args`, which are those of the
// set from `first_token` on.
void multiply_panels(const PanelFormat& format, const PanelSet& set, std::int64_t first, PanelMultiply multiply,
                     std::int64_t first_token, PanelArgs& args) {
  float* out[kMaxPanels];
  for (std::int64_t p = first; p < set.count; ++p) out[p - first] = set.out[p] + first_token * set.out_stride;
  args.panels = set.panels + first;
  args.panel_scale = set.scale + first;
  args.out = out;
  args.again = first_token != 0;
  args.ahead = nullptr;
  const std::byte* const next = after(set, first);
  args.end = set.panels[first] + format.panel_bytes;
  args.gap = next != nullptr ? next - args.end : 0;
  if (set.ahead_count == 0 || args.again) {
    multiply(args);
    return;
  }
  const Ahead ahead(format, set, first);
  args.ahead = ahead.places;
  multiply(args);
}

// How the tiles that meet a panel share the asking for the next one: the first nothing, the others as much each.
class NextShares {
 public:
  NextShares(const PanelFormat& format, std::int64_t tiles)
      : panel_bytes_(narrow<std::int64_t>(format.panel_bytes)),
        bytes_(tiles > 1 ? panel_bytes_ / (tiles - 1) / kLine * kLine : 0),
        share_(tiles > 1 ? (std::int64_t{1} << kNextBits) / (tiles - 1) + 1 : 0) {}

  void ask(const PanelSet& set, std::int64_t p, std::int64_t tile, PanelArgs& args) const {
    if (tile == 0) return;
    const std::byte* const next = after(set, p);
    args.next = (next != nullptr ? next : set.panels[p] + panel_bytes_) + bytes_ * (tile - 1);
    args.next_share = share_;
  }

 private:
  static constexpr std::int64_t kLine = 64;
  std::int64_t panel_bytes_;
  std::int64_t bytes_;
  std::int64_t share_;
};

// Panel by panel, or, where several are read at once, all of them with each tile.
void multiply_tiles(const PanelFormat& format, const PanelSet& set, PanelArgs args) {
  const PanelArgs all = args;
  const bool several = format.interleaves(all.tokens);
  const Parts tiles(all.tokens, format.kernels->tile_tokens);
  const std::int64_t together = several ? set.count : 1;
  const NextShares next(format, tiles.size());
  for (std::int64_t begin = 0; begin < set.count; begin += together) {
    for (std::int64_t i = 0; i < tiles.size(); ++i) {
      const std::int64_t first = tiles.begin(i);
      args.tokens = tiles.begin(i + 1) - first;
      args.x = all.x + first;
      args.sums = all.sums + first;
      args.input_scales = all.input_scales + first;
      args.token_scale = all.token_scale + first;
      const auto tile = static_cast<std::size_t>(args.tokens - 1);
      if (!several) {
        next.ask(set, begin, i, args);
        multiply_panels(format, set, begin, format.tiles->one[tile], first, args);
        continue;
      }
      const PanelMultiply wide = args.tokens <= kWideTiles ? format.tiles->wide[tile] : nullptr;
      std::int64_t panel = 0;
      if (wide != nullptr) {
        const std::int64_t width = format.wide_panels[tile];
        for (; panel + width <= set.count; panel += width) multiply_panels(format, set, panel, wide, first, args);
      }
      for (; panel < set.count; ++panel) multiply_panels(format, set, panel, format.tiles->one[tile], first, args);
    }
  }
}

}  // namespace

bool runs_from(const PanelFormat& format, std::int64_t rows) {
  const CodeKernels& kernels = *format.kernels;
  if (kernels.run == nullptr) return false;
  const bool short_groups = kernels.short_run_from > 0 && format.group_cols <= kShortGroup;
  return rows >= (short_groups ? kernels.short_run_from : kernels.run_from);
}

namespace {

float token_scale_of(const PanelFormat& format, const PreparedRow& row) {
  switch (format.input_scaling()) {
    case InputScaling::running:
      return row.scales[format.running_scales()];
    case InputScaling::of_token:
      return format.activation ? row.scales[0] : 1.0F;
    case InputScaling::of_group:
      break;
  }
  return 1.0F;
}

}  // namespace

void RunRows::add(const PanelFormat& format, const PreparedRow& row) {
  x[count] = row.x;
  sums[count] = row.sums;
  scales[count] = row.scales;
  token_scale[count++] = token_scale_of(format, row);
}

void multiply_rows(const PanelFormat& format, const RunRows& rows, const PanelSet& set) {
  PanelArgs args{.tokens = rows.count,
                 .x = rows.x,
                 .sums = rows.sums,
                 .input_scales = rows.scales,
                 .scale_groups = format.own_group_cols / format.group_cols,
                 .panels = nullptr,
                 .groups = format.groups,
                 .steps = format.steps,
                 .last_steps = format.last_steps,
                 .scale = format.scale,
                 .zeros = format.zeros,
                 .scaled = format.input_scaling() == InputScaling::of_group,
                 .panel_scale = nullptr,
                 .token_scale = rows.token_scale,
                 .ahead = nullptr,
                 .end = nullptr,
                 .gap = 0,
                 .again = false,
                 .next = nullptr,
                 .next_share = 0,
                 .out = nullptr,
                 .out_stride = set.out_stride};
  if (runs_from(format, args.tokens)) {
    for (std::int64_t p = 0; p < set.count; ++p) multiply_panels(format, set, p, format.kernels->run, 0, args);
  } else {
    multiply_tiles(format, set, args);
  }
}

}  // namespace moracle::cpu
