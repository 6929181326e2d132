// Tests of question, machine and surroundings as data, and what classes and tables refuse by them.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <optional>
#include <span>
#include <string_view>

#include "compat/vllm/question.h"
#include "compat/vllm/rules.h"
#include "machine/machine.h"
#include "oracle/card.h"
#include "oracle/decide.h"

namespace moracle::vllm {

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
  [[nodiscard]] constexpr bool empty() const { return bits == 0; }
  [[nodiscard]] constexpr bool has(E item) const { return ((bits >> static_cast<unsigned>(item)) & 1U) != 0; }
};

// One accepted (weight, activation) pair of keys.
struct KeyRule {
  SchemeRule keys{};
  bool any_activation = false;  // whatever the activation key
  bool narrow_codes = false;    // codes narrower than the element (Question::code_bits), and only those
};
[[nodiscard]] bool matches(const KeyRule& rule, const Scheme& scheme, std::int32_t code_bits);

// Whether a fact of the surroundings (Policy::facts) has a value. A fact that nobody states has none.
struct FactTest {
  std::string_view name{};
  std::string_view value{};
  bool equals = true;  // false: the fact has another value, or none
};

// Every member that is set must hold; a condition without members always holds.
struct Condition {
  Few<DeviceRule, 6> devices{};          // any of these
  Few<std::string_view, 2> libraries{};  // all of these
  Few<FactTest, 3> facts{};              // all of these
  Few<KeyRule, 4> schemes{};             // any of these
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
[[nodiscard]] bool holds(const Condition& condition, const Question& question, const Machine& machine,
                         const Policy& policy);

// One mismatch, with vLLM's narrower name for its cause where it has one.
struct LabelledReason : Reason {
  std::string_view label{};
};

// A rule that a class's lists cannot express: refuses where `when` holds and `unless` does not.
enum class CheckOrder : std::uint8_t { with_rule, before_all, after_all };
struct Refusal {
  Rule rule = Rule::device;
  std::string_view label{};   // the cause in one word, "num_experts"; may be empty
  std::string_view wanted{};  // what would be admitted, for people; empty: something else
  CheckOrder order = CheckOrder::with_rule;
  Condition when{};
  std::optional<Condition> unless{};
};
// Null when it does not refuse.
[[nodiscard]] std::optional<LabelledReason> refused(const Refusal& refusal, const Question& question,
                                                    const Machine& machine, const Policy& policy, ReasonTexts& texts);

}  // namespace moracle::vllm
