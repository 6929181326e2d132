#include "scheme/quant_key.h"

#include <string_view>

namespace moracle {
namespace {

std::string_view name_of(Element element) {
  switch (element) {
    case Element::f32:
      return "f32";
    case Element::f16:
      return "f16";
    case Element::bf16:
      return "bf16";
    case Element::int8:
      return "int8";
    case Element::int4:
      return "int4";
    case Element::e4m3:
      return "fp8";
    case Element::e5m2:
      return "fp8 e5m2";
    case Element::e2m1:
      return "fp4";
    case Element::e2m3:
      return "fp6 e2m3";
    case Element::e3m2:
      return "fp6 e3m2";
  }
  return "unknown";
}

std::string granularity_text(const Granularity& granularity) {
  switch (granularity.kind) {
    case Granularity::Kind::none:
      return "";
    case Granularity::Kind::tensor:
      return " tensor";
    case Granularity::Kind::channel:
      return " channel";
    case Granularity::Kind::token:
      return " token";
    case Granularity::Kind::group:
      // A width that the key leaves open.
      return granularity.cols < 1 ? " group" : " g" + std::to_string(granularity.cols);
    case Granularity::Kind::block:
      return " block " + std::to_string(granularity.rows) + "x" + std::to_string(granularity.cols);
  }
  return "";
}

// The combinations that have a name of their own.
std::string_view well_known(const QuantKey& key) {
  if (key.scale == ScaleType::e8m0 && key.granularity == Granularity::group(32)) {
    if (key.element == Element::e2m1) return "mxfp4";
    if (key.element == Element::e4m3) return "mxfp8";
    if (key.element == Element::e2m3) return "mxfp6 e2m3";
    if (key.element == Element::e3m2) return "mxfp6 e3m2";
  }
  if (key.element == Element::e2m1 && key.scale == ScaleType::e4m3 && key.granularity == Granularity::group(16) &&
      key.second_level)
    return "nvfp4";
  return "";
}

}  // namespace

int bits_of(Element element) {
  switch (element) {
    case Element::f32:
      return 32;
    case Element::f16:
    case Element::bf16:
      return 16;
    case Element::int8:
    case Element::e4m3:
    case Element::e5m2:
      return 8;
    case Element::e2m3:
    case Element::e3m2:
      return 6;
    case Element::int4:
    case Element::e2m1:
      return 4;
  }
  return 0;
}

std::string to_string(const QuantKey& key) {
  if (!key.quantized()) return std::string(name_of(key.element));
  std::string text(well_known(key));
  if (text.empty()) {
    text = std::string(name_of(key.element)) + granularity_text(key.granularity);
    if (key.scale == ScaleType::e8m0) text += " e8m0";
    // Whether zero points are stored is said where both kinds are common.
    const bool integer = key.element == Element::int4 || key.element == Element::int8;
    if (!key.symmetric)
      text += " asym";
    else if (integer && key.granularity.kind == Granularity::Kind::group)
      text += " sym";
    if (key.second_level) text += " two-level";
  }
  if (key.dynamic) text += " dynamic";
  return text;
}

std::string to_string(const Scheme& scheme) {
  std::string text = "W: " + to_string(scheme.weight);
  if (scheme.activation) {
    text += ", A: " + to_string(*scheme.activation);
    if (!scheme.activation->dynamic) text += " static";
  }
  return text;
}

}  // namespace moracle
