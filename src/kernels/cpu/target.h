// What one instruction set provides: a table of matrix kernels, and the loops around them.
// A target is a file in targets/ and an entry of targets.h. A weight code is a decoder in weights/codes_*-inl.h, a row
// of weights/panel.h and a row in the table of each target that serves it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>

#include "kernels/cpu/weights/panel.h"
#include "kernels/vector/vector_ops.h"

namespace moracle::cpu {

// Rows of activations against panels of one matrix: out[p][t, 32] = panel p times row t.
struct GemmArgs {
  PanelShape shape{};
  std::int64_t tokens = 0;         // up to kMaxTokens
  const void* const* x = nullptr;  // [tokens] activation rows in the kernel's dtype, zero-padded to whole cache lines
  // [tokens][groups]: sum of the row's activations, f32 or, for integer codes, i32, where zero points are stored; else
  // that sum times -GemmKernel::offset, modulo 2^32. With block_columns: sums for zero points, if any, then a pair for
  // every block (EncodeArgs).
  const void* const* sums = nullptr;
  // By ActScaling. `per_group`: the scales of x's codes, [tokens][groups]. `running`: [tokens][running scales], what
  // the sums so far are multiplied by before a group with another scale joins them, the scale before over its own; the
  // last scale is in token_scale.
  const float* const* input_scales = nullptr;
  const float* token_scale = nullptr;  // [tokens]: the token's own scale; 1 if none
  std::int64_t count = 0;              // panels
  const std::byte* panels[kMaxPanels] = {};
  float panel_scale[kMaxPanels] = {};  // second-level scale of the weight; 1 if none
  float* out[kMaxPanels] = {};         // [tokens, out_stride], 32 values a row
  std::int64_t out_stride = kPanelRows;
  // What the thread reads next, to be prefetched: the panels of the next call where it takes several at once, and the
  // panel behind the last one where that does not follow in memory (null: it does).
  std::int64_t next_count = 0;
  const std::byte* next[kMaxPanels] = {};
  const std::byte* following = nullptr;

  void add(const std::byte* panel, float scale, float* to) {
    panels[count] = panel;
    panel_scale[count] = scale;
    out[count++] = to;
  }
};
using GemmFn = void (*)(const GemmArgs&);

// What asks for a kernel: activations of 16 bits under either policy, or those that the scheme quantizes.
enum class ActivationMask : std::uint8_t { exact = 1, fast = 2, int8 = 4, floats = 8 };
constexpr ActivationMask operator|(ActivationMask a, ActivationMask b) {
  return static_cast<ActivationMask>(static_cast<unsigned>(a) | static_cast<unsigned>(b));
}
constexpr bool includes(ActivationMask all, ActivationMask one) {
  return (static_cast<unsigned>(all) & static_cast<unsigned>(one)) != 0;
}
inline constexpr ActivationMask kAnyActivations =
    ActivationMask::exact | ActivationMask::fast | ActivationMask::int8 | ActivationMask::floats;
enum class Groups : std::uint8_t { any, up_to_16, up_to_32, longer };

struct KernelKey {
  WeightCode weight;
  ActDtype act;
  ActivationMask activations;
  Groups groups = Groups::any;  // columns of a group of the weight
};
// Of the rows that a matrix matches, the last one with min_tokens or less serves a call.
struct GemmKernel {
  KernelKey key;
  std::uint16_t min_tokens;
  GemmFn run;
  std::int32_t offset = 0;         // added to the codes where the kernel takes them unsigned; 0: it takes them signed
  std::int64_t block_columns = 0;  // of a group, whose products are summed up in 16 bits; 0: sums have 32
  bool even_rows = false;          // takes rows of activations at equal distances alone
};

struct ActivationKernels;  // ops/activation_kernels.h

struct Target {
  const char* name;
  std::span<const GemmKernel> gemm;
  const ActivationKernels* activations;
  const VectorOps& (*vector_ops)();
  std::string_view head{};  // the target that multiplies a head's copy in 8 bits (head_top_k.h); empty: this one
  // Few tokens read several panels, which lie far apart, at once. Sapphire Rapids reads half as fast again so: its
  // prefetcher keeps about 20 lines of one stream on the way and 48 of several.
  bool interleaved = false;
};

}  // namespace moracle::cpu
