// Questions to vLLM's oracles as lines of JSON, and the answers of the walk over its tables.
#pragma once

#include <string>
#include <string_view>

#include "base/result.h"
#include "compat/vllm/decide.h"
#include "machine/machine.h"

namespace moracle::vllm {

struct Request {
  std::string id;
  const Table* table = nullptr;
  Question question;
  Machine machine;
  Policy policy;
};

// `line`: {"id", "oracle", "platform": {"kind", "arch", "libs", "capability"}, "request": {"quant", "activation",
// "routing", "shape", "parallel", "dtype", "router_logits_dtype", "moe_backend", "has_bias", "lora", "hash_routing",
// "require_decomposed", "swiglu_limit", "swiglu_alpha", "swiglu_beta", "env"}}, with vLLM's own names. Members it does
// not know are passed over. Errors: those of parse_json and JsonReader, "request.unknown" for a name that vLLM lacks.
[[nodiscard]] Result<Request> read_request(std::string_view line);

// {"id", "result": {"backend", "experts_class"} or {"error"}, each perhaps with "notes", "trace": [{"backend",
// "experts_class", "activation_key", "supported", "reason_kind"}]} on one line, without a newline. `reason_kind` is the
// first failing check in vLLM's order and spelling.
[[nodiscard]] Result<std::string> answer_request(std::string_view line);
[[nodiscard]] Decision decide(const Request& request);

}  // namespace moracle::vllm
