// Instances of the streaming kernel.
#pragma once

#include <cuda_runtime.h>

#include <cstdint>
#include <span>

#include "kernels/cuda/sm90/decode/plan.cuh"

namespace moracle::cuda {

inline constexpr int kFewDecodeTokens = 16;  // most of `few`

// The launches that serve weights of one kind and size under one form of input.
struct DecodeInstance {
  using Launch = int (*)(const DecodeArgs&, cudaStream_t);  // returns the runtime's error

  RecordKind kind;
  InputKind input;
  std::int32_t hidden;
  std::int32_t intermediate;
  Launch few;   // up to kFewDecodeTokens tokens
  Launch many;  // up to kDecodeTokens
};

// Each file of instances has its rows.
std::span<const DecodeInstance> int4_instances();
std::span<const DecodeInstance> sized_int4_instances();
std::span<const DecodeInstance> e2m1_instances();
std::span<const DecodeInstance> wide_instances();
std::span<const DecodeInstance> block_instances();

}  // namespace moracle::cuda
