#include "format/decode/stored_linear.h"

#include "base/checked.h"
#include "format/rules/tensor_check.h"

namespace moracle {

Result<CanonicalLinear> StoredLinear::read() const {
  MORACLE_ASSIGN(CanonicalLinear linear, open(spec));
  if (!bias) return linear;
  MORACLE_ASSIGN(const std::vector<float> stored, read_floats(bias->tensor));
  linear.bias.resize(narrow<std::size_t>(spec.rows));
  for (std::size_t r = 0; r < linear.bias.size(); ++r)
    linear.bias[r] = stored[narrow<std::size_t>(bias->begin) + r * narrow<std::size_t>(bias->stride)];
  return linear;
}

Result<CanonicalExperts> StoredExperts::read() const {
  CanonicalExperts read{.name = name,
                        .hidden = hidden,
                        .intermediate = intermediate,
                        .scheme = scheme,
                        .zero_points = zero_points,
                        .bias = bias,
                        .interleaved = interleaved,
                        .experts = {}};
  read.experts.reserve(experts.size());
  for (const Expert& stored : experts) {
    CanonicalExperts::Expert& expert = read.experts.emplace_back();
    MORACLE_ASSIGN(expert.gate, stored.gate.read());
    if (stored.gated()) {
      MORACLE_ASSIGN(expert.up, stored.up.read());
    }
    MORACLE_ASSIGN(expert.down, stored.down.read());
    for (const CanonicalLinear* linear : matrices_of(expert))
      read.act_order = read.act_order || !linear->weight->spec().g_idx.empty();
  }
  return read;
}

}  // namespace moracle
