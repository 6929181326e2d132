// compressed-tensors: what a config group says, and the schemes it may describe. A scheme is one file and one line in
// ct_schemes().
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "format/decode/stored_scheme.h"
#include "format/format.h"
#include "format/rules/quant_config.h"

namespace moracle {

// One `weights` or `input_activations` block.
struct CtArgs {
  std::int64_t num_bits = 8;
  std::string type = "int";  // int, float
  bool symmetric = true;
  std::string strategy;  // tensor, channel, group, tensor_group, block, token
  std::int64_t group_size = -1;
  std::string dynamic = "false";    // false, true, local
  std::string actorder;             // "", static, weight, group, dynamic
  std::vector<std::int64_t> block;  // rows, columns of a block
  std::string scale_dtype;          // "torch.uint8", ..., "" unsaid

  [[nodiscard]] std::string text() const;  // "int4 group 128", for messages
};

struct CtGroup {
  std::string name;      // "group_0"
  std::string format{};  // its own, else the config's
  CtArgs weights{};
  std::optional<CtArgs> activation{};
};

struct CtSchemeRow {
  std::string_view format;  // the group's format
  std::string_view what;    // for messages: "int4 and int8 weights, ..."
  // Null when the group is of this format but not of this scheme.
  std::shared_ptr<const StoredScheme> (*make)(const CtGroup& group, const std::shared_ptr<ValueNotes>& notes);
};

[[nodiscard]] std::span<const CtSchemeRow> ct_schemes();

// Errors: "config.type", "config.range", "config.missing".
Result<CtGroup> parse_ct_group(const QuantConfig& config, const std::string& name, const Json& group);

// The key of a group's activations; empty inside for none. Empty outside when there is no such scheme.
[[nodiscard]] std::optional<std::optional<QuantKey>> ct_activation(const CtGroup& group);

std::shared_ptr<const StoredScheme> make_ct_pack_quantized(const CtGroup& group,
                                                           const std::shared_ptr<ValueNotes>& notes);
std::shared_ptr<const StoredScheme> make_ct_int_quantized(const CtGroup& group,
                                                          const std::shared_ptr<ValueNotes>& notes);
std::shared_ptr<const StoredScheme> make_ct_float_quantized(const CtGroup& group,
                                                            const std::shared_ptr<ValueNotes>& notes);
std::shared_ptr<const StoredScheme> make_ct_mxfp8(const CtGroup& group, const std::shared_ptr<ValueNotes>& notes);
std::shared_ptr<const StoredScheme> make_ct_nvfp4(const CtGroup& group, const std::shared_ptr<ValueNotes>& notes);
std::shared_ptr<const StoredScheme> make_ct_mxfp4(const CtGroup& group, const std::shared_ptr<ValueNotes>& notes);

}  // namespace moracle
