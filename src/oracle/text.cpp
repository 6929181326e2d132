// One-line renderings and the trace as JSON.
#include <algorithm>

#include "oracle/decide.h"

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
  std::string text(to_string(reason.rule));
  text.append(": wanted ").append(reason.wanted).append(", found ").append(reason.found);
  return text;
}

std::string explain_line(const Problem& problem, const Decision& decision, std::size_t layers) {
  std::string text = problem.kind == ProblemKind::experts ? "experts" : "linear";
  if (layers > 1) text += " x" + std::to_string(layers);
  text += " " + shape_text(problem) + ": " + scheme_text(problem.scheme) + " -> ";
  const auto can = std::count_if(decision.trace.begin(), decision.trace.end(),
                                 [](const Candidate& candidate) { return candidate.supported; });
  const auto cannot = static_cast<std::ptrdiff_t>(decision.trace.size()) - can;
  if (decision.winner == nullptr) {
    text += "none (" + std::to_string(cannot) + " cannot)";
  } else {
    const auto others = can - 1;
    text += std::string(decision.winner->backend) + " (" + std::to_string(others) +
            (others == 1 ? " other can, " : " others can, ") + std::to_string(cannot) + " cannot)";
  }
  if (!decision.if_built.empty() && (decision.winner == nullptr || decision.winner != decision.best_if_built))
    text += ", " + std::string(decision.if_built) + " if this build had it";
  return text;
}

Json trace_json(const Decision& decision) {
  Json trace = Json::array();
  for (const Candidate& candidate : decision.trace) {
    Json reasons = Json::array();
    for (const Reason& reason : candidate.reasons)
      reasons.push_back({{"rule", to_string(reason.rule)}, {"wanted", reason.wanted}, {"found", reason.found}});
    trace.push_back({{"backend", candidate.backend},
                     {"card", candidate.id},
                     {"supported", candidate.supported},
                     {"kind", to_string(candidate.kind)},
                     {"reasons", std::move(reasons)}});
  }
  return trace;
}

}  // namespace moracle
