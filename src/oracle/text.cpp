// Texts of schemes, shapes and reasons, and the trace as JSON.
#include "oracle/decide.h"

#include "base/json.h"

namespace moracle {

void append_scheme(std::string& out, const Scheme& scheme) {
  append(out, scheme.weight);
  if (scheme.activation) {
    out += ", ";
    append(out, *scheme.activation);
    out += scheme.activation->dynamic ? " activations" : " static activations";
  } else if (scheme.weight.quantized()) {
    out += ", 16-bit activations";
  }
}

std::string scheme_text(const Scheme& scheme) {
  std::string text;
  append_scheme(text, scheme);
  return text;
}

std::string shape_text(const Problem& problem) {
  const std::string sizes = std::to_string(problem.hidden) + " -> " + std::to_string(problem.intermediate);
  if (problem.kind == ProblemKind::linear) return "[" + sizes + "]";
  return "[" + std::to_string(problem.experts) + " experts, top-" + std::to_string(problem.top_k) + ", " + sizes + "]";
}

std::string reason_text(const Reason& reason) {
  std::string text(reason.rule.name);
  text.append(": wanted ").append(reason.wanted).append(", found ").append(reason.found);
  return text;
}

Json trace_json(const Decision& decision) {
  Json trace = Json::array();
  for (const Candidate& candidate : decision.trace) {
    Json reasons = Json::array();
    for (const Reason& reason : candidate.reasons)
      reasons.push_back({{"rule", reason.rule.name}, {"wanted", reason.wanted}, {"found", reason.found}});
    trace.push_back({{"backend", candidate.backend},
                     {"card", candidate.id},
                     {"supported", candidate.supported},
                     {"kind", candidate.kind.name},
                     {"reasons", std::move(reasons)}});
  }
  return trace;
}

}  // namespace moracle
