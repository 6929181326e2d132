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

void append(std::string& out, const Granularity& granularity) {
  switch (granularity.kind) {
    case Granularity::Kind::none:
      return;
    case Granularity::Kind::tensor:
      out += " tensor";
      return;
    case Granularity::Kind::channel:
      out += " channel";
      return;
    case Granularity::Kind::token:
      out += " token";
      return;
    case Granularity::Kind::group:
      // A width that the key leaves open.
      out += granularity.cols < 1 ? " group" : " g";
      if (granularity.cols >= 1) out += std::to_string(granularity.cols);
      return;
    case Granularity::Kind::block:
      out += " block ";
      out += std::to_string(granularity.rows);
      out += 'x';
      out += std::to_string(granularity.cols);
      return;
  }
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

void append(std::string& out, const QuantKey& key) {
  if (!key.quantized()) {
    out += name_of(key.element);
    return;
  }
  const std::string_view known = well_known(key);
  out += known;
  if (known.empty()) {
    out += name_of(key.element);
    append(out, key.granularity);
    if (key.scale == ScaleType::e8m0) out += " e8m0";
    // Whether zero points are stored is said where both kinds are common.
    const bool integer = key.element == Element::int4 || key.element == Element::int8;
    if (!key.symmetric)
      out += " asym";
    else if (integer && key.granularity.kind == Granularity::Kind::group)
      out += " sym";
    if (key.second_level) out += " two-level";
  }
  if (key.dynamic) out += " dynamic";
}

std::string to_string(const QuantKey& key) {
  std::string text;
  append(text, key);
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
