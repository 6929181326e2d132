#include "compat/vllm/layer.h"

#include <algorithm>
#include <array>
#include <string_view>

#include "compat/vllm/classes/terms.h"
#include "compat/vllm/tables/tables.h"

namespace moracle::vllm {
namespace {

using Kind = Granularity::Kind;

bool is_integer(Element element) {
  return element == Element::int4 || element == Element::int8;
}

// How a publisher's format reaches vLLM's integer oracle.
struct Packer {
  std::string_view format;
  std::string_view kind;
  bool knows_group_32;  // its key says so, and whether there are zero points
  bool may_have_bias;   // says so always
  bool allows_padding;
  bool allows_cutlass;  // for FP8
};
constexpr std::array kPackers{
    Packer{"gptq", "GPTQ", false, true, true, false}, Packer{"awq", "AWQ", false, true, true, false},
    Packer{"compressed-tensors", "CT", true, false, true, true}, Packer{"quark", "QUARK", true, false, false, false}};
constexpr Packer kOther{"", "", true, false, false, false};

const Packer& packer_of(std::string_view format) {
  const auto* it =
      std::find_if(kPackers.begin(), kPackers.end(), [format](const Packer& row) { return row.format == format; });
  return it == kPackers.end() ? kOther : *it;
}

// vLLM's integer keys name neither the scale's type nor most widths.
QuantKey integer_weight(const QuantKey& key, const Packer& packer, bool plain_activations) {
  if (!plain_activations && key.element == Element::int8) return {key.element, ScaleType::f32, key.granularity};
  const bool group_32 =
      packer.knows_group_32 && key.element == Element::int4 && key.granularity == Granularity::group(32);
  QuantKey weight{key.element, ScaleType::f16, Granularity::group(group_32 ? 32 : kAnyGroup)};
  weight.symmetric = key.symmetric || !packer.knows_group_32;
  return weight;
}

// vLLM's FP8 and INT8 scales are f32, whatever the checkpoint stores.
QuantKey with_f32_scale(QuantKey key) {
  if (key.quantized() && key.scale != ScaleType::e8m0 && key.scale != ScaleType::e4m3) key.scale = ScaleType::f32;
  return key;
}

const Table* oracle_for(const Scheme& scheme) {
  const QuantKey& weight = scheme.weight;
  if (!weight.quantized()) return &kUnquantizedTable;
  if (is_integer(weight.element)) {
    if (!scheme.activation) return &kWna16Table;
    if (weight.element == Element::int8) return &kInt8Table;
    return scheme.activation->element == Element::int8 ? &kW4A8Int8Table : &kW4A8Table;
  }
  if (weight.element == Element::e4m3)
    return weight.scale == ScaleType::e8m0 && weight.granularity.kind == Kind::group ? &kMxfp8Table : &kFp8Table;
  if (weight.element == Element::e2m1) return weight.second_level ? &kNvfp4Table : &kMxfp4Table;
  return nullptr;
}

}  // namespace

Result<Layer> as_vllm(const Question& stored, const Policy& policy) {
  const Problem& problem = stored.layer;
  Layer layer{oracle_for(problem.scheme), stored, policy};
  if (layer.table == nullptr || problem.kind != ProblemKind::experts) {
    return Error{.code = "oracle.no_table",
                 .wanted = "experts in a scheme that vLLM has an oracle for",
                 .found = to_string(problem.scheme)};
  }
  const Packer& packer = packer_of(stored.source_layout);
  Scheme& scheme = layer.question.layer.scheme;
  const QuantKey weight = scheme.weight;
  layer.question.source_layout = packer.kind;
  if (!weight.quantized()) {
    scheme.weight = {};
  } else if (is_integer(weight.element)) {
    scheme.weight = integer_weight(weight, packer, !scheme.activation);
    layer.question.source_group = weight.granularity.kind == Kind::group ? weight.granularity.cols : kAnyGroup;
  } else {
    scheme.weight = with_f32_scale(weight);
  }
  if (scheme.activation) scheme.activation = with_f32_scale(*scheme.activation);
  if (problem.activation.limit > 0) layer.question.stated_activation.limit = problem.activation.limit;
  if (packer.may_have_bias) layer.policy.facts.emplace_back("caller.may_have_bias", "1");
  if (packer.allows_padding) layer.policy.facts.emplace_back("caller.allow_tile_padding", "1");
  if (packer.allows_cutlass) layer.policy.facts.emplace_back("caller.allow_vllm_cutlass", "1");
  return layer;
}

}  // namespace moracle::vllm
