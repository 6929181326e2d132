// Which kernel each scheme gets on each machine, as JSON on standard output: what docs/tools/oracle_svg.py draws.
//   {"shape", "machines": [{"name", "device"}], "rows": [{"scheme", "text", "cells": [{"backend", "kind"}]}]}
// On CPUs by Moracle's own tables, on the others by vLLM's. `backend` is
// null where nothing can serve; `kind` is "own", "emulation", "reference" or "decision_only".
#include <array>
#include <cstdio>
#include <string_view>

#include "base/json.h"
#include "compat/vllm/layer.h"
#include "kernels/kernel.h"
#include "machine/machine.h"
#include "oracle/decide.h"
#include "synth/layer_shapes.h"

namespace {

using namespace moracle;

constexpr std::array kMachines{"generic-x86-64", "zen3", "skylake-x", "zen4",   "a100",  "l40s",
                               "h200",           "b200", "rtx5090",   "mi300x", "mi355x"};
constexpr std::string_view kShape = "qwen3-30b-a3b";

Json own_cell(const Decision& decision) {
  if (!decision.best_candidate) return {{"backend", nullptr}, {"kind", nullptr}};
  const Candidate& best = decision.trace[*decision.best_candidate];
  const std::string_view kind = best.card->any_device_of_host ? "reference" : best.kind.name;
  return {{"backend", best.backend}, {"kind", kind}};
}

Json vllm_cell(const vllm::Decision& decision) {
  if (!decision.chosen) return {{"backend", nullptr}, {"kind", nullptr}};
  const vllm::Row& row = *decision.trace[*decision.chosen].row;
  const std::string_view kind = row.experts->emulation ? "emulation" : row.experts->kind().name;
  return {{"backend", row.backend}, {"kind", kind}};
}

Result<Json> decide_cell(const Problem& problem, Routing routing, const Machine& machine) {
  if (machine.device == DeviceKind::cpu) {
    MORACLE_ASSIGN(const Table* const table, table_for(problem.scheme));
    return own_cell(decide(problem, machine, {}, *table));
  }
  MORACLE_ASSIGN(const vllm::Layer layer,
                 vllm::as_vllm({.layer = problem, .routing = routing, .source_layout = "compressed-tensors"}, {}));
  return vllm_cell(vllm::decide(layer.question, machine, layer.policy, *layer.table));
}

Result<Json> map_of_decisions() {
  MORACLE_ASSIGN(const LayerShape shape, parse_layer_shape(std::string(kShape)));
  Json machines = Json::array();
  for (const char* name : kMachines) {
    MORACLE_ASSIGN(const Machine machine, resolve_machine(name));
    machines.push_back({{"name", name}, {"device", to_string(machine.device)}});
  }
  Json rows = Json::array();
  for (const std::string& name : scheme_names()) {
    MORACLE_ASSIGN(const NamedScheme scheme, find_scheme(name));
    const Problem problem = layer_problem(shape, scheme);
    Json cells = Json::array();
    for (const char* machine_name : kMachines) {
      MORACLE_ASSIGN(const Machine machine, resolve_machine(machine_name));
      MORACLE_ASSIGN(Json cell, decide_cell(problem, shape.routing, machine));
      cells.push_back(std::move(cell));
    }
    rows.push_back({{"scheme", name}, {"text", scheme_text(scheme.scheme)}, {"cells", std::move(cells)}});
  }
  return Json{{"shape", kShape}, {"machines", std::move(machines)}, {"rows", std::move(rows)}};
}

}  // namespace

int main() {
  const auto map = map_of_decisions();
  if (!map.ok()) {
    std::fprintf(stderr, "decision_map: %s\n", map.error().message().c_str());
    return 1;
  }
  return std::puts(map.value().dump(1).c_str()) < 0 ? 1 : 0;
}
