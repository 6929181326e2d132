#include "api/documents.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "base/memory.h"
#include "base/printable.h"
#include "model/load/device_room.h"
#include "oracle/explain.h"

namespace moracle {

namespace {

// The module at the start of "model.layers.0.mlp.experts: text"; null: the warning is about none.
const ModuleReport* module_of(const std::string& warning, const LoadPlan& plan) {
  const std::string name = warning.substr(0, warning.find(": "));
  const auto& modules = plan.modules();
  const auto found =
      std::find_if(modules.begin(), modules.end(), [&](const auto& module) { return module.name == name; });
  return found == modules.end() ? nullptr : &*found;
}

bool is_of_decision(const std::string& text, const ModuleReport& module) {
  if (!module.decision) return false;
  const auto& warnings = module.decision->warnings;
  return std::find(warnings.begin(), warnings.end(), text) != warnings.end();
}

}  // namespace

std::vector<std::string> warnings_of(const LoadPlan& plan, const WarningChoice& choice) {
  struct Told {
    std::string text;
    std::vector<std::string> modules;
  };
  std::vector<Told> told;
  for (const std::string& warning : plan.warnings()) {
    const ModuleReport* const module = module_of(warning, plan);
    const std::string text = module == nullptr ? warning : warning.substr(module->name.size() + 2);
    if (module != nullptr && !choice.decisions && is_of_decision(text, *module)) continue;
    auto known = std::find_if(told.begin(), told.end(), [&](const Told& each) { return each.text == text; });
    if (known == told.end()) known = told.insert(told.end(), Told{text, {}});
    if (module != nullptr) known->modules.push_back(module->name);
  }
  std::vector<std::string> lines;
  for (const Told& each : told) {
    const auto names = compress_names(each.modules);
    std::string line = each.text;
    for (std::size_t i = 0; i < std::min<std::size_t>(names.size(), 3); ++i) line += (i == 0 ? " (" : ", ") + names[i];
    if (names.size() > 3) line += fmt::format(" and {} more", names.size() - 3);
    lines.push_back(printable(line + (names.empty() ? "" : ")"), kShownLineBytes));
  }
  return lines;
}

Json inspect_json(const LoadPlan& plan, const Checkpoint& checkpoint) {
  const ModelInfo& info = plan.info();
  Json layers = Json::array();
  for (const ModuleReport& module : plan.modules()) {
    layers.push_back({{"name", module.name},
                      {"kind", module.kind},
                      {"scheme", to_string(module.scheme)},
                      {"excluded_by", module.excluded_by.empty() ? Json(nullptr) : Json(module.excluded_by)},
                      {"bytes", module.bytes}});
  }
  return {{"architecture", info.architecture},
          {"format", info.format},
          {"total_bytes", checkpoint.total_bytes()},
          {"parameters", plan.parameters()},
          {"layer_count", info.layers},
          {"hidden", info.hidden_size},
          {"vocabulary", info.vocab_size},
          {"max_positions", info.max_context},
          {"experts_per_layer", info.experts},
          {"experts_per_token", info.experts_per_token},
          {"layers", std::move(layers)},
          {"warnings", plan.warnings()}};
}

std::string numbers_text(const std::vector<int>& numbers) {
  std::string text;
  for (std::size_t i = 0; i < numbers.size();) {
    std::size_t last = i;
    while (last + 1 < numbers.size() && numbers[last + 1] == numbers[last] + 1) ++last;
    if (last < i + 2) last = i;
    text += (text.empty() ? "" : ", ") + std::to_string(numbers[i]);
    if (last > i) text += "-" + std::to_string(numbers[last]);
    i = last + 1;
  }
  return text;
}

std::string legal_text(const std::vector<Degree>& degrees) {
  std::vector<int> legal;
  for (const Degree& row : degrees) {
    if (row.legal()) legal.push_back(row.degree);
  }
  return numbers_text(legal);
}

namespace {

// "tp 3 does not divide 4 attention heads; legal: 1, 2, 4".
Error with_legal_degrees(Error error, const MemoryAnswer& plan) {
  const bool tp = error.code == "plan.tp";
  if (!tp && error.code != "plan.ep") return error;
  error.found += (error.wanted.empty() ? "" : ", wanted " + error.wanted + " (" + error.where + ")") +
                 "; legal: " + legal_text(tp ? plan.tp_degrees : plan.ep_degrees);
  error.where.clear();
  error.wanted.clear();
  return error;
}

std::string rule_text(const Degree& row) {
  return row.module + ": " + row.found + (row.wanted.empty() ? "" : "; wanted " + row.wanted);
}

Json degrees_json(const std::vector<Degree>& degrees) {
  Json rows = Json::array();
  for (const Degree& row : degrees) {
    rows.push_back(
        {{"degree", row.degree}, {"legal", row.legal()}, {"rule", row.legal() ? Json(nullptr) : Json(rule_text(row))}});
  }
  return rows;
}

bool runs_here(const LayerMemory& layer) {
  return layer.experts.card != nullptr && layer.experts.card->kind == CardKind::native && layer.experts.packed;
}

Json room_json(const MemoryOnDevice& device) {
  return {{"layers", device.layers_held}, {"of_layers", device.layers}, {"call_tokens", device.call_tokens}};
}

Json room_json(const ExpertRoom& room, const std::optional<double>& disk) {
  Json reads = Json::array();
  for (const int hits : kShownHits) {
    const std::uint64_t bytes = room.read_bytes(hits);
    reads.push_back({{"hits", hits / 100.0},
                     {"bytes_a_token", bytes},
                     {"most_tok_s", disk && bytes > 0 ? Json(*disk / static_cast<double>(bytes)) : Json(nullptr)}});
  }
  return {{"memory_bytes", room.bound},         {"disk_bytes_per_s", disk ? Json(*disk) : Json(nullptr)},
          {"floor_bytes", room.floor},          {"kv_cache_bytes", room.state},
          {"expert_bytes", room.experts},       {"all_fit", room.pool.slots == 0},
          {"slots", room.pool.slots},           {"experts", room.pool.experts},
          {"slot_bytes", room.pool.slot_bytes}, {"reads", room.pool.slots == 0 ? Json::array() : std::move(reads)}};
}

Json experts_json(const ExpertsKernel& kernel) {
  if (kernel.card == nullptr) return nullptr;
  return {{"backend", kernel.card->backend},
          {"card", kernel.card->id},
          {"kind", kernel.card->kind.name},
          {"packed", kernel.packed},
          {"bytes", kernel.bytes}};
}

}  // namespace

Result<MemoryAnswer> plan_memory(const std::filesystem::path& folder, const MemoryQuestion& question) {
  MemoryAnswer result{.tp = question.tp, .ep = question.ep};
  result.host = question.host;
  result.split = question.device != nullptr;
  result.machine = result.split ? question.device->machine() : question.host;
  MORACLE_ASSIGN(const auto checkpoint, Checkpoint::open(folder));
  const Place place{question.host, question.device};
  const bool whole = question.tp * question.ep == 1;  // else of a rank, which is asked what it takes
  auto planned = whole ? plan_for_room(checkpoint, place, question.policy, {},
                                       {.context = question.context, .threads = question.host.cores, .kv = question.kv})
                       : LoadPlan::make(checkpoint, place, question.policy, GpuModules::all);
  MORACLE_ASSIGN(const std::unique_ptr<LoadPlan> plan, std::move(planned));
  result.info = plan->info();
  result.max_context = result.info.max_context;
  const bool cpu = result.machine.device == DeviceKind::cpu;
  result.tp_degrees = tensor_degrees(*plan);
  result.ep_degrees = expert_degrees(*plan);
  const MemoryPlanOptions call{
      .tp = question.tp,
      .ep = question.ep,
      .context = question.context != 0 ? question.context : std::min(kUsualContext, result.max_context),
      .batch_tokens = plan->prefill_chunk(),
      .threads = cpu || result.split ? result.host.cores : 1,
      .kv = question.kv};
  const auto counted = memory_plan(*plan, call);
  if (!counted.ok()) return with_legal_degrees(counted.error(), result);
  result.memory = counted.value();
  if (question.memory > 0) {
    if (question.tp * question.ep > 1) {
      return Error{.code = "memory.ranks",
                   .where = "--memory",
                   .wanted = "one rank",
                   .found = std::to_string(question.tp * question.ep)};
    }
    MORACLE_ASSIGN(result.room, expert_room(*plan, {.memory = question.memory}, call));
  } else if (question.free > 0 && question.tp * question.ep == 1) {
    const auto room = usual_room(*plan, question.free, {}, call);
    if (room.ok() && room->pool.slots > 0) result.room = *room;
  }
  if (question.measure_disk && result.room && result.room->pool.slots > 0) result.disk = measure_expert_reads(*plan);
  result.warnings =
      warnings_of(*plan, {.decisions = cpu || result.split});  // a note says that no kernel for another device is here
  return result;
}

namespace {

// Weights that a decoded token reads: every one that is no expert's, and of experts those that it is routed to.
struct TokenBytes {
  std::uint64_t on_host = 0;
  std::uint64_t on_device = 0;
};
TokenBytes token_bytes(const MemoryPlan& memory, const ModelInfo& info) {
  const auto chosen = static_cast<std::uint64_t>(info.experts_per_token);
  const auto experts = static_cast<std::uint64_t>(std::max<std::int64_t>(info.experts, 1));
  TokenBytes bytes;
  std::uint64_t& main = memory.on_device.main ? bytes.on_device : bytes.on_host;
  main = memory.head + memory.final_norm;
  for (const LayerMemory& layer : memory.layers) {
    const KernelCard* const card = layer.experts.card;
    const bool there = card != nullptr && card->device != DeviceKind::cpu && !card->any_device_of_host;
    (there ? bytes.on_device : bytes.on_host) += layer.experts.bytes / experts * chosen;
    main += layer.rest();
  }
  return bytes;
}

}  // namespace

std::vector<MemoryAnswer::Share> MemoryAnswer::shares() const {
  const MemoryOnDevice& device = memory.on_device;
  const TokenBytes token = token_bytes(memory, info);
  std::vector<Share> result{{.machine = host.name,
                             .weights = memory.weights() - device.weights,
                             .state = memory.state - device.state,
                             .workspace = memory.workspace,
                             .memory = host.memory_bytes,
                             .token_bytes = token.on_host + (split ? 0 : token.on_device)}};
  if (split) {
    result.push_back({.machine = machine.name,
                      .weights = device.weights,
                      .state = device.state,
                      .workspace = device.workspace,
                      .memory = machine.memory_bytes,
                      .token_bytes = token.on_device,
                      .read_gb_s = nominal_read_gb_s(machine),
                      .free = device.free});
  }
  return result;
}

bool MemoryAnswer::fits() const {
  const std::vector<Share> all = shares();
  return std::all_of(all.begin(), all.end(), [](const Share& share) { return share.fits(); });
}

Json plan_json(const MemoryAnswer& plan) {
  Json machines = Json::array();
  for (const MemoryAnswer::Share& share : plan.shares()) {
    machines.push_back({{"name", share.machine},
                        {"weight_bytes", share.weights},
                        {"kv_cache_bytes", share.state},
                        {"workspace_bytes", share.workspace},
                        {"total_bytes", share.total()},
                        {"memory_bytes", share.memory},
                        {"token_bytes", share.token_bytes},
                        {"free_bytes", share.free ? Json(*share.free) : Json(nullptr)},
                        {"fits", share.fits()},
                        {"room", share.free ? room_json(plan.memory.on_device) : Json(nullptr)}});
  }
  const MemoryPlan& memory = plan.memory;
  Json layers = Json::array();
  for (const LayerMemory& layer : memory.layers) {
    layers.push_back({{"name", layer.name},
                      {"mixer_bytes", layer.mixer},
                      {"feed_forward_bytes", layer.feed_forward},
                      {"norm_bytes", layer.norms},
                      {"kv_cache_bytes", layer.state},
                      {"experts_backend", runs_here(layer) ? Json(layer.experts.card->backend) : Json(nullptr)},
                      {"experts_kernel", experts_json(layer.experts)}});
  }
  return {{"device", to_json(plan.machine)},
          {"tp", plan.tp},
          {"ep", plan.ep},
          {"ranks", plan.tp * plan.ep},
          {"context", memory.context},
          {"batch_tokens", memory.batch_tokens},
          {"layers", std::move(layers)},
          {"embedding_bytes", memory.embedding},
          {"head_bytes", memory.head},
          {"final_norm_bytes", memory.final_norm},
          {"weight_bytes", memory.weights()},
          {"kv_cache_bytes", memory.state},
          {"workspace_bytes", memory.workspace + memory.on_device.workspace},
          {"total_bytes", memory.total()},
          {"memory_bytes", plan.machine.memory_bytes},
          {"fits", plan.fits()},
          {"machines", std::move(machines)},
          {"packed", memory.packed},
          {"tp_degrees", degrees_json(plan.tp_degrees)},
          {"ep_degrees", degrees_json(plan.ep_degrees)},
          {"bound", plan.room ? room_json(*plan.room, plan.disk) : Json(nullptr)},
          {"warnings", plan.warnings}};
}

std::string fault_of(const Verification& result) {
  if (!result.checkpoint_ok()) return result.backend_ok() ? "checkpoint" : "checkpoint and backend";
  return result.backend_ok() ? "" : "backend";
}

namespace {

Json number(double value) {
  return std::isfinite(value) ? Json(value) : Json(nullptr);
}

}  // namespace

Json verify_json(const Verification& result) {
  Json layers = Json::array();
  for (const LayerVerdict& layer : result.layers) {
    layers.push_back({{"name", layer.name},
                      {"backend", layer.backend},
                      {"max_abs_err", number(layer.difference.max_abs)},
                      {"mean_abs_err", number(layer.difference.mean_abs)},
                      {"rel_err", number(layer.difference.relative)},
                      {"cosine", number(layer.difference.cosine)},
                      {"bound", layer.bound},
                      {"ok", layer.ok}});
    if (layer.ranks) {
      layers.back()["ranks"] = {{"rel_err", number(layer.ranks->relative)},
                                {"bound", layer.ranks->bound},
                                {"same_bits", layer.ranks->same_bits},
                                {"ok", layer.ranks->ok()}};
    }
  }
  Json findings = Json::array();
  for (const Finding& finding : result.findings) {
    findings.push_back({{"tensor", finding.tensor},
                        {"finding", finding.finding},
                        {"severity", finding.severity == Finding::Severity::error ? "error" : "warning"}});
  }
  const std::string fault = fault_of(result);
  return {{"layers", std::move(layers)}, {"checkpoint_findings", std::move(findings)},
          {"ok", result.ok()},           {"fault", fault.empty() ? Json(nullptr) : Json(fault)},
          {"tokens", result.tokens},     {"interrupted", result.interrupted}};
}

void Reply::add(const ReplyEvent& event) {
  std::visit(EventVisitor{[&](const TextEvent& piece) { answer += piece.text; },
                          [&](const ReasoningEvent& piece) { reasoning += piece.text; },
                          [&](const CallStartEvent& call) { calls.push_back({.id = call.id, .name = call.name}); },
                          [&](const CallArgumentsEvent& piece) { calls.back().arguments += piece.text; },
                          [](const EndEvent&) {}},
             event);
}

void Reply::keep_calls(std::int64_t whole) {
  calls.resize(std::min(calls.size(), static_cast<std::size_t>(whole)));
}

Json calls_json(std::span<const ToolCall> calls) {
  Json list = Json::array();
  for (const ToolCall& call : calls) {
    list.push_back(
        {{"id", call.id}, {"type", "function"}, {"function", {{"name", call.name}, {"arguments", call.arguments}}}});
  }
  return list;
}

Json run_json(const Session& session, const Reply& reply, std::span<const std::int32_t> prompt) {
  const Generation& generation = reply.generation;
  const GenerationTiming& timing = generation.timing;
  const bool stopped_early = generation.finish == FinishReason::interrupted;
  return {{"text", reply.text},
          {"reasoning", reply.reasoning.empty() ? Json(nullptr) : Json(reply.reasoning)},
          {"answer", reply.answer},
          {"tool_calls", reply.calls.empty() ? Json(nullptr) : calls_json(reply.calls)},
          {"prompt_ids", std::vector<std::int32_t>(prompt.begin(), prompt.end())},
          {"ids", generation.ids},
          {"finish_reason", reply.ended_to_call() ? "tool_calls"
                            : stopped_early       ? "stop"
                                                  : std::string(to_string(generation.finish))},
          {"interrupted", stopped_early},
          {"backend", session.backends()},
          {"timing",
           {{"load_s", session.load_seconds()},
            {"prefill_s", timing.prefill_s},
            {"prefill_tokens", timing.prefill_tokens},
            {"decode_s", timing.decode_s},
            {"decode_tokens", timing.decode_tokens},
            {"prefill_tok_s", timing.prefill_tok_s()},
            {"decode_tok_s", timing.decode_tok_s()}}},
          {"peak_rss_bytes", peak_resident_bytes()}};
}

}  // namespace moracle
