// Tiles of 1 to 6 tokens by 32 rows: the algorithm of all panel kernels, on the SIMD vocabulary V of a target
// (simd/avx512.h).
//
// A form says how decoded weights meet activations: kAct, Input (element of an activation row), Weight (a register of
// decoded weights), Sum (a register of running sums), kWidth columns a lane, broadcast(x), madd(weight, broadcast,
// sum), load and store of a Weight, Sums (sums-inl.h). A form with kPlanes has rows of several planes, each with a
// chain of sums of its own.
//
// A decoder D of a code: Form, kBytes of one step of 8 columns, kOffset of codes under scales, kUnit of the numbers it
// decodes to, and weight(step, k, r), the columns k * kWidth .. of register r's rows. A decoder that is fast for most
// codes but not right for all has plain(step), whether it is right for a step, and Careful, the decoder for the others.
//
// Sums run in one order whatever the tile: per group, kChains chains that take the slots of a step in turn, added in
// order at its end. So a token's result depends neither on the tokens beside it nor on the tile that served it.
#pragma once

#include "kernels/cpu/gemm/prefetch-inl.h"
#include "kernels/cpu/gemm/sums-inl.h"

namespace moracle::cpu {

// Weights widened to f32, one column a register.
template <class Simd>
struct F32Form {
  using V = Simd;
  using Sums = FloatSums<V>;
  using Input = float;
  using Weight = typename V::Reg;
  using Sum = typename V::Reg;
  static constexpr ActDtype kAct = ActDtype::f32;
  static constexpr int kWidth = 1;
  static constexpr int chains(int) { return V::kChains; }
  static Weight broadcast(const float* x) { return V::set1(*x); }
  static float number(float x) { return x; }
  static Sum madd(Weight w, Weight x, Sum sum) { return V::add_product(w, x, sum); }
  static Weight load(const std::byte* p) { return V::load(reinterpret_cast<const float*>(p)); }
  static void store(std::byte* p, Weight w) { V::store(reinterpret_cast<float*>(p), w); }
};

// Integer codes, as many columns a lane as it has room for; what is added is Sums, kAct and madd().
template <class Simd, class Code>
struct IntegerForm {
  using V = Simd;
  using Input = Code;
  using Weight = typename V::Int;
  using Sum = typename V::Int;
  static constexpr int kWidth = 4 / static_cast<int>(sizeof(Code));
  static constexpr int chains(int) { return 1; }
  static Weight broadcast(const Code* x) { return V::broadcast_lane(x); }
  static Weight load(const std::byte* p) { return V::load_int(p); }
  static void store(std::byte* p, Weight w) { V::store_int(p, w); }
};

// Bytes under split int16 activations: two planes, high bytes and low ones.
template <class ByteForm>
struct SplitForm : ByteForm {
  using Sums = SplitSums<typename ByteForm::V, typename ByteForm::Sums>;
  static constexpr ActDtype kAct = ActDtype::split_i16;
  static constexpr int kPlanes = 2;
};
// The codes of D so.
template <class D>
struct Split : D {
  using Form = SplitForm<typename D::Form>;
};

template <class V>
constexpr int kRegBytes = static_cast<int>(sizeof(typename V::Reg));

// Registers of decoded weights per step and register of rows.
template <class Form>
constexpr int kSlots = static_cast<int>(kStepColumns) / Form::kWidth;

// Steps between two looks at the loop and at what to prefetch: products of bytes are so many at a time that both show.
template <class Form>
constexpr int kUnrolledSteps = Form::kWidth == 4 ? 2 : 1;
template <int Count>
struct Steps {};

template <class V>
inline typename V::Reg load_scale(ScaleCode code, const std::byte* scales, int reg) {
  if (code == ScaleCode::f16) return V::load_f16(scales + reg * V::kLanes * 2);
  if (code == ScaleCode::bf16) return V::load_bf16(scales + reg * V::kLanes * 2);
  if (code == ScaleCode::e4m3) return V::load_e4m3(scales + reg * V::kLanes);
  if (code == ScaleCode::e8m0) return V::load_e8m0(scales + reg * V::kLanes);
  return V::load(reinterpret_cast<const float*>(scales) + reg * V::kLanes);
}

// Codes whose groups have scales; the others are one group.
template <class D>
concept Scaled = requires { D::kOffset; };

template <class D>
concept Guarded = requires { typename D::Careful; };

// Calls body(decoder), with the decoder that is right for this step.
template <class D, class Body>
inline void decoding(const D& decoder, const std::byte* step, const Body& body) {
  if constexpr (Guarded<D>) {
    if (!decoder.plain(step)) [[unlikely]] {
      body(typename D::Careful{});
      return;
    }
  }
  body(decoder);
}

// A code whose panels end with a factor and with weights that its steps do not hold (Bf16x12Tail).
template <class D>
concept WithExceptions = requires { D::kExceptions; };

// Adds the exceptions of a panel to the finished rows of so many tokens.
template <class Form>
inline void add_exceptions(const TileArgs& args, const Bf16x12Tail& tail, int p, std::int64_t tokens) {
  for (std::uint32_t i = 0; i < tail.count; ++i) {
    const Bf16x12Tail::Exception& exception = tail.exceptions[i];
    const auto bits = static_cast<std::uint32_t>(exception.weight) << 16U;
    const float weight = __builtin_bit_cast(float, bits) * args.panel_scale[p];
    float* out = args.out[p] + exception.row;
    const float* const scales = args.token_scale;
    const std::int64_t stride = args.out_stride;
    const void* const* const x = args.x;
    for (std::int64_t t = 0; t < tokens; ++t, out += stride) {
      *out += weight * Form::number(static_cast<const typename Form::Input*>(x[t])[exception.column]) * scales[t];
    }
  }
}

// A form whose sums hold no more than kBlockSteps steps, which blocked-inl.h multiplies.
template <class Form>
concept Blocked = requires { Form::kBlockSteps; };

template <class Form>
constexpr int planes_of() {
  if constexpr (requires { Form::kPlanes; }) return Form::kPlanes;
  return 1;
}

// Bytes from one plane of an activation row to the next.
template <class V>
inline std::int64_t plane_bytes(const TileArgs& args) {
  constexpr std::int64_t kLine = 64;
  const std::int64_t columns = ((args.shape.groups - 1) * args.shape.steps + args.shape.last_steps) * kStepColumns;
  return (columns + kLine - 1) / kLine * kLine;
}

// Calls body(t, r) for T tokens by R registers of rows.
template <int T, int R, class Body>
[[gnu::always_inline]] inline void for_sums(const Body& body) {
#pragma GCC unroll 6
  for (int t = 0; t < T; ++t)
#pragma GCC unroll 8
    for (int r = 0; r < R; ++r) body(t, r);
}

// Sums of T tokens by R registers of rows.
template <class Form, int T, int R>
struct Accumulators {
  static constexpr int kPlanes = planes_of<Form>();
  static constexpr int kChains = kPlanes > 1 ? kPlanes : Form::chains(T);
  typename Form::Sum value[T][R][kChains];

