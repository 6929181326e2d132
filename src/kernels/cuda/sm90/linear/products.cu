// Which linears of several tokens take warpgroup products, and whose.
#include "kernels/cuda/common/launch.h"

namespace moracle::cuda {

int launch_products_int4(const LinearArgs& linear, const FormedInputs& inputs, cudaStream_t stream);
int launch_products_int8(const LinearArgs& linear, const FormedInputs& inputs, cudaStream_t stream);
int launch_products_e4m3(const LinearArgs& linear, const FormedInputs& inputs, cudaStream_t stream);
int launch_products_bf16(const LinearArgs& linear, const FormedInputs& inputs, cudaStream_t stream);

bool are_products(const LinearArgs& linear) {
  if (!has_sm90() || linear.tokens <= kMostRounded || linear.batch_invariant != 0) return false;
  for (int part = 0; part < linear.count; ++part) {
    const LinearPart& of = linear.parts[part];
    if (of.matrix.rows % 4 != 0 || reinterpret_cast<std::uintptr_t>(of.y) % 16 != 0) return false;
  }
  return true;
}

int launch_products(const LinearArgs& linear, const FormedInputs& inputs, cudaStream_t stream) {
  switch (linear.parts[0].pack.code) {
    case DeviceCode::int4:
      return launch_products_int4(linear, inputs, stream);
    case DeviceCode::int8:
      return launch_products_int8(linear, inputs, stream);
    case DeviceCode::e4m3:
      return launch_products_e4m3(linear, inputs, stream);
    case DeviceCode::bf16:
      return launch_products_bf16(linear, inputs, stream);
    default:
      break;
  }
  return cudaErrorInvalidValue;
}

}  // namespace moracle::cuda
