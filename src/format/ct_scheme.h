// compressed-tensors: what a config group says, and the schemes it may describe. A scheme is one file and one line in
// ct_schemes().
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>

#include "format/format.h"
#include "format/packed_int.h"
#include "format/quant_config.h"

namespace moracle {

// One `weights` or `input_activations` block.
struct CtArgs {
  std::int64_t num_bits = 8;
  std::string type = "int";  // int, float
  bool symmetric = true;
  std::string strategy;  // tensor, channel, group, tensor_group, block, token
  std::int64_t group_size = -1;
  std::string dynamic = "false";  // false, true, local
  std::string actorder;           // "", static, weight, group, dynamic

  [[nodiscard]] std::string text() const;  // "int4 group 128", for messages
};

struct CtGroup {
  std::string name;      // "group_0"
  std::string format{};  // its own, else the config's
  CtArgs weights{};
  std::optional<CtArgs> activation{};
};

// How one config group stores and reads its modules.
class CtScheme {
 public:
  virtual ~CtScheme() = default;
  // The tensor without which a module is not quantized: "weight_packed".
  [[nodiscard]] virtual std::string_view codes_part() const = 0;
  [[nodiscard]] virtual Scheme scheme(const ModuleRef& module, const TensorLedger& ledger) const = 0;
  [[nodiscard]] virtual Result<CanonicalLinear> open(const ModuleRef& module, TensorLedger& ledger) const = 0;
};

struct CtSchemeRow {
  std::string_view format;  // the group's format
  std::string_view what;    // for messages: "int4 and int8 weights, ..."
  // Null when the group is of this format but not of this scheme.
  Result<std::unique_ptr<CtScheme>> (*make)(const CtGroup& group, const std::shared_ptr<ValueNotes>& notes);
};

[[nodiscard]] std::span<const CtSchemeRow> ct_schemes();

// Errors: "config.type", "config.range", "config.missing".
Result<CtGroup> parse_ct_group(const QuantConfig& config, const std::string& name, const Json& group);

Result<std::unique_ptr<CtScheme>> make_ct_pack_quantized(const CtGroup& group,
                                                         const std::shared_ptr<ValueNotes>& notes);

}  // namespace moracle
