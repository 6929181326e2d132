// moracle plan: what a model takes on each rank, and how it may be spread, from headers alone.
#include <fmt/format.h>

#include <algorithm>

#include "base/printable.h"
#include "cli/options.h"
#include "cli/program.h"
#include "engine/generate.h"
#include "model/footprint.h"

namespace moracle::cli {

namespace {

constexpr std::int64_t kUsualContext = 4096;

struct PlanCommand : BackendOptions {
  std::string model;
  std::string device = "cpu";
  int tp = 1;
  int ep = 1;
  std::int64_t context = 0;  // 0: the usual one, or the model's where that is shorter
  bool json = false;
};

struct Plan {
  Machine machine{};
  std::int64_t max_positions = 0;
  Footprint footprint{};
  std::vector<Degree> tp{}, ep{};
  std::vector<std::string> warnings{};

  [[nodiscard]] bool fits() const { return footprint.total() <= machine.memory_bytes; }
};

Result<Plan> make_plan(const PlanCommand& options) {
  Plan result;
  MORACLE_ASSIGN(result.machine, resolve_machine(options.device));
  MORACLE_ASSIGN(const auto checkpoint, Checkpoint::open(options.model));
  MORACLE_ASSIGN(const auto plan, LoadPlan::make(checkpoint, result.machine, options.policy_value()));
  result.max_positions = plan->info().max_positions;
  const bool cpu = result.machine.device == DeviceKind::cpu;
  MORACLE_ASSIGN(result.footprint,
                 footprint(*plan, {.tp = options.tp,
                                   .ep = options.ep,
                                   .context = options.context != 0 ? options.context
                                                                   : std::min(kUsualContext, result.max_positions),
                                   .batch_tokens = kPrefillChunk,
                                   .threads = cpu ? result.machine.cores : 1,
                                   .top_k = true}));
  result.tp = tensor_degrees(*plan);
  result.ep = expert_degrees(*plan);
  result.warnings = plan->warnings();
  return result;
}

std::string rule_text(const Degree& row) {
  return row.module + ": " + row.found + "; wanted " + row.wanted;
}

Json degrees_json(const std::vector<Degree>& degrees) {
  Json rows = Json::array();
  for (const Degree& row : degrees) {
    rows.push_back(
        {{"degree", row.degree}, {"legal", row.legal()}, {"rule", row.legal() ? Json(nullptr) : Json(rule_text(row))}});
  }
  return rows;
}

bool runs_here(const LayerFootprint& layer) {
  return layer.experts.card != nullptr && layer.experts.card->kind == CardKind::own && layer.experts.packed;
}

Json experts_json(const ExpertsKernel& kernel) {
  if (kernel.card == nullptr) return nullptr;
  return {{"backend", kernel.card->backend},
          {"card", kernel.card->id},
          {"kind", to_string(kernel.card->kind)},
          {"packed", kernel.packed},
          {"bytes", kernel.bytes}};
}

Json plan_json(const Plan& plan, const PlanCommand& options) {
  const Footprint& footprint = plan.footprint;
  Json layers = Json::array();
  for (const LayerFootprint& layer : footprint.layers) {
    layers.push_back({{"name", layer.name},
                      {"mixer_bytes", layer.mixer},
                      {"feed_forward_bytes", layer.feed_forward},
                      {"norm_bytes", layer.norms},
                      {"kv_cache_bytes", layer.state},
                      {"experts_backend", runs_here(layer) ? Json(layer.experts.card->backend) : Json(nullptr)},
                      {"experts_kernel", experts_json(layer.experts)}});
  }
  return {{"device", to_json(plan.machine)},
          {"tp", options.tp},
          {"ep", options.ep},
          {"ranks", options.tp * options.ep},
          {"context", footprint.context},
          {"batch_tokens", footprint.batch_tokens},
          {"layers", std::move(layers)},
          {"embedding_bytes", footprint.embedding},
          {"head_bytes", footprint.head},
          {"final_norm_bytes", footprint.final_norm},
          {"weight_bytes", footprint.weights()},
          {"kv_cache_bytes", footprint.state},
          {"workspace_bytes", footprint.workspace},
          {"total_bytes", footprint.total()},
          {"memory_bytes", plan.machine.memory_bytes},
          {"fits", plan.fits()},
          {"packed", footprint.packed},
          {"tp_degrees", degrees_json(plan.tp)},
          {"ep_degrees", degrees_json(plan.ep)},
          {"warnings", plan.warnings}};
}

bool alike(const LayerFootprint& a, const LayerFootprint& b) {
  return a.mixer == b.mixer && a.feed_forward == b.feed_forward && a.norms == b.norms && a.state == b.state &&
         a.experts.card == b.experts.card && a.experts.packed == b.experts.packed;
}

// "avx512bf16", "marlin [foreign]", "flashinfer [decision_only], published widths"
std::string experts_text(const ExpertsKernel& kernel) {
  if (kernel.card == nullptr) return "";
  std::string text(kernel.card->backend);
  if (kernel.card->kind != CardKind::own) text += fmt::format(" [{}]", to_string(kernel.card->kind));
  return kernel.packed ? text : text + ", published widths";
}

// Runs of like layers, one row each.
std::vector<std::vector<std::string>> layer_rows(const Footprint& footprint) {
  std::vector<std::vector<std::string>> rows = {
      {"layers", "count", "attention", "feed-forward", "norms", "KV cache", "experts by"}};
  const auto& layers = footprint.layers;
  for (std::size_t first = 0; first < layers.size();) {
    std::size_t end = first + 1;
    while (end < layers.size() && alike(layers[first], layers[end])) ++end;
    const LayerFootprint& layer = layers[first];
    const std::string range = end - first == 1 ? layer.name : layer.name + " - " + std::to_string(end - 1);
    rows.push_back({range, std::to_string(end - first), human_bytes(layer.mixer), human_bytes(layer.feed_forward),
                    human_bytes(layer.norms), human_bytes(layer.state), experts_text(layer.experts)});
    first = end;
  }
  return rows;
}

std::string degrees_text(const std::string& name, const std::vector<Degree>& degrees) {
  std::string legal;
  std::vector<std::pair<const Degree*, std::string>> forbidden;  // the first degree of each rule, and all of them
  for (const Degree& row : degrees) {
    const std::string number = " " + std::to_string(row.degree);
    if (row.legal()) {
      legal += number;
      continue;
    }
    const auto same = [&](const auto& rule) {
      return rule.first->module == row.module && rule.first->wanted == row.wanted;
    };
    const auto known = std::find_if(forbidden.begin(), forbidden.end(), same);
    if (known == forbidden.end()) {
      forbidden.emplace_back(&row, number);
    } else {
      known->second += number;
    }
  }
  std::string text = fmt::format("{} degrees that are legal:{}\n", name, legal);
  for (const auto& [first, numbers] : forbidden) text += fmt::format("  not{}: {}\n", numbers, rule_text(*first));
  return text;
}

bool some_experts_packed(const Footprint& footprint) {
  return std::any_of(footprint.layers.begin(), footprint.layers.end(),
                     [](const LayerFootprint& layer) { return layer.experts.packed; });
}

std::string_view weights_text(const Footprint& footprint) {
  if (footprint.packed) return "packed";
  return some_experts_packed(footprint) ? "experts packed, the rest as published" : "as published";
}

// What the numbers mean on a device for which this build has no kernel.
std::string elsewhere_note(const Footprint& footprint) {
  return std::string("note: this build has no kernel for this device: ") +
         (some_experts_packed(footprint) ? "experts marked [foreign] are counted as that kernel lays them out, all else"
                                         : "every module is counted") +
         " at the width of the published codes and scales; the workspace of the kernels is not known\n";
}

std::string plan_text(const Plan& plan, const PlanCommand& options) {
  const Footprint& footprint = plan.footprint;
  std::string text =
      fmt::format("{} on {}: tp {}, ep {}, {} rank{}; of each rank:\n\n", options.model, plan.machine.name, options.tp,
                  options.ep, options.tp * options.ep, options.tp * options.ep == 1 ? "" : "s");
  text += text_table(layer_rows(footprint), {false, true, true, true, true, true, false});
  text += fmt::format(
      "\nembedding   {:>10}\nhead        {:>10}\nweights     {:>10}  all of the above with the final norm, {}\n"
      "KV cache    {:>10}  one sequence of {} positions (the model's limit is {})\n"
      "workspace   {:>10}  calls of up to {} tokens\ntotal       {:>10}  of {}: {}\n",
      human_bytes(footprint.embedding), human_bytes(footprint.head), human_bytes(footprint.weights()),
      weights_text(footprint), human_bytes(footprint.state), footprint.context, plan.max_positions,
      human_bytes(footprint.workspace), footprint.batch_tokens, human_bytes(footprint.total()),
      human_bytes(plan.machine.memory_bytes), plan.fits() ? "fits" : "does not fit");
  if (!footprint.packed) {
    text += elsewhere_note(footprint);
  }
  text += "\n" + degrees_text("tensor-parallel", plan.tp) + degrees_text("expert-parallel", plan.ep);
  for (const std::string& warning : plan.warnings) text += "warning: " + printable(warning, kShownLineBytes) + "\n";
  return text;
}

int plan_command(const PlanCommand& options, Console& console) {
  const Result<Plan> plan = make_plan(options);
  if (!plan.ok()) return console.fail(plan.error());
  if (options.json) {
    console.json(plan_json(plan.value(), options));
  } else {
    console.out(plan_text(plan.value(), options));
  }
  return 0;
}

}  // namespace

void add_plan(CLI::App& root, Program& program) {
  CLI::App* command =
      root.add_subcommand("plan", "Bytes per layer and rank after packing, and how a model may be spread");
  auto options = std::make_shared<PlanCommand>();
  add_model(*command, options->model);
  options->add(*command, false);
  command->add_option("--device", options->device, "Machine of one rank: cpu, a name (see `devices`), a JSON file")
      ->type_name("NAME|FILE.json");
  command->add_option("--tp", options->tp, "Ranks that share heads, intermediate widths and the vocabulary")
      ->type_name("N")
      ->check(whole_number(1, 1024));
  command->add_option("--ep", options->ep, "Ranks that share the experts; with --tp, tp x ep ranks")
      ->type_name("N")
      ->check(whole_number(1, 1024));
  command
      ->add_option("--context", options->context,
                   fmt::format("Positions of one sequence (default: {}, or the model's limit)", kUsualContext))
      ->type_name("N")
      ->check(whole_number(1, INT32_MAX));
  add_json(*command, options->json);
  command->footer(
      "Reads headers only, no weight.\nExample:\n  moracle plan ./Qwen3-30B-A3B-GPTQ-Int4 --tp 2 --context 32768");
  command->callback([options, &program] {
    program.action = [options, &program] { return plan_command(*options, program.console); };
  });
}

}  // namespace moracle::cli
