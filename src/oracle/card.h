// What a kernel declares about itself: constexpr data beside the kernel, compiled in every build.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <optional>
#include <span>
#include <string_view>

#include "machine/machine.h"
#include "oracle/problem.h"

namespace moracle {

// `own`: a kernel of this engine. `foreign`: another device's or engine's kernel whose layout is public, packed here
// and run on the host for proof. `decision_only`: what it can do is known, its layout is not.
enum class CardKind : std::uint8_t { own, foreign, decision_only };
enum class Numerics : std::uint8_t { exact, fast, emulation };  // `fast` quantizes activations further than published
// What a kernel makes of 16-bit activations that the scheme leaves as they are: it keeps them in f32, rounds them to
// bf16, or takes them as integers under a scale a group.
enum class InputRounding : std::uint8_t { none, bf16, sixteen_bits, eight_bits };
// Root mean square of its error, relative to that of the activations. Integers: half a step of the largest of 128
// values at most, which is at most sqrt(128) times their root mean square; rounding errors are spread evenly, hence
// sqrt(12).
[[nodiscard]] double relative_rounding(InputRounding rounding);
[[nodiscard]] std::string_view to_string(CardKind kind);
[[nodiscard]] std::string_view to_string(Numerics numerics);

enum class Rule : std::uint8_t {
  device,
  quant_scheme,
  activation,
  no_act_and_mul,
  parallel_config,
  activation_format,
  shape,
  routing,
  bias,
  zero_points,
  act_order,
  dtype,
  library,
  policy,
  override_,
  hash_routing,
  decomposed_required,
  router_logits_dtype,
  batch_invariance,
  lora,
  source_layout,
  not_built,
};
// The contract's spelling: "quant_scheme", "override", ...
[[nodiscard]] std::string_view to_string(Rule rule);

// One accepted (weight, activation) pair. Zero as a granularity width means "any width that `groups` allows".
struct SchemeRule {
  Element element = Element::bf16;
  ScaleType scale = ScaleType::none;  // ScaleType::none: unquantized. f32 stands for any float scale type
  Granularity::Kind granularity = Granularity::Kind::none;
  bool allow_asymmetric = false;
  bool activation = false;  // whether `activation_key` is required; false: 16-bit activations
  QuantKey activation_key{};
  std::int32_t rows = 0;        // of a block; 0: any
  std::int32_t cols = 0;        // of a group or block; 0: any that `group_sizes` allows
  bool second_level = false;    // a further scale per tensor, as NVFP4 has
  bool any_activation = false;  // whatever the activation key
  bool narrow_codes = false;    // codes narrower than `element` (Problem::code_bits), and only those
};

// One kind of machine. Every member that is set must hold.
struct DeviceRule {
  DeviceKind device = DeviceKind::cpu;
  CpuFeatures cpu_features = 0;
  std::string_view arch{};    // empty: any
  int min_capability = 0;     // CUDA compute capability x 10
  int max_capability = 9999;  // inclusive
};

// A short list by value, so that conditions are written in one piece.
template <class T, std::size_t N>
struct Few {
  std::array<T, N> items{};
  std::size_t count = 0;
  constexpr Few() = default;
  constexpr Few(std::initializer_list<T> list) {
    for (const T& item : list) items[count++] = item;  // more than N is no constant expression
  }
  [[nodiscard]] constexpr const T* begin() const { return items.data(); }
  [[nodiscard]] constexpr const T* end() const { return items.data() + count; }
  [[nodiscard]] constexpr bool empty() const { return count == 0; }
};

// A set of enumerators, of at most 32.
template <class E>
struct SetOf {
  std::uint32_t bits = 0;
  constexpr SetOf() = default;
  constexpr SetOf(std::initializer_list<E> list) {
    for (const E item : list) bits |= 1U << static_cast<unsigned>(item);
  }
  constexpr explicit SetOf(std::span<const E> list) {
    for (const E item : list) bits |= 1U << static_cast<unsigned>(item);
  }
  [[nodiscard]] constexpr bool empty() const { return bits == 0; }
  [[nodiscard]] constexpr bool has(E item) const { return ((bits >> static_cast<unsigned>(item)) & 1U) != 0; }
};

// Whether a fact of the surroundings (Policy::facts) has a value. A fact that is not stated has none.
struct FactTest {
  std::string_view name{};
  std::string_view value{};
  bool equals = true;  // false: anything else, or not stated
};

// A test of question, machine and surroundings, as data. Every member that is set must hold; none: always holds.
struct Condition {
  Few<DeviceRule, 6> devices{};          // any of these
  Few<std::string_view, 2> libraries{};  // all of these
  Few<FactTest, 3> facts{};              // all of these
  Few<SchemeRule, 4> schemes{};          // any of these
  SetOf<ActivationFn> activations{};
  SetOf<Routing> routings{};
  SetOf<Element> dtypes{};
  SetOf<Element> logits_dtypes{};
  Few<std::string_view, 2> source_layouts{};  // any of these
  Few<std::string_view, 3> all2alls{};        // any of these
  Few<std::int32_t, 4> source_groups{};       // any of these
  std::optional<bool> ep{};
  std::optional<bool> dp{};
  std::optional<bool> sp{};
  std::optional<bool> all2all{};  // ranks exchange tokens
  std::optional<bool> batched{};
  std::optional<bool> bias{};
  std::optional<bool> zero_points{};
  std::optional<bool> act_order{};
  std::optional<bool> interleaved{};
  std::optional<bool> lora{};
  std::optional<bool> quantized_activations{};
  std::optional<bool> stated_activation{};  // any parameter
  std::optional<bool> stated_limit{};
  std::optional<float> alpha{};  // stated, and this
  std::optional<float> beta{};
  std::int64_t hidden_off = 0;        // `hidden` is not a multiple of this
  std::int64_t intermediate_off = 0;  // `intermediate` is not a multiple of this
  std::int32_t group_off = 0;         // `source_group` is not a positive multiple of this
  std::int64_t min_experts = 0;
  std::int64_t max_top_k = 0;
};

// A rule that a card's lists cannot express: refuses where `when` holds and `unless` does not.
enum class CheckOrder : std::uint8_t { with_rule, before_all, after_all };
struct Refusal {
  Rule rule = Rule::device;
  std::string_view label{};   // the cause in one word, "num_experts"; may be empty
  std::string_view wanted{};  // what would be admitted, for people; empty: something else
  CheckOrder order = CheckOrder::with_rule;
  Condition when{};
  std::optional<Condition> unless{};
};

// How the ranks may share the experts.
struct ParallelRule {
  bool tp = true;  // slices of every expert
  bool ep = true;  // whole experts, absent ones skipped
  bool dp = true;
  bool load_balancing = true;
  std::span<const std::string_view> refused_all2all{};
  bool all2all = true;                                   // ranks may exchange tokens
  std::span<const std::string_view> accepted_all2all{};  // if any, only by these
};

// Only kernels that route by themselves, from router logits, have anything to say about routing.
struct RouterRule {
  bool monolithic = false;
  std::span<const Routing> routings{};       // empty: any
  std::span<const Element> logits_dtypes{};  // empty: any
  bool hash_routing = false;
  bool adjusted_routes = false;  // also routes that are adjusted after routing
};

struct KernelCard {
  std::string_view id{};       // unique: "cpu.avx512bf16.wna16"
  std::string_view backend{};  // what users type and read: "avx512bf16"; cards of different schemes may share it
  std::string_view summary{};  // one line for people
  CardKind kind = CardKind::own;
  Numerics numerics = Numerics::exact;
  DeviceKind device = DeviceKind::cpu;
  bool any_device_of_host = false;  // a reference that runs wherever the program runs
  CpuFeatures cpu_features = 0;
  std::span<const DeviceRule> devices{};          // if any: one of these must hold, instead of the two members above
  std::span<const std::string_view> libraries{};  // all of these must be on the machine
  bool serves_experts = true;
  bool serves_linear = true;
  std::span<const SchemeRule> schemes{};
  std::span<const std::int32_t> group_sizes{};  // accepted group widths; empty: any
  bool zero_points = false;
  bool act_order = false;
  bool own_up_order = false;  // also where gate and up, which see one input, have a group index each
  bool bias = false;
  std::span<const ActivationFn> activations{};
  std::int64_t hidden_multiple = 1;        // of `hidden` (in of a linear)
  std::int64_t intermediate_multiple = 1;  // of `intermediate` (out of a linear)
  std::int64_t max_top_k = 64;
  InputRounding inputs = InputRounding::bf16;
  bool batch_invariant = false;     // one accumulation order for every batch
  std::string_view accumulation{};  // the order, in words
  std::optional<bool> ungated{};    // experts without a gate; unset: where `activations` lists an ungated function
  ParallelRule parallel{};
  RouterRule router{};
  ActivationFormat activation_format = ActivationFormat::standard;
  std::int64_t min_top_k = 1;
  std::int64_t max_experts = 0;                         // on this rank; 0: any number
  std::span<const Element> dtypes{};                    // of activations at the layer's edge; empty: any
  std::span<const std::string_view> source_layouts{};   // accepted publishers' formats; empty: any
  std::span<const std::string_view> refused_layouts{};  // of those
  bool lora = false;
  bool any_activation_format = false;
  std::span<const Refusal> refusals{};
  // Of a card that describes another engine's kernel: the backend here whose pack is that kernel's layout.
  std::string_view packed_by{};
};

}  // namespace moracle
