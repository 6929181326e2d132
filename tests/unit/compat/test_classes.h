// Classes and questions that the tests of vLLM's walk share. They stand for kinds of classes, not for vLLM's own.
#pragma once

#include <array>

#include "compat/vllm/classes/terms.h"
#include "compat/vllm/decide.h"

namespace moracle::vllm::test {

inline constexpr std::array kDevices{host(static_cast<CpuFeatures>(CpuFeature::avx2))};
inline constexpr std::array kWideDevices{host(static_cast<CpuFeatures>(CpuFeature::avx512_bf16))};
inline constexpr std::array kSchemes{w(kInt4Static32), w(kInt4Static32Asym)};
inline constexpr std::array kActivations{Fn::silu, Fn::swigluoai};

inline constexpr ExpertsClass kNarrow{.id = "vllm.Narrow",
                                      .backend = "narrow",
                                      .devices = kDevices,
                                      .schemes = kSchemes,
                                      .activations = kActivations,
                                      .ungated = false};
inline constexpr ExpertsClass kWide{.id = "vllm.Wide.second",
                                    .backend = "wide",
                                    .devices = kWideDevices,
                                    .schemes = kSchemes,
                                    .activations = kActivations,
                                    .ungated = false};
inline constexpr ExpertsClass kSlow = [] {
  ExpertsClass slow = kNarrow;
  slow.id = "vllm.Slow";
  slow.backend = "slow";
  slow.emulation = true;
  return slow;
}();

inline Question question() {
  Question question;
  question.layer.scheme.weight = kInt4Static32;
  question.layer.experts = 128;
  question.layer.top_k = 8;
  question.layer.hidden = 2048;
  question.layer.intermediate = 768;
  return question;
}

inline Machine machine() {
  Machine machine;
  machine.arch = "x86_64";
  machine.cpu_features = CpuFeature::avx2 | CpuFeature::avx512 | CpuFeature::avx512_bf16;
  machine.libraries = {"flash"};
  return machine;
}

}  // namespace moracle::vllm::test
