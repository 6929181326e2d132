#include "compat/vllm/names.h"

#include <algorithm>
#include <array>
#include <charconv>

#include "compat/vllm/classes/terms.h"

namespace moracle::vllm {
namespace {

template <class T>
struct Named {
  std::string_view name;
  T value;
};

template <class T, std::size_t N>
std::optional<T> find_named(const std::array<Named<T>, N>& list, std::string_view name) {
  const auto* it = std::find_if(list.begin(), list.end(), [name](const Named<T>& row) { return row.name == name; });
  return it == list.end() ? std::nullopt : std::optional<T>(it->value);
}

constexpr std::array kKeys{
    Named<QuantKey>{"kInt4Static", kInt4Static},
    Named<QuantKey>{"kInt4Static32", kInt4Static32},
    Named<QuantKey>{"kInt4StaticAsym", kInt4StaticAsym},
    Named<QuantKey>{"kInt4Static32Asym", kInt4Static32Asym},
    Named<QuantKey>{"kInt8Static", kInt8Static},
    Named<QuantKey>{"kInt8StaticChannelSym", kInt8StaticChannelSym},
    Named<QuantKey>{"kInt8StaticTensorSym", kInt8StaticTensorSym},
    Named<QuantKey>{"kInt8DynamicTokenSym", kInt8DynamicTokenSym},
    Named<QuantKey>{"kInt8DynamicTokenAsym", kInt8DynamicTokenAsym},
    Named<QuantKey>{"kInt8DynamicTensorSym", kInt8DynamicTensorSym},
    // The one pair of constants that are equal.
    Named<QuantKey>{"kInt4W4A8StaticChannelSym", kInt8StaticChannelSym},
    Named<QuantKey>{"kInt4W4A8StaticGroupSym", kInt4W4A8StaticGroupSym},
    Named<QuantKey>{"kInt4W4A8StaticGroup32Sym", kInt4W4A8StaticGroup32Sym},
    Named<QuantKey>{"kInt4W4A8StaticGroup64Sym", kInt4W4A8StaticGroup64Sym},
    Named<QuantKey>{"kInt4W4A8StaticGroup128Sym", kInt4W4A8StaticGroup128Sym},
    Named<QuantKey>{"kFp8StaticTensorSym", kFp8StaticTensorSym},
    Named<QuantKey>{"kFp8StaticChannelSym", kFp8StaticChannelSym},
    Named<QuantKey>{"kFp8Static128BlockSym", kFp8Static128BlockSym},
    Named<QuantKey>{"kFp8Static128BlockE8M0Sym", kFp8Static128BlockE8M0Sym},
    Named<QuantKey>{"kFp8DynamicTensorSym", kFp8DynamicTensorSym},
    Named<QuantKey>{"kFp8DynamicTokenSym", kFp8DynamicTokenSym},
    Named<QuantKey>{"kFp8Dynamic128Sym", kFp8Dynamic128Sym},
    Named<QuantKey>{"kMxfp8Static", kMxfp8Static},
    Named<QuantKey>{"kMxfp8Dynamic", kMxfp8Dynamic},
    Named<QuantKey>{"kMxfp4Static", kMxfp4Static},
    Named<QuantKey>{"kMxfp4Dynamic", kMxfp4Dynamic},
    Named<QuantKey>{"kMxfp6E3M2Dynamic", kMxfp6E3M2Dynamic},
    Named<QuantKey>{"kMxfp6E2M3Dynamic", kMxfp6E2M3Dynamic},
    Named<QuantKey>{"kNvfp4Static", kNvfp4Static},
    Named<QuantKey>{"kNvfp4Dynamic", kNvfp4Dynamic},
    Named<QuantKey>{"kNvfp4DynamicToken", kNvfp4DynamicToken},
};

constexpr std::array kActivations{
    Named<Fn>{"silu", Fn::silu},
    Named<Fn>{"gelu", Fn::gelu},
    Named<Fn>{"gelu_tanh", Fn::gelu_tanh},
    Named<Fn>{"swigluoai", Fn::swigluoai},
    Named<Fn>{"swigluoai_uninterleave", Fn::swigluoai_split},
    Named<Fn>{"swiglustep", Fn::swiglustep},
    Named<Fn>{"situ", Fn::situ},
    Named<Fn>{"relu2", Fn::relu2},
    Named<Fn>{"silu_no_mul", Fn::silu_no_mul},
    Named<Fn>{"gelu_no_mul", Fn::gelu_no_mul},
    Named<Fn>{"gelu_tanh_no_mul", Fn::gelu_tanh_no_mul},
    Named<Fn>{"relu2_no_mul", Fn::relu2_no_mul},
};

constexpr std::array kRoutings{
    Named<Routing>{"Default", Routing::softmax_topk},
    Named<Routing>{"RenormalizeNaive", Routing::softmax_topk_renorm},
    Named<Routing>{"Renormalize", Routing::topk_softmax},
    Named<Routing>{"Sigmoid", Routing::sigmoid},
    Named<Routing>{"SigmoidRenorm", Routing::sigmoid_renorm},
    Named<Routing>{"MiniMax2", Routing::sigmoid_bias_renorm},
    Named<Routing>{"DeepSeekV3", Routing::grouped_sigmoid_bias},
    Named<Routing>{"DeepseekV4", Routing::sqrtsoftplus_bias},
    Named<Routing>{"Llama4", Routing::topk_sigmoid},
    Named<Routing>{"Unspecified", Routing::unspecified},
    // No kernel of vLLM routes by itself in these ways.
    Named<Routing>{"TopK", Routing::unspecified},
    Named<Routing>{"Custom", Routing::unspecified},
    Named<Routing>{"Simulated", Routing::unspecified},
};

constexpr std::array kDtypes{
    Named<Element>{"bf16", Element::bf16},
    Named<Element>{"fp16", Element::f16},
    Named<Element>{"fp32", Element::f32},
};

std::optional<int> leading_number(std::string_view text) {
  int value = 0;
  const auto [stop, code] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (code != std::errc() || value < 1 || value > 4096) return std::nullopt;
  return value;
}

// "uint3b4|..." has an offset and is symmetric, "uint3|..." has zero points.
std::optional<NamedKey> custom_key(std::string_view spelled) {
  constexpr std::string_view kType = "uint";
  if (!spelled.starts_with(kType)) return std::nullopt;
  spelled.remove_prefix(kType.size());
  const std::optional<int> bits = leading_number(spelled);
  if (!bits || *bits > 8) return std::nullopt;
  const bool symmetric = spelled.substr(0, spelled.find('|')).find('b') != std::string_view::npos;
  NamedKey named{.key = symmetric ? kInt8Static : kInt8StaticAsym};
  if (*bits == 4) named.key = symmetric ? kInt4Static : kInt4StaticAsym;
  if (*bits != 4 && *bits != 8) named.code_bits = *bits;
  return named;
}

constexpr CpuFeatures kAvx512Host =
    CpuFeature::avx2 | CpuFeature::avx512 | CpuFeature::avx512_vnni | CpuFeature::avx512_bf16 | CpuFeature::avx512_vbmi;
constexpr CpuFeatures kAmxHost = kAvx512Host | CpuFeature::amx_tile | CpuFeature::amx_int8 | CpuFeature::amx_bf16;

struct Host {
  std::string_view name;
  std::string_view arch;
  CpuFeatures features;
  std::string_view library;  // at library level "all"
};
constexpr std::array kHosts{
    Host{"x86_avx512", "x86_64", kAvx512Host, {}},
    Host{"x86_zen", "x86_64", kAvx512Host, "zentorch"},
    Host{"x86_amx", "x86_64", kAmxHost, {}},
    Host{"x86_amx_fp8", "x86_64", kAmxHost | CpuFeature::amx_fp8, {}},
    Host{"arm", "aarch64", static_cast<CpuFeatures>(CpuFeature::neon), "cpu_int8"},
    Host{"power", "ppc64le", 0, "cpu_int8"},
};

std::vector<std::string> libraries_of(DeviceKind device, std::string_view level) {
  std::vector<std::string> libraries;
  const auto add = [&libraries](std::initializer_list<const char*> names) {
    libraries.insert(libraries.end(), names.begin(), names.end());
  };
  const bool all = level == "all";
  if (device == DeviceKind::cuda && (all || level == "default"))
    add({"flashinfer", "deep_gemm", "triton_kernels", "humming"});
  if (!all) return libraries;
  if (device == DeviceKind::cuda) add({"b12x", "hpc"});
  if (device == DeviceKind::rocm) add({"aiter", "rdna3_wna16"});
  if (device == DeviceKind::rocm || device == DeviceKind::xpu) add({"triton_kernels"});
  add({"quark"});
  return libraries;
}

}  // namespace

std::optional<NamedKey> key_named(std::string_view name) {
  constexpr std::string_view kBlock = "fp8block:";
  constexpr std::string_view kCustom = "custom:";
  if (name.starts_with(kCustom)) return custom_key(name.substr(kCustom.size()));
  if (name.starts_with(kBlock)) {
    const std::optional<int> side = leading_number(name.substr(kBlock.size()));
    if (!side) return std::nullopt;
    QuantKey key = kFp8Static128BlockSym;
    key.granularity = Granularity::block(*side, *side);
    return NamedKey{.key = key};
  }
  const std::optional<QuantKey> key = find_named(kKeys, name);
  return key ? std::optional(NamedKey{.key = *key}) : std::nullopt;
}

std::string_view name_of_key(const QuantKey& key) {
  const auto* it =
      std::find_if(kKeys.begin(), kKeys.end(), [&key](const Named<QuantKey>& row) { return row.value == key; });
  return it == kKeys.end() ? std::string_view() : it->name;
}

std::optional<ActivationFn> activation_named(std::string_view name) {
  return find_named(kActivations, name);
}

std::optional<Routing> routing_named(std::string_view name) {
  return find_named(kRoutings, name);
}

std::optional<Element> dtype_named(std::string_view name) {
  return find_named(kDtypes, name);
}

std::optional<Machine> machine_of(std::string_view kind, std::string_view arch, std::string_view libs, int capability) {
  const std::optional<DeviceKind> device = device_kind_named(kind);
  if (!device || (libs != "none" && libs != "default" && libs != "all")) return std::nullopt;
  Machine machine;
  machine.name = arch;
  machine.device = *device;
  machine.arch = arch;
  machine.libraries = libraries_of(*device, libs);
  if (*device == DeviceKind::cuda) {
    if (!arch.starts_with("sm") || arch.size() < 3) return std::nullopt;
    machine.arch = "sm_" + std::string(arch.substr(2));
    machine.capability = capability;
  }
  if (*device != DeviceKind::cpu) return machine;
  const auto* host = std::find_if(kHosts.begin(), kHosts.end(), [arch](const Host& row) { return row.name == arch; });
  if (host == kHosts.end()) return std::nullopt;
  machine.arch = host->arch;
  machine.cpu_features = host->features;
  if (libs == "all" && !host->library.empty()) machine.libraries.emplace_back(host->library);
  return machine;
}

}  // namespace moracle::vllm