  // That the products of weights k of a step join.
  static constexpr int chain(int k, int plane) { return kPlanes > 1 ? plane : k % kChains; }

  typename Form::Sum sum(int t, int r) const {
    if constexpr (kChains == 2) return Form::Sums::joined(value[t][r][0], value[t][r][1]);
    return value[t][r][0];
  }
};

// Registers of rows that a tile of T tokens takes at a time: as many as leave four registers beside sums and weights.
// Where these are fewer than a panel has, a tile walks the panel once for each part of its rows.
template <class Form, int T>
constexpr int kRowsAtATime = [] {
  using V = typename Form::V;
  int rows = V::kRegs;
  while ((T * Accumulators<Form, T, 1>::kChains + 1) * rows > V::kRegisters - 4) rows /= 2;
  return rows;
}();

// Totals in units of the next scale of the activations.
template <class V, int T, int R>
[[gnu::always_inline]] inline void change_scale(typename V::Reg (&total)[T][R], const float* const* scales,
                                                std::int64_t index) {
#pragma GCC unroll 6
  for (int t = 0; t < T; ++t) {
    const auto change = V::set1(scales[t][index]);
#pragma GCC unroll 8
    for (int r = 0; r < R; ++r) total[t][r] = V::mul(total[t][r], change);
  }
}

// Adds group g to the totals of T tokens by registers [first, first + Rows) of each of P panels, whose group ends at
// `tails`. sum_of(t, r): of the group's products.
template <class D, int T, int P, int Rows, ActScaling Scaling, bool Zeros, bool TotalsWait, class SumOf>
[[gnu::always_inline]] inline void add_group(const TileArgs& args, typename D::Form::V::Reg (&total)[T][P * Rows],
                                             const std::byte* const (&tails)[P], int first, std::int64_t g,
                                             std::int64_t scale_bytes, const SumOf& sum_of) {
  using V = typename D::Form::V;
  using Sums = typename D::Form::Sums;
#pragma GCC unroll 8
  for (int r = 0; r < P * Rows; ++r) {
    const std::byte* const tail = tails[r / Rows];
    const int reg = first + r % Rows;
    const auto scale = load_scale<V>(args.shape.scale, tail, reg);
#pragma GCC unroll 6
    for (int t = 0; t < T; ++t) {
      auto sum = sum_of(t, r);
      if constexpr (Zeros) {
        const auto shift = Sums::shift(tail + scale_bytes + reg * V::kLanes, D::kOffset);
        sum = Sums::shifted(sum, shift, args.sums, t, g);
      }
      auto value = Sums::number(sum);
      if constexpr (Scaling == ActScaling::per_group) value = V::mul(value, V::set1(args.input_scales[t][g]));
      if constexpr (TotalsWait) total[t][r] = V::fma_of_memory(value, scale, total[t][r]);
      if constexpr (!TotalsWait) total[t][r] = V::fma(value, scale, total[t][r]);
    }
  }
}

// Writes the totals, in the units of the result. The panels end at `ends`.
template <class D, int T, int P, int Rows>
[[gnu::always_inline]] inline void store_totals(const TileArgs& args, typename D::Form::V::Reg (&total)[T][P * Rows],
                                                const std::byte* const (&ends)[P], int first) {
  using V = typename D::Form::V;
  for_sums<T, P * Rows>([&](int t, int r) __attribute__((always_inline)) {
    const int p = r / Rows;
    float factor = D::kUnit * (args.panel_scale[p] * args.token_scale[t]);
    if constexpr (WithExceptions<D>) factor *= reinterpret_cast<const Bf16x12Tail*>(ends[p])->factor;
    V::store(args.out[p] + t * args.out_stride + (first + r % Rows) * V::kLanes, V::mul(total[t][r], V::set1(factor)));
  });
}

// Calls body(Tokens<tokens>()), of kFirst to kLast tokens.
template <int kCount>
struct Tokens {};
template <int kFirst, int kLast, class Body>
inline void with_tokens(std::int64_t tokens, const Body& body) {
  if constexpr (kFirst == kLast) {
    body(Tokens<kFirst>());
  } else {
    tokens == kFirst ? body(Tokens<kFirst>()) : with_tokens<kFirst + 1, kLast>(tokens, body);
  }
}

// T tokens times registers [first, first + Rows) of each of P panels. Several panels are several streams from memory,
// which some memory systems deliver faster than one; the sums are the same.
template <class D, int T, int P, int Rows, ActScaling Scaling, bool Zeros, bool Grouped>
[[gnu::always_inline]] inline void gemm_part(const TileArgs& args, int first) {
  using Form = typename D::Form;
  using V = typename Form::V;
  using Reg = typename V::Reg;
  using Sums = typename Form::Sums;
  constexpr int kRows = P * Rows;                    // registers of rows
  constexpr int kSharedPanels = Guarded<D> ? 1 : P;  // panels whose steps one decoder serves
  static_assert(P == 1 || P == 2 || P == 4);
  // Where sums and totals do not fit the registers together, totals wait in memory while a group is summed up.
  constexpr int kSums = T * kRows * Accumulators<Form, T, kRows>::kChains;
  constexpr bool kTotalsWait = kSums + T * kRows > V::kRegisters - 6;
  Reg total[T][kRows];
  for_sums<T, kRows>([&](int t, int r) __attribute__((always_inline)) { total[t][r] = V::zero(); });
  const typename Form::Input* x[T];
  for (int t = 0; t < T; ++t) x[t] = static_cast<const typename Form::Input*>(args.x[t]);
  const std::byte* at[P];
  for (int p = 0; p < P; ++p) at[p] = args.panels[p];
  // Of the first register of rows, from that of the panel's first row on.
  const std::int64_t offset = first * std::int64_t{kRegBytes<V>};

  const std::int64_t scale_bytes = kPanelRows * cpu::scale_bytes(args.shape.scale);
  constexpr int kParts = V::kRegs / Rows;
  const std::int64_t tail_bytes = scale_bytes + (Zeros ? kPanelRows : 0);
  [[maybe_unused]] const auto even = EvenPrefetch<V>::template of<D>(args, Grouped ? tail_bytes : 0, first, Rows);
  [[maybe_unused]] NextLines<V> next = NextLines<V>::of_panel(args);
  const D decoder;
  const std::int64_t between_planes = plane_bytes<V>(args);
  std::int64_t column = 0;
  [[maybe_unused]] std::int64_t input_scale = 0;
  [[maybe_unused]] std::int64_t left_of_scale = args.shape.scale_groups + 1;
  const std::int64_t groups = Grouped ? args.shape.groups : 1;
  for (std::int64_t g = 0; g < groups; ++g) {
    if constexpr (Grouped && kTotalsWait) __asm__ volatile("" : : "r"(&total) : "memory");
    const std::int64_t steps = g + 1 == groups ? args.shape.last_steps : args.shape.steps;
    [[maybe_unused]] const std::int64_t distance = Prefetch<V>::distance(args, at[P - 1]);
    Accumulators<Form, T, kRows> acc;
    for_sums<T, kRows>([&](int t, int r) __attribute__((always_inline)) {
      if constexpr (Accumulators<Form, T, kRows>::kChains == 2) acc.value[t][r][0] = Sums::zero();
      acc.value[t][r][acc.kChains - 1] = Zeros ? Sums::zero() : Sums::start(args.sums, t, g);
    });
    const auto gemm_steps = [&]<int kCount>(Steps<kCount>) __attribute__((always_inline)) {
      if constexpr (kParts > 1) {
        if (!args.prefetch.cached) even.template lines<kParts>(at[0], kCount * D::kBytes);
      } else if (P == 1 && args.prefetch.cached) {
        next.until(at[0]);
      } else {
        Prefetch<V>::panels(args, at, kCount * D::kBytes, distance);
      }
      const auto gemm_step = [&](int p) __attribute__((always_inline)) {
        decoding(decoder, at[p], [&](const auto& chosen) __attribute__((always_inline)) {
#pragma GCC unroll 8
          for (int k = 0; k < kSlots<Form>; ++k) {  // each broadcast serves all rows and dies
            typename Form::Weight w[kSharedPanels * Rows];
#pragma GCC unroll 8
            for (int r = 0; r < kSharedPanels * Rows; ++r) {
              w[r] = chosen.weight(at[p + r / Rows] + offset, k, r % Rows);
            }
#pragma GCC unroll 6
            for (int t = 0; t < T; ++t)
#pragma GCC unroll 2
              for (int plane = 0; plane < acc.kPlanes; ++plane) {
                const auto value = Form::broadcast(x[t] + plane * between_planes + column + k * Form::kWidth);
#pragma GCC unroll 8
                for (int r = 0; r < kSharedPanels * Rows; ++r) {
                  typename Form::Sum& sum = acc.value[t][p * Rows + r][acc.chain(k, plane)];
                  sum = Form::madd(w[r], value, sum);
                }
              }
          }
        });
      };
#pragma GCC unroll 2
      for (int s = 0; s < kCount; ++s) {
        // Without the barrier GCC loads for several steps at a time and spills what it has no registers for.
        if constexpr (kCount > 1) __asm__ volatile("" : "+r"(column));
#pragma GCC unroll 4
        for (int p = 0; p < P; p += kSharedPanels) gemm_step(p);
#pragma GCC unroll 4
        for (int p = 0; p < P; ++p) at[p] += D::kBytes;
        column += kStepColumns;
      }
    };
    std::int64_t left = steps;
    for (; left >= kUnrolledSteps<Form>; left -= kUnrolledSteps<Form>) gemm_steps(Steps<kUnrolledSteps<Form>>{});
    if constexpr (kUnrolledSteps<Form> > 1) {
      for (; left > 0; --left) gemm_steps(Steps<1>{});
    }
    if constexpr (Scaling == ActScaling::running) {
      if (--left_of_scale == 0) {
        left_of_scale = args.shape.scale_groups;
        change_scale<V>(total, args.input_scales, ++input_scale);
      }
    }
    if constexpr (!Grouped) {
      for_sums<T, kRows>([&](int t, int r)
                             __attribute__((always_inline)) { total[t][r] = Sums::number(acc.sum(t, r)); });
    } else {
      add_group<D, T, P, Rows, Scaling, Zeros, kTotalsWait>(args, total, at, first, g, scale_bytes,
                                                            [&](int t, int r) { return acc.sum(t, r); });
      if constexpr (kParts > 1) {
        if (!args.prefetch.cached) even.template lines<kParts>(at[0], tail_bytes);
      } else if (!args.prefetch.cached) {
        Prefetch<V>::panels(args, at, tail_bytes, distance);
      }
      for (int p = 0; p < P; ++p) at[p] += tail_bytes;
    }
  }
  store_totals<D, T, P, Rows>(args, total, at, first);
  if constexpr (WithExceptions<D>) {
    if (first + Rows < V::kRegs) return;  // a panel's exceptions are added once, to all of its rows
    for (int p = 0; p < P; ++p) add_exceptions<Form>(args, *reinterpret_cast<const Bf16x12Tail*>(at[p]), p, T);
  }
}

template <class D, int T, int P, int Rows, ActScaling Scaling, bool Zeros>
void gemm_blocked(const TileArgs& args, int first);  // blocked-inl.h

// T tokens times P panels.
template <class D, int T, int P, ActScaling Scaling, bool Zeros>
[[gnu::noinline]] void gemm_tile(const TileArgs& args) {
  using V = typename D::Form::V;
  constexpr int kRows = kRowsAtATime<typename D::Form, T>;
#pragma GCC unroll 4
  for (int p = 0; p < P; ++p)
#pragma GCC unroll 6
    for (int t = 0; t < T; ++t) Prefetch<V>::results(args.out[p] + t * args.out_stride);
  for (int first = 0; first < V::kRegs; first += kRows) {
    if constexpr (!Blocked<typename D::Form>) {
      gemm_part<D, T, P, kRows, Scaling, Zeros, Scaled<D>>(args, first);
    } else {
      gemm_blocked<D, T, P, kRows, Scaling, Zeros>(args, first);
    }
  }
}

}  // namespace moracle::cpu
