// Intel GPUs.
#pragma once

#include <array>

#include "compat/vllm/classes/layouts.h"
#include "compat/vllm/classes/terms.h"

namespace moracle::vllm {

inline constexpr std::array kXPUDevices{kXpu};
inline constexpr std::array kXPUSchemes{kUnquantized};
inline constexpr std::array kXPUActivations{Fn::silu, Fn::gelu, Fn::gelu_tanh, Fn::swigluoai, Fn::relu2_no_mul};
inline constexpr ExpertsClass kXPUExperts{.id = "vllm.XPUExperts",
                                          .backend = "xpu",
                                          .summary = "unquantized",
                                          .devices = kXPUDevices,
                                          .schemes = kXPUSchemes,
                                          .activations = kXPUActivations};

inline constexpr std::array kXPUFp8Schemes{w(kFp8StaticTensorSym, kFp8DynamicTensorSym)};
inline constexpr ExpertsClass kXPUExpertsFp8{.id = "vllm.XPUExpertsFp8",
                                             .backend = "xpu",
                                             .summary = "FP8, one scale a tensor",
                                             .devices = kXPUDevices,
                                             .schemes = kXPUFp8Schemes,
                                             .activations = kXPUActivations};

inline constexpr std::array kXPUMxFp8Schemes{w(kMxfp8Static, kMxfp8Dynamic)};
inline constexpr ExpertsClass kXPUExpertsMxFp8{.id = "vllm.XPUExpertsMxFp8",
                                               .backend = "xpu",
                                               .summary = "MXFP8",
                                               .devices = kXPUDevices,
                                               .schemes = kXPUMxFp8Schemes,
                                               .activations = kXPUActivations};

inline constexpr std::array kXPUBlockFp8Schemes{w(kFp8Static128BlockSym, kFp8Dynamic128Sym)};
inline constexpr ExpertsClass kXPUExpertsBlockFp8{.id = "vllm.XPUExpertsBlockFp8",
                                                  .backend = "xpu",
                                                  .summary = "FP8, 128 x 128 blocks",
                                                  .devices = kXPUDevices,
                                                  .schemes = kXPUBlockFp8Schemes,
                                                  .activations = kXPUActivations};

inline constexpr std::array kXPUMxFp4Schemes{w(kMxfp4Static), w(kMxfp4Static, kMxfp4Dynamic)};
inline constexpr ExpertsClass kXPUExpertsMxFp4{.id = "vllm.XPUExpertsMxFp4",
                                               .backend = "xpu",
                                               .summary = "MXFP4",
                                               .devices = kXPUDevices,
                                               .schemes = kXPUMxFp4Schemes,
                                               .activations = kXPUActivations};

inline constexpr std::array kXPUWNA16Schemes{w(kInt4Static), w(kInt4Static32)};
inline constexpr ExpertsClass kXPUExpertsWNA16{.id = "vllm.XPUExpertsWNA16",
                                               .backend = "xpu",
                                               .summary = "int4 weights",
                                               .devices = kXPUDevices,
                                               .schemes = kXPUWNA16Schemes,
                                               .activations = kXPUActivations,
                                               .layouts = kXPUWNA16Layouts};

}  // namespace moracle::vllm
