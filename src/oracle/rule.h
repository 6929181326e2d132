// What a card is checked for.
#pragma once

#include <string_view>

namespace moracle {

// Named as the contract of the command line spells it. Selections of other engines add rules of their own.
struct Rule {
  std::string_view name{};

  bool operator==(const Rule&) const = default;

  static const Rule device;
  static const Rule no_act_and_mul;
  static const Rule activation;
  static const Rule quant_scheme;
  static const Rule zero_points;
  static const Rule act_order;
  static const Rule bias;
  static const Rule shape;
  static const Rule source_layout;
  static const Rule batch_invariance;
  static const Rule policy;
  static const Rule override_;
  static const Rule not_built;
};

inline constexpr Rule Rule::device{"device"};
inline constexpr Rule Rule::no_act_and_mul{"no_act_and_mul"};
inline constexpr Rule Rule::activation{"activation"};
inline constexpr Rule Rule::quant_scheme{"quant_scheme"};
inline constexpr Rule Rule::zero_points{"zero_points"};
inline constexpr Rule Rule::act_order{"act_order"};
inline constexpr Rule Rule::bias{"bias"};
inline constexpr Rule Rule::shape{"shape"};
inline constexpr Rule Rule::source_layout{"source_layout"};
inline constexpr Rule Rule::batch_invariance{"batch_invariance"};
inline constexpr Rule Rule::policy{"policy"};
inline constexpr Rule Rule::override_{"override"};
inline constexpr Rule Rule::not_built{"not_built"};

}  // namespace moracle
