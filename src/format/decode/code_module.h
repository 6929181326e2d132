// Opens modules whose codes are stored in bytes (FP8, INT8, MXFP4, NVFP4, ...), from a description of names, scale
// types and granularity. Modules may be whole tensors or slices of stacked experts.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "format/decode/code_matrix.h"
#include "format/decode/stored_scheme.h"
#include "format/rules/spelling.h"

namespace moracle {

// What the scales of FP8 weights are called, of blocks and otherwise.
inline constexpr std::array<std::string_view, 2> kFp8Scales{"weight_scale_inv", "weight_scale"};

// Names of the parts, in any spelling (spelling.h). Scales of FP8 codes may also have any name that publishers use.
struct CodeParts {
  std::vector<std::string> scales{"weight_scale"};  // the first that is stored
  std::string codes = "weight";
  std::string zeros = "weight_zero_point";
  std::string global{};              // the second level, where the key has one
  std::string input{"input_scale"};  // static activation scale, or the second level of dynamic ones
  std::string input_zeros = "input_zero_point";
  bool divides = false;  // second levels are stored as quantizing multipliers: the reciprocals of de-quantizing scales
  bool blocks = false;   // codes have their last dimension split, [.., groups, bytes of a group], and lie row by row
                         // even where the stacked layout is transposed
};

struct CodeScheme {
  // Scale f32 stands for any float type, as stored; symmetric says what the config says.
  QuantKey weight{};
  CodeForm form = CodeForm::bytes;
  std::optional<QuantKey> activation{};
  CodeParts parts{};
  std::string unused{};  // a part that may be stored and is not needed: a cache scale
};

std::shared_ptr<const StoredScheme> make_code_scheme(CodeScheme scheme, std::shared_ptr<ValueNotes> notes);

// --- Keys that publishers share ------------------------------------------------------------------------------------

[[nodiscard]] constexpr QuantKey int8_key(Granularity granularity, bool symmetric = true) {
  return {.element = Element::int8, .scale = ScaleType::f32, .granularity = granularity, .symmetric = symmetric};
}
[[nodiscard]] constexpr QuantKey fp8_key(Granularity granularity) {
  return {.element = Element::e4m3, .scale = ScaleType::f32, .granularity = granularity};
}
// Blocks of 32 under a power of two: MXFP4, MXFP6, MXFP8 by element.
[[nodiscard]] constexpr QuantKey mx_key(Element element) {
  return {.element = element, .scale = ScaleType::e8m0, .granularity = Granularity::group(32)};
}
[[nodiscard]] constexpr QuantKey nvfp4_key() {
  return {
      .element = Element::e2m1, .scale = ScaleType::e4m3, .granularity = Granularity::group(16), .second_level = true};
}
[[nodiscard]] constexpr QuantKey dynamic(QuantKey key) {
  key.dynamic = true;
  return key;
}
// How codes of this element lie when they are not in 32-bit words.
[[nodiscard]] constexpr CodeForm form_of(Element element) {
  if (element == Element::int8 || element == Element::int4) return CodeForm::signed_bytes;
  if (element == Element::e2m1) return CodeForm::nibbles;
  return element == Element::e2m3 || element == Element::e3m2 ? CodeForm::six_bits : CodeForm::bytes;
}

}  // namespace moracle
