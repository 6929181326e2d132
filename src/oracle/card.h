// What a kernel declares about itself: constexpr data beside the kernel, compiled in every build.
#pragma once

#include <cstdint>
#include <span>
#include <string_view>

#include "machine/machine.h"
#include "oracle/problem.h"

namespace moracle {

// Who runs a kernel, and what is known here of one that this build lacks. Selections of other engines add kinds.
struct CardKind {
  std::string_view name{};
  std::string_view known{};

  bool operator==(const CardKind&) const = default;

  static const CardKind native;    // a kernel of this engine
  static const CardKind external;  // of another device or engine; packed here and run on the host for proof
};
inline constexpr CardKind CardKind::native{"native", ""};
inline constexpr CardKind CardKind::external{"external", "layout"};

enum class Numerics : std::uint8_t { exact, fast };  // `fast` quantizes activations further than published
// What a kernel makes of 16-bit activations that the scheme leaves as they are: it keeps them in f32, rounds them to
// bf16, or takes them as integers under a scale a group.
enum class InputRounding : std::uint8_t { none, bf16, sixteen_bits, eight_bits };
// Root mean square of its error, relative to that of the activations. Integers: half a step of the largest of 128
// values at most, which is at most sqrt(128) times their root mean square; rounding errors are spread evenly, hence
// sqrt(12).
[[nodiscard]] double relative_rounding(InputRounding rounding);
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

struct KernelCard {
  std::string_view id{};       // unique: "cpu.avx512bf16.wna16"
  std::string_view backend{};  // what users type and read: "avx512bf16"; cards of different schemes may share it
  std::string_view summary{};  // one line for people
  CardKind kind = CardKind::native;
  Numerics numerics = Numerics::exact;
  DeviceKind device = DeviceKind::cpu;
  bool any_device_of_host = false;  // a reference that runs wherever the program runs
  CpuFeatures cpu_features = 0;
  std::span<const DeviceRule> devices{};  // if any: one of these must hold, instead of the two members above
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
  std::int64_t max_experts = 1 << 30;
  std::int64_t max_top_k = 64;
  InputRounding inputs = InputRounding::bf16;
  bool rounds_weights = false;      // to bf16: f16 scales, products of codes and scales, and each expert's output
  bool batch_invariant = false;     // one accumulation order for every batch
  std::string_view accumulation{};  // the order, in words
  bool interleaved = true;          // also gate and up rows that alternate on disk
};

}  // namespace moracle
