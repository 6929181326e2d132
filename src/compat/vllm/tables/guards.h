// Conditions under which rows of the tables exist, and what vLLM's configuration refuses before any oracle is asked.
#pragma once

#include <array>
#include <string_view>

#include "compat/vllm/classes/terms.h"
#include "compat/vllm/decide.h"

namespace moracle::vllm {

inline constexpr std::string_view kOrder = "vLLM's order";

inline constexpr std::array kOnCudaOrRocm{Condition{.devices = {cuda(), rocm()}}};
// On 9.0 Humming is ahead of Marlin.
inline constexpr std::array kOnSm90{Condition{.devices = {kSm90}}};
inline constexpr std::array kOnXpu{Condition{.devices = {kXpu}}};
inline constexpr std::array kOnCpu{Condition{.devices = {host()}}};
inline constexpr std::array kOnCuda{Condition{.devices = {cuda()}}};
inline constexpr std::array kOnRocm{Condition{.devices = {rocm()}}};
inline constexpr std::array kOnGpu{Condition{.devices = {cuda(), rocm(), kXpu}}};
inline constexpr std::array kOnSm12x{Condition{.devices = {kSm12x}}};
// FP8 in 128 x 128 blocks on 9.0: Triton first, or FlashInfer CUTLASS under expert parallelism.
inline constexpr std::array kSm90BlocksWithEp{
    Condition{.devices = {kSm90}, .schemes = {w(kFp8Static128BlockSym, kFp8Dynamic128Sym)}, .ep = true}};
inline constexpr std::array kSm90BlocksWithoutEp{
    Condition{.devices = {kSm90}, .schemes = {w(kFp8Static128BlockSym, kFp8Dynamic128Sym)}, .ep = false}};
inline constexpr std::array kSm10xBlocksOverDeepEpV2{Condition{
    .devices = {kSm10x}, .schemes = {w(kFp8Static128BlockSym, kFp8Dynamic128Sym)}, .all2alls = {"deepep_v2"}}};
// AITER is out: switched off, or an RDNA4 GPU, whose AITER has no experts kernels.
inline constexpr std::array kAiterOff{
    Condition{.devices = {rocm()}, .facts = {{"VLLM_ROCM_USE_AITER", "0"}}},
    Condition{.devices = {rocm()}, .facts = {{"VLLM_ROCM_USE_AITER_MOE", "0"}}},
    Condition{.devices = {rocm("gfx1201")}, .libraries = {"aiter"}, .facts = {kAiterOn}}};
inline constexpr std::array kCutlassNotAllowed{Condition{.facts = {{"caller.allow_vllm_cutlass", "1", false}}}};
// DeepGEMM is out: switched off, or a model whose accuracy suffers from its E8M0 scales.
inline constexpr std::array kDeepGemmOff{
    Condition{.facts = {{"VLLM_USE_DEEP_GEMM", "0"}}}, Condition{.facts = {{"VLLM_MOE_USE_DEEP_GEMM", "0"}}},
    Condition{.devices = {kSm10x, kSm12x, rocm("gfx1201"), rocm("gfx1250")},
              .facts = {{"caller.model_type", "qwen3_5_moe_text"}}},
    Condition{.devices = {kSm12x, rocm("gfx1201"), rocm("gfx1250")}, .facts = {{"caller.model_type", "kolibri1"}}}};
// Backends without the clamp are out.
inline constexpr std::array kSwigluLimit{Condition{.stated_limit = true}};
// Unquantized on 9.x, or an activation they lack: FlashInfer behind Triton.
inline constexpr std::array kTrtllmLast{Condition{.devices = {cuda(90, 99)}},
                                        Condition{.devices = {cuda()}, .activations = {Fn::swigluoai}}};
inline constexpr std::array kCutlassLast{Condition{.devices = {cuda(90, 99)}},
                                         Condition{.devices = {cuda()}, .activations = {Fn::swigluoai}},
                                         Condition{.devices = {cuda()}, .dp = true}};
inline constexpr std::array kDeepseekV4OnRocm{Condition{.devices = {rocm()}, .routings = {Routing::sqrtsoftplus_bias}}};
inline constexpr std::array kLora{Condition{.lora = true}};
inline constexpr std::array kForceA16{Condition{.facts = {{"VLLM_B12X_MOE_FP4_FORCE_A16", "1"}}}};
inline constexpr std::array kAsksQuantized{Condition{.quantized_activations = true}};
inline constexpr std::array kAsksPlain{Condition{.quantized_activations = false}};
inline constexpr std::array kAsksMxfp8{Condition{.schemes = {w(kMxfp4Static, kMxfp8Dynamic)}}};
inline constexpr std::array kAsksFp8Static{Condition{.schemes = {w(kMxfp4Static, kFp8StaticTensorSym)}}};
inline constexpr std::array kAsksMxfp4{Condition{.schemes = {w(kMxfp4Static, kMxfp4Dynamic)}}};

// Everything with a gate.
inline constexpr SetOf<Fn> kGated{Fn::silu,       Fn::gelu, Fn::gelu_tanh, Fn::swigluoai, Fn::swigluoai_split,
                                  Fn::swiglustep, Fn::situ, Fn::relu2};
inline constexpr std::array kConfiguration{
    Verdict{.code = "config:mori_requires_aiter",
            .when = {.all2alls = {"mori_high_throughput", "mori_low_latency"}},
            .unless = Condition{.devices = {rocm("gfx942"), rocm("gfx950"), rocm("gfx1250")},
                                .libraries = {"aiter"},
                                .facts = {kAiterOn, kAiterExpertsOn},
                                .activations = kGated}},
    Verdict{.code = "config:no_act_and_mul_platform", .when = {.devices = {host()}, .activations = kUngated}}};
inline constexpr std::array kNoBackend{Exhausted{.code = "no_backend"}};

}  // namespace moracle::vllm
