// What the CPU kernels serve: the product of targets (targets/targets.h) and families of schemes. One layout and one
// driver; cards differ in the instruction set and therefore in the arithmetic of the activations.
#pragma once

#include <array>
#include <span>

#include "kernels/cpu/targets/targets.h"
#include "kernels/schemes.card.h"
#include "oracle/card.h"

namespace moracle {

// Schemes that share a priority table.
struct CardFamily {
  std::string_view name;  // behind the target's in a card's id
  std::string_view summary;
  std::span<const SchemeRule> all;
  std::span<const SchemeRule> integers{};  // those of 16-bit or int8 activations that targets can make integers
  std::span<const SchemeRule> fast{};      // those whose 16-bit activations can be made int8
  bool integer_codes = false;              // of weights, under one kind of activations
};
inline constexpr CardFamily kCardFamilies[] = {
    {"wna16", "integer weights, 16-bit activations", schemes::kWna16, schemes::kWna16, schemes::kInt4A16, true},
    {"int8", "int8 weights and activations", schemes::kInt8, schemes::kInt8, {}, true},
    {"w4a8", "int4 weights, 8-bit activations", schemes::kW4A8, schemes::kW4A8Int8},
    {"fp8", "E4M3 weights", schemes::kFp8},
    {"mxfp4", "E2M1 weights under E8M0 scales", schemes::kMxfp4, schemes::kMxfp4A16, schemes::kMxfp4A16},
    {"mxfp6", "E2M3 and E3M2 weights under E8M0 scales, kept as E4M3", schemes::kMxfp6},
    {"mxfp8", "E4M3 weights under E8M0 scales of 32", schemes::kMxfp8},
    {"nvfp4", "E2M1 weights under E4M3 scales", schemes::kNvfp4, schemes::kNvfp4A16, schemes::kNvfp4A16},
    {"dense", "unquantized weights", schemes::kUnquantized},
};

// Groups are whole steps of 8 columns; these are the widths that publishers use.
inline constexpr std::array<std::int32_t, 6> kPanelGroups{16, 32, 64, 128, 256, 512};
// A sum of tiles is spilled at the end of every group. Over short ones split int16 spills twice what bf16 does.
inline constexpr std::span kShortGroups = std::span(kPanelGroups).first<2>();
inline constexpr std::span kLongGroups = std::span(kPanelGroups).last<4>();
inline constexpr std::array kPanelActivations{ActivationFn::silu, ActivationFn::gelu_tanh, ActivationFn::swigluoai,
                                              ActivationFn::swiglustep, ActivationFn::relu2_no_mul};

struct CpuCardId {
  char text[32] = {};
  std::size_t size = 0;
  constexpr void append(std::string_view part) {
    for (const char c : part) text[size++] = c;
  }
};
struct CpuCard {
  KernelCard card;
  std::string_view family;
  std::string_view why;  // of the row in its family's table
};

// Calls add(target, family, suffix of the id, schemes, products, why, group sizes) for every card, in the order of
// tables.
template <class Add>
constexpr void for_cpu_cards(Add add) {
  for (const cpu::TargetFacts& target : cpu::kTargets) {
    for (const CardFamily& family : kCardFamilies) {
      const bool integers =
          !target.integers.accumulation.empty() && !family.integers.empty() && (family.integer_codes || !target.tiles);
      const bool numbers = !target.numbers.accumulation.empty();
      if (!target.why_fast.empty() && !family.fast.empty()) {
        const bool wide = family.integer_codes && target.fast_int8;
        add(target, family, "-fast", wide ? family.all : family.fast, integers ? target.integers : target.numbers,
            target.why_fast, kPanelGroups);
      }
      if (!integers) {
        if (numbers) add(target, family, "", family.all, target.numbers, target.numbers.why, kPanelGroups);
        continue;
      }
      const bool split = target.tiles && !family.fast.empty();
      const bool int8 = family.fast.empty() && !target.why_int8.empty();
      add(target, family, "", numbers ? family.all : family.integers, target.integers,
          int8 ? target.why_int8 : target.integers.why,
          split ? std::span<const std::int32_t>(kLongGroups) : kPanelGroups);
      if (split) {
        add(target, family, "-short", schemes::kWna16Groups, target.numbers, target.numbers.why, kShortGroups);
      }
    }
  }
}

inline constexpr std::size_t kCpuCardCount = [] {
  std::size_t count = 0;
  for_cpu_cards([&](auto&&...) { ++count; });
  return count;
}();
inline constexpr auto kCpuCardIds = [] {
  std::array<CpuCardId, kCpuCardCount> ids{};
  std::size_t at = 0;
  for_cpu_cards([&](const auto& target, const auto& family, std::string_view suffix, auto&&...) {
    for (const std::string_view part :
         {std::string_view("cpu."), target.name, std::string_view("."), family.name, suffix})
      ids[at].append(part);
    ++at;
  });
  return ids;
}();
inline constexpr auto kCpuCards = [] {
  std::array<CpuCard, kCpuCardCount> cards{};
  std::size_t at = 0;
  for_cpu_cards([&](const cpu::TargetFacts& target, const CardFamily& family, std::string_view suffix,
                    std::span<const SchemeRule> schemes, const cpu::Products& products, std::string_view why,
                    std::span<const std::int32_t> groups) {
    const bool fast = suffix == "-fast";
    cards[at] = {.card = {.id = {kCpuCardIds[at].text, kCpuCardIds[at].size},
                          .backend = target.name,
                          .summary = family.summary,
                          .numerics = fast ? Numerics::fast : Numerics::exact,
                          .device = DeviceKind::cpu,
                          .cpu_features = target.features,
                          .schemes = schemes,
                          .group_sizes = groups,
                          .zero_points = true,
                          .act_order = true,
                          .own_up_order = true,
                          .bias = true,
                          .activations = kPanelActivations,
                          .inputs = fast ? InputRounding::eight_bits : products.inputs,
                          .batch_invariant = products.batch_invariant,
                          .accumulation = products.accumulation},
                 .family = family.name,
                 .why = why};
    ++at;
  });
  return cards;
}();

}  // namespace moracle
