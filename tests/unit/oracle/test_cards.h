// Cards and questions that the oracle's tests share. They stand for kinds of kernels, not for real ones.
#pragma once

#include <array>

#include "machine/machine.h"
#include "oracle/decide.h"

namespace moracle::test {

inline constexpr std::array kIntSchemes{
    SchemeRule{.element = Element::int4,
               .scale = ScaleType::f32,
               .granularity = Granularity::Kind::group,
               .allow_asymmetric = true},
    SchemeRule{.element = Element::int4, .scale = ScaleType::f32, .granularity = Granularity::Kind::channel},
};
inline constexpr std::array<std::int32_t, 3> kGroups{32, 64, 128};
inline constexpr std::array kSilu{ActivationFn::silu, ActivationFn::swigluoai};

constexpr KernelCard int_card(std::string_view id, std::string_view backend, CpuFeatures features,
                              Numerics numerics = Numerics::exact) {
  return {.id = id,
          .backend = backend,
          .numerics = numerics,
          .cpu_features = features,
          .schemes = kIntSchemes,
          .group_sizes = kGroups,
          .zero_points = true,
          .activations = kSilu};
}

inline constexpr KernelCard kWide =
    int_card("t.wide", "wide", CpuFeature::avx2 | CpuFeature::avx512 | CpuFeature::avx512_bf16);
inline constexpr KernelCard kQuick =
    int_card("t.quick", "quick", static_cast<CpuFeatures>(CpuFeature::avx2), Numerics::fast);
inline constexpr KernelCard kNarrow = int_card("t.narrow", "narrow", static_cast<CpuFeatures>(CpuFeature::avx2));
inline constexpr KernelCard kReference = [] {
  KernelCard card = int_card("t.ref", "ref", 0);
  card.any_device_of_host = true;
  card.batch_invariant = true;
  card.act_order = true;
  card.bias = true;
  return card;
}();

inline constexpr std::array kDefaultRows{TableRow{&kWide, "widest"}, TableRow{&kQuick, "int8 activations"},
                                         TableRow{&kNarrow, "narrower"}, TableRow{&kReference, "scalar"}};
inline constexpr Table kTable{.name = "test", .rows = kDefaultRows};

inline Problem int4_problem() {
  return {
      .kind = ProblemKind::experts,
      .scheme = {.weight = {.element = Element::int4, .scale = ScaleType::f16, .granularity = Granularity::group(128)}},
      .experts = 128,
      .top_k = 8,
      .hidden = 2048,
      .intermediate = 768};
}

inline Machine machine(const char* name) {
  return *resolve_machine(name);
}

inline std::string backend_of(const KernelCard* card) {
  return card == nullptr ? "none" : std::string(card->backend);
}

}  // namespace moracle::test
