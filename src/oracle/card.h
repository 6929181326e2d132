// What a kernel declares about itself: constexpr data beside the kernel, compiled in every build.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <span>
#include <string_view>

#include "machine/machine.h"
#include "oracle/problem.h"

namespace moracle {

enum class CardKind : std::uint8_t { own, foreign, decision_only };
enum class Numerics : std::uint8_t { exact, fast, emulation };  // `fast` quantizes activations further than published
[[nodiscard]] std::string_view to_string(CardKind kind);
[[nodiscard]] std::string_view to_string(Numerics numerics);

// One accepted (weight, activation) pair. Zero as a granularity width means "any width that `groups` allows".
struct SchemeRule {
  Element element = Element::bf16;
  ScaleType scale = ScaleType::none;  // ScaleType::none: unquantized. f32 stands for any float scale type
  Granularity::Kind granularity = Granularity::Kind::none;
  bool allow_asymmetric = false;
  bool activation = false;  // whether `activation_key` is required; false: 16-bit activations
  QuantKey activation_key{};
  std::int32_t rows = 0;      // of a block; 0: any
  std::int32_t cols = 0;      // of a group or block; 0: any that `group_sizes` allows
  bool second_level = false;  // a further scale per tensor, as NVFP4 has
};

// One kind of machine. Every member that is set must hold.
struct DeviceRule {
  DeviceKind device = DeviceKind::cpu;
  CpuFeatures cpu_features = 0;
  std::string_view arch{};    // empty: any
  int min_capability = 0;     // CUDA compute capability x 10
  int max_capability = 9999;  // inclusive
};

// How the ranks may share the experts.
struct ParallelRule {
  bool tp = true;  // slices of every expert
  bool ep = true;  // whole experts, absent ones skipped
  bool dp = true;
  bool load_balancing = true;
  std::span<const std::string_view> refused_all2all{};
};

// Only kernels that route by themselves, from router logits, have anything to say about routing.
struct RouterRule {
  bool monolithic = false;
  std::span<const Routing> routings{};       // empty: any
  std::span<const Element> logits_dtypes{};  // empty: any
  bool hash_routing = false;
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
  bool bias = false;
  std::span<const ActivationFn> activations{};
  std::int64_t hidden_multiple = 1;        // of `hidden` (in of a linear)
  std::int64_t intermediate_multiple = 1;  // of `intermediate` (out of a linear)
  std::int64_t max_top_k = 64;
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
};

}  // namespace moracle
