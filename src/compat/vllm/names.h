// vLLM's names and what they are here.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>

#include "machine/machine.h"
#include "scheme/glu.h"
#include "scheme/quant_key.h"
#include "scheme/routing.h"

namespace moracle::vllm {

// "kInt4Static" and the like, "fp8block:64", "custom:uint3b4|...".
struct NamedKey {
  QuantKey key{};
  std::int32_t code_bits = 0;  // see Question::code_bits
};
[[nodiscard]] std::optional<NamedKey> key_named(std::string_view name);
// The constant's name of an activation key; empty: it has none.
[[nodiscard]] std::string_view name_of_key(const QuantKey& key);

[[nodiscard]] std::optional<ActivationFn> activation_named(std::string_view name);
[[nodiscard]] std::optional<Routing> routing_named(std::string_view name);
[[nodiscard]] std::optional<Element> dtype_named(std::string_view name);

// A machine that has what the platform's library level stands for: "none", "default" or "all".
[[nodiscard]] std::optional<Machine> machine_of(std::string_view kind, std::string_view arch, std::string_view libs,
                                                int capability);

}  // namespace moracle::vllm
