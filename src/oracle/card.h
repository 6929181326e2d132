// What a kernel declares about itself: constexpr data beside the kernel, compiled in every build.
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <string_view>

#include "machine/machine.h"
#include "oracle/problem.h"

namespace moracle {

enum class CardKind : std::uint8_t { own, foreign, decision_only };
enum class Numerics : std::uint8_t { exact, fast, emulation };  // `fast` quantizes activations further than published

// One accepted (weight, activation) pair. Zero as a granularity width means "any width that `groups` allows".
struct SchemeRule {
  Element element = Element::bf16;
  ScaleType scale = ScaleType::none;  // ScaleType::none: unquantized. f32 stands for any float scale type
  Granularity::Kind granularity = Granularity::Kind::none;
  bool allow_asymmetric = false;
  bool activation = false;  // whether `activation_key` is required; false: 16-bit activations
  QuantKey activation_key{};
};

struct KernelCard {
  std::string_view id;       // unique: "cpu.avx512bf16.wna16"
  std::string_view backend;  // what users type and read: "avx512bf16"
  std::string_view summary;  // one line for people
  CardKind kind = CardKind::own;
  Numerics numerics = Numerics::exact;
  DeviceKind device = DeviceKind::cpu;
  bool any_device_of_host = false;  // a reference that runs wherever the program runs
  CpuFeatures cpu_features = 0;
  bool serves_experts = true;
  bool serves_linear = true;
  std::span<const SchemeRule> schemes{};
  std::span<const std::int32_t> group_sizes{};  // accepted group widths; empty: any
  bool zero_points = false;
  bool act_order = false;
  bool bias = false;
  std::span<const ActivationFn> activations{};
  std::int64_t hidden_multiple = 1;        // of `hidden` (in of a linear)
  std::int64_t intermediate_multiple = 1;  // of `intermediate` (out of a linear)
  std::int64_t max_top_k = 64;
  bool batch_invariant = false;   // one accumulation order for every batch
  std::string_view accumulation;  // the order, in words
};

}  // namespace moracle
