#include "kernels/cpu/ops/kv_codes.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "scheme/codes.h"

namespace moracle::cpu {

namespace {

constexpr float kMost = 127.0F;  // of int8 codes

template <class T, class Encode>
void store(std::span<const float> x, std::byte* to, std::int64_t stride, const Encode& encode) {
  T* at = reinterpret_cast<T*>(to);  // blocks and their shares are aligned
  for (const float value : x) {
    *at = encode(value);
    at += stride;
  }
}

float store_int8(std::span<const float> x, std::byte* to, std::int64_t stride) {
  float largest = 0.0F;
  bool finite = true;
  for (const float value : x) {
    largest = std::max(largest, std::abs(value));
    finite = finite && std::isfinite(value);
  }
  const float scale = largest / kMost;
  if (!finite || scale == 0.0F) {
    store<std::int8_t>(x, to, stride, [](float) { return std::int8_t{0}; });
    return finite ? 0.0F : std::numeric_limits<float>::quiet_NaN();
  }
  store<std::int8_t>(x, to, stride, [scale](float value) {
    return static_cast<std::int8_t>(std::clamp(std::nearbyint(value / scale), -kMost, kMost));
  });
  return scale;
}

}  // namespace

float store_kv(KvType type, std::span<const float> x, std::byte* to, std::int64_t stride) {
  switch (type) {
    case KvType::f32:
      store<float>(x, to, stride, [](float value) { return value; });
      break;
    case KvType::bf16:
      store<std::uint16_t>(x, to, stride, encode_bf16);
      break;
    case KvType::int8:
      return store_int8(x, to, stride);
  }
  return 1.0F;
}

}  // namespace moracle::cpu
