// The instruction sets of all architectures. One entry is a target: target_named<name>() is in targets/<name>.cpp,
// whose line "Compiled on" has the compiler's flags; cards and rows of priority tables follow from the entry (cards.h).
#pragma once

#include <string_view>

#include "base/generic/name_argument.h"
#include "kernels/cpu/target.h"
#include "oracle/card.h"

namespace moracle::cpu {

// How a target multiplies, as its cards say it.
struct Products {
  std::string_view accumulation{};  // empty: none of this kind
  std::string_view why{};           // of the place in a priority table
  InputRounding inputs = InputRounding::sixteen_bits;
  bool batch_invariant = true;
};

struct TargetFacts {
  std::string_view name;  // of the backend
  std::string_view architecture;
  CpuFeatures features = 0;
  Products integers{};          // of 16-bit activations made integers, and of published int8
  std::string_view why_int8{};  // of published int8 activations; empty: as integers
  std::string_view why_fast{};  // of 16-bit activations made int8
  Products numbers{};           // of activations that stay numbers, under every scheme that integers do not serve
  bool fast_int8 = false;       // int8 weights are faster under int8 activations
  bool tiles = false;           // integers serve integer codes alone, exact in long groups
};

inline constexpr std::string_view kIntegerSums = "int8 or int16 products, integer sums per group";

// Where several serve, the first one is taken.
inline constexpr TargetFacts kTargets[] = {
    {.name = "amx",
     .architecture = "x86_64",
     .features = CpuFeature::avx512 | CpuFeature::avx512_vnni | CpuFeature::avx512_bf16 | CpuFeature::avx512_vbmi |
                 CpuFeature::amx_tile | CpuFeature::amx_bf16 | CpuFeature::amx_int8,
     .integers = {kIntegerSums, "tiles of int8 products, two for a 16-bit activation"},
     .why_int8 = "tiles of int8 products, 2048 operations a cycle",
     .why_fast = "int8 products, of tiles or VPDPBUSD; only where fast numerics are asked for",
     .numbers = {"bf16 or int16 products, f32 or integer sums per group or row, by run length",
                 "tiles of bf16 products, 1024 operations a cycle", InputRounding::bf16, false},
     .fast_int8 = true,
     .tiles = true},
    {.name = "avx512vnni",
     .architecture = "x86_64",
     .features = CpuFeature::avx512 | CpuFeature::avx512_vnni,
     .integers = {kIntegerSums, "one VPDPWSSD does two multiply-adds a lane"},
     .why_int8 = "VPDPBUSD does four multiply-adds a lane, exact in integers",
     .why_fast = "one VPDPBUSD does four multiply-adds a lane; only where fast numerics are asked for",
     .fast_int8 = true},
    {.name = "avx512bf16",  // every CPU with BF16 has VNNI, which a head's copy in 8 bits meets
     .architecture = "x86_64",
     .features = CpuFeature::avx512 | CpuFeature::avx512_bf16 | CpuFeature::avx512_vnni | CpuFeature::avx512_vbmi,
     .numbers = {"bf16 products, f32 sums per group in 2 chains", "one VDPBF16PS does two multiply-adds a lane",
                 InputRounding::bf16}},
    {.name = "avx512",
     .architecture = "x86_64",
     .features = static_cast<CpuFeatures>(CpuFeature::avx512),
     .numbers = {"f32 fused multiply-add per group in 2 chains", "16 lanes a vector", InputRounding::none}},
    {.name = "avxvnni",
     .architecture = "x86_64",
     .features = CpuFeature::avx2 | CpuFeature::avx_vnni,
     .integers = {kIntegerSums, "one VPDPWSSD does two multiply-adds a lane"},
     .why_int8 = "VPDPBUSD does four multiply-adds a lane, exact in integers",
     .why_fast = "one VPDPBUSD does four multiply-adds a lane; only where fast numerics are asked for",
     .fast_int8 = true},
    {.name = "avx2",
     .architecture = "x86_64",
     .features = static_cast<CpuFeatures>(CpuFeature::avx2),
     .integers = {kIntegerSums, "one VPMADDWD does two multiply-adds a lane"},
     .why_fast = "one VPMADDUBSW does four multiply-adds a lane; only where fast numerics are asked for",
     .numbers = {"f32 fused multiply-add per group in 1 chain", "8 lanes a vector", InputRounding::none}},
    {.name = "neon",
     .architecture = "aarch64",
     .features = static_cast<CpuFeatures>(CpuFeature::neon),
     .integers = {kIntegerSums, "one SDOT does four multiply-adds a lane, two of them serve a 16-bit activation"},
     .why_int8 = "one SDOT does four multiply-adds a lane, exact in integers",
     .why_fast = "one SDOT does four multiply-adds a lane; only where fast numerics are asked for",
     .numbers = {"f32 fused multiply-add per group in 1 chain", "4 lanes a vector", InputRounding::none},
     .fast_int8 = true},
};

template <NameArgument kName>
[[nodiscard]] const Target& target_named();

// Whether this build has a target's kernels.
constexpr bool built(const TargetFacts& facts) {
#if defined(__x86_64__)
  return facts.architecture == "x86_64";
#elif defined(__aarch64__)
  return facts.architecture == "aarch64";
#else
  return facts.architecture.empty();
#endif
}

// The kernels of a target; null where this build has none.
[[nodiscard]] const Target* find_target(std::string_view name);

}  // namespace moracle::cpu
