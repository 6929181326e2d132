#include "cli/explain_vllm.h"

#include <fstream>

#include "base/printable.h"
#include "cli/explain_text.h"
#include "compat/vllm/layer.h"
#include "compat/vllm/request.h"
#include "compat/vllm/tables/tables.h"
#include "model/load/plan.h"
#include "oracle/explain.h"

namespace moracle::cli {

namespace {

vllm::Policy vllm_policy(const Policy& policy, const std::vector<std::string>& environment) {
  vllm::Policy result{.batch_invariant = policy.batch_invariant, .pinned = policy.pinned};
  for (const std::string& fact : environment) {
    const std::size_t sign = fact.find('=');
    result.facts.emplace_back(fact.substr(0, sign), fact.substr(sign + 1));
  }
  return result;
}

std::string choice_of(const vllm::Decision& decision) {
  return decision.chosen ? std::string(decision.backend()) : "nothing";
}

// With the order alone, what the walk that looks at the checkpoint would have chosen is said where it is another.
Decision decide_by_vllm(const vllm::Layer& layer, const Machine& machine, bool static_order) {
  const vllm::Decision walk = decide(layer.question, machine, layer.policy, *layer.table);
  const vllm::Table* const order = static_order ? static_order_of(*layer.table) : nullptr;
  if (order == nullptr) return explained(walk);
  vllm::Decision decision = decide(layer.question, machine, layer.policy, *order);
  if (choice_of(decision) != choice_of(walk)) {
    decision.warnings.push_back("by the static order " + choice_of(decision) +
                                "; the walk that looks at zero points, bias and source chooses " + choice_of(walk));
  }
  return explained(decision);
}

}  // namespace

Result<> explain_vllm(const LoadPlan& plan, const Machine& machine, const Policy& policy, const VllmOptions& options,
                      Console& console) {
  std::vector<ExplainedLayer> layers;
  const vllm::Policy asked = vllm_policy(policy, options.environment);
  const ModelSpec& spec = plan.opened().spec();
  for (const LayerSpec& row : spec.layers) {
    const auto* const moe = std::get_if<MoeSpec>(&row.feed_forward);
    if (moe == nullptr) continue;
    const std::string& name = moe->experts.name;
    const Problem& problem = *plan.modules()[plan.opened().index_of(name)].problem;
    const vllm::Question stored{
        .layer = problem, .routing = moe->routing.method, .dtype = spec.dtype, .source_layout = spec.info.format};
    MORACLE_ASSIGN(const vllm::Layer layer, vllm::as_vllm(stored, asked));
    layers.push_back({.name = name,
                      .problem = problem,
                      .decision = decide_by_vllm(layer, machine, options.static_order),
                      .also = std::string(to_string(stored.routing))});
  }
  const auto groups = group_layers(layers);
  if (options.json) {
    console.json({{"device", to_json(machine)}, {"layers", explain_json(groups)}, {"warnings", Json::array()}});
    return Ok{};
  }
  const ExplainStyle style = terminal_style(options.all, false);
  console.out(explain_title(options.model, machine, ", by vLLM's tables", style) +
              explain_text(groups, machine, style) + explain_hint(style));
  return Ok{};
}

Result<> answer_vllm_requests(const std::string& path, Console& console) {
  std::ifstream file(path);
  if (!file) return Error{.code = "file.open", .file = path, .wanted = "a readable file of requests", .found = "none"};
  std::string line;
  std::optional<Error> first;
  for (std::int64_t number = 1; std::getline(file, line) && !console.closed(); ++number) {
    if (line.find_first_not_of(" \t\r") == std::string::npos) continue;
    const Result<std::string> answer = vllm::answer_request(line);
    if (answer.ok()) {
      console.out(answer.value() + "\n");
      continue;
    }
    Error error = answer.error();
    error.file = path + ":" + std::to_string(number);
    console.note(printable(error.code + " " + error.file + " " + error.where + ": " + error.found, kShownLineBytes) +
                 "\n");
    if (!first) first = std::move(error);
  }
  if (first) return *first;
  if (file.bad()) return Error{.code = "file.read", .file = path, .wanted = "a readable file", .found = "an error"};
  return Ok{};
}

}  // namespace moracle::cli
