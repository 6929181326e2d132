// Tiles of forms whose products are summed up in 16 bits, block by block (Blocked). Ends of short groups are cheaper: a
// sum begins as its first product and gets its start last, and scales change before a group.
// Such a form adds kBlockSteps, the steps of a block; multiply(weight, broadcast), the first product; add(sum, sum);
// start(sums, token, block), what a block's sum is increased by; widened(sum), 32 bits of it.
#pragma once

#include <type_traits>

#include "kernels/cpu/gemm/tile-inl.h"

namespace moracle::cpu {

// T tokens times registers [first, first + Rows) of each of P panels. OneBlock: no group has more steps than a block.
// Steps: of every block, or 0 where they differ.
template <class D, int T, int P, int Rows, ActScaling Scaling, bool Zeros, bool OneBlock, int Steps>
[[gnu::always_inline]] inline void gemm_blocks(const TileArgs& args, int first) {
  using Form = typename D::Form;
  using V = typename Form::V;
  using Reg = typename V::Reg;
  using Sums = typename Form::Sums;
  constexpr int kRows = P * Rows;
  constexpr int kParts = V::kRegs / Rows;
  constexpr bool kTotalsWait = 2 * T * kRows > V::kRegisters - 6;  // in memory while a group is summed up
  Reg total[T][kRows];
  for_sums<T, kRows>([&](int t, int r) __attribute__((always_inline)) { total[t][r] = V::zero(); });
  typename Sums::Sum before[T][kRows];  // the group's earlier blocks
  const typename Form::Input* x[T];
  for (int t = 0; t < T; ++t) x[t] = static_cast<const typename Form::Input*>(args.x[t]);
  const std::byte* at[P];
  for (int p = 0; p < P; ++p) at[p] = args.panels[p];
  const std::int64_t offset = first * std::int64_t{kRegBytes<V>};
  const std::int64_t scale_bytes = kPanelRows * cpu::scale_bytes(args.shape.scale);
  const std::int64_t tail_bytes = scale_bytes + (Zeros ? kPanelRows : 0);
  [[maybe_unused]] const std::byte* line = EvenPrefetch<V>::template of<D>(args, tail_bytes, first, Rows).from;
  const D decoder;
  std::int64_t column = 0;
  std::int64_t block = Zeros ? args.shape.groups : 0;  // its place in args.sums
  [[maybe_unused]] std::int64_t input_scale = 0;
  [[maybe_unused]] std::int64_t left_of_scale = args.shape.scale_groups + 1;
  for (std::int64_t g = 0; g < args.shape.groups; ++g) {
    if constexpr (Scaling == ActScaling::running) {
      if (--left_of_scale == 0) {
        left_of_scale = args.shape.scale_groups;
        change_scale<V>(total, args.input_scales, ++input_scale);
      }
    }
    if constexpr (kTotalsWait) __asm__ volatile("" : : "r"(&total) : "memory");
    typename Form::Sum sum[T][kRows];
    const auto gemm_step = [&](auto begins) __attribute__((always_inline)) {
      if constexpr (kParts == 1) {
        Prefetch<V>::panels(args, at, D::kBytes, kPrefetchBytes);
      }
#pragma GCC unroll 8
      for (int k = 0; k < kSlots<Form>; ++k) {  // each broadcast serves all rows and dies
        typename Form::Weight w[kRows];
        // Loads are made again for every slot: kept, they would be spilled.
#pragma GCC unroll 4
        for (int p = 0; p < P; ++p) __asm__("" : "+r"(at[p]));
#pragma GCC unroll 8
        for (int r = 0; r < kRows; ++r) w[r] = decoder.weight(at[r / Rows] + offset, k, r % Rows);
#pragma GCC unroll 6
        for (int t = 0; t < T; ++t) {
          const auto value = Form::broadcast(x[t] + column + k * Form::kWidth);
#pragma GCC unroll 8
          for (int r = 0; r < kRows; ++r) {
            sum[t][r] = begins && k == 0 ? Form::multiply(w[r], value) : Form::madd(w[r], value, sum[t][r]);
          }
        }
      }
      for (int p = 0; p < P; ++p) at[p] += D::kBytes;
      column += kStepColumns;
    };
    std::int64_t left = g + 1 == args.shape.groups ? args.shape.last_steps : args.shape.steps;
    bool more = false;  // blocks than the last
    while (true) {
      const std::int64_t steps = OneBlock || left < Form::kBlockSteps ? left : Form::kBlockSteps;
      left -= steps;
      if (kParts > 1 && !args.prefetch.cached) {
        for (std::int64_t s = 0; s < steps; ++s, line += D::kBytes / kParts) Prefetch<V>::l2(line);
      }
      gemm_step(std::true_type{});
      // Without the barrier GCC loads for several steps at a time, and spills what it has no registers for.
      const auto further_step = [&]() __attribute__((always_inline)) {
        __asm__ volatile("" : "+r"(column));
        gemm_step(std::false_type{});
      };
      if constexpr (Steps > 0) {
#pragma GCC unroll 8
        for (int s = 1; s < Steps; ++s) further_step();
      } else {
#pragma GCC unroll 1
        for (std::int64_t s = 1; s < steps; ++s) gemm_step(std::false_type{});
      }
      for_sums<T, kRows>([&](int t, int r) __attribute__((always_inline)) {
        sum[t][r] = Form::add(sum[t][r], Form::start(args.sums, t, block));
      });
      ++block;
      if (OneBlock || left == 0) break;
      for_sums<T, kRows>([&](int t, int r) __attribute__((always_inline)) {
        before[t][r] = more ? Sums::add(before[t][r], Form::widened(sum[t][r])) : Form::widened(sum[t][r]);
      });
      if constexpr (kTotalsWait) __asm__ volatile("" : : "r"(&before) : "memory");
      more = true;
    }
    const auto end_group = [&](auto has_more) __attribute__((always_inline)) {
      add_group<D, T, P, Rows, Scaling, Zeros, kTotalsWait>(args, total, at, first, g, scale_bytes, [&](int t, int r) {
        const auto last = Form::widened(sum[t][r]);
        if constexpr (has_more) return Sums::add(last, before[t][r]);
        return last;
      });
    };
    if (!OneBlock && more) {
      end_group(std::true_type{});
    } else {
      end_group(std::false_type{});
    }
    if constexpr (kParts > 1) line += tail_bytes / kParts;
    for (int p = 0; p < P; ++p) at[p] += tail_bytes;
  }
  store_totals<D, T, P, Rows>(args, total, at, first);
}

// gemm_blocks with its number of steps where that is one of the usual: all blocks are whole, or groups have 32
// columns.
template <class D, int T, int P, int Rows, ActScaling Scaling, bool Zeros>
[[gnu::always_inline]] inline void gemm_blocked(const TileArgs& args, int first) {
  constexpr int kBlock = D::Form::kBlockSteps;
  constexpr int kShort = 32 / kStepColumns;
  if (args.shape.steps > kBlock) {
    if (args.shape.steps % kBlock == 0 && args.shape.last_steps % kBlock == 0) {
      gemm_blocks<D, T, P, Rows, Scaling, Zeros, false, kBlock>(args, first);
    } else {
      gemm_blocks<D, T, P, Rows, Scaling, Zeros, false, 0>(args, first);
    }
  } else if (args.shape.steps == kShort && args.shape.last_steps == kShort) {
    gemm_blocks<D, T, P, Rows, Scaling, Zeros, true, kShort>(args, first);
  } else {
    gemm_blocks<D, T, P, Rows, Scaling, Zeros, true, 0>(args, first);
  }
}

}  // namespace moracle::cpu
