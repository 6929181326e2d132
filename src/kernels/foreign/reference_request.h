// Questions to the reference engine's oracles as lines of JSON, and the answers of Moracle's walk over its tables.
#pragma once

#include <string>
#include <string_view>

#include "base/result.h"
#include "oracle/decide.h"

namespace moracle {

// A question in Moracle's terms.
struct ReferenceQuestion {
  std::string id;
  const Table* table = nullptr;
  Problem problem;
  Machine machine;
  Policy policy;
};

// `line`: {"id", "oracle", "platform": {"kind", "arch", "libs", "capability"}, "request": {"quant", "activation",
// "routing", "shape", "parallel", "dtype", "router_logits_dtype", "moe_backend", "has_bias", "lora", "hash_routing",
// "require_decomposed", "swiglu_limit", "swiglu_alpha", "swiglu_beta", "env"}}, with the reference's own names. Members
// it does not know are passed over. Errors: those of parse_json and JsonReader, "request.unknown" for a name that is
// not the reference's.
[[nodiscard]] Result<ReferenceQuestion> read_reference_question(std::string_view line);

// {"id", "result": {"backend", "experts_class"} or {"error"}, each perhaps with "notes", "trace": [{"backend",
// "experts_class", "activation_key", "supported", "reason_kind"}]} on one line, without a newline. `reason_kind` is the
// first failing check in the reference's order and spelling.
[[nodiscard]] Result<std::string> answer_reference_request(std::string_view json_line);
// The answer to a question that was read, for benchmarks and tests.
[[nodiscard]] Decision decide_reference(const ReferenceQuestion& question);

}  // namespace moracle
