// moracle plan: what a model takes on each rank, and how it may be spread, from headers alone.
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>

#include "base/printable.h"
#include "cli/hub.h"
#include "cli/options.h"
#include "cli/program.h"
#include "cli/report.h"
#include "cli/screen.h"
#include "generate/generate.h"
#include "model/load/footprint.h"

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

// "1, 2, 4-8": runs of at least three are one.
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

// "--tp 3 does not divide 4 attention heads; legal: 1, 2, 4".
Error with_legal_degrees(Error error, const Plan& plan) {
  const bool tp = error.code == "plan.tp";
  if (!tp && error.code != "plan.ep") return error;
  error.found = "--" + error.found +
                (error.wanted.empty() ? "" : ", wanted " + error.wanted + " (" + error.where + ")") +
                "; legal: " + legal_text(tp ? plan.tp : plan.ep);
  error.where.clear();
  error.wanted.clear();
  return error;
}

Result<Plan> make_plan(const PlanCommand& options) {
  Plan result;
  MORACLE_ASSIGN(const Place place, resolve_place(options.device));
  result.machine = place.machine();
  MORACLE_ASSIGN(const auto folder, locate_model(options.model));
  MORACLE_ASSIGN(const auto checkpoint, Checkpoint::open(folder));
  MORACLE_ASSIGN(const auto plan, LoadPlan::make(checkpoint, place.host, options.policy_value(), place.device));
  result.max_positions = plan->info().max_positions;
  const bool cpu = result.machine.device == DeviceKind::cpu;
  result.tp = tensor_degrees(*plan);
  result.ep = expert_degrees(*plan);
  const auto counted = footprint(
      *plan, {.tp = options.tp,
              .ep = options.ep,
              .context = options.context != 0 ? options.context : std::min(kUsualContext, result.max_positions),
              .batch_tokens = kPrefillChunk,
              .threads = cpu ? result.machine.cores : 1,
              .top_k = true});
  if (!counted.ok()) return with_legal_degrees(counted.error(), result);
  result.footprint = counted.value();
  result.warnings = warnings_of(*plan, {.decisions = cpu});  // a note says that no kernel for another device is here
  return result;
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

// "avx512bf16", "marlin (layout known)", "flashinfer (capabilities known), published widths"
std::string experts_text(const ExpertsKernel& kernel) {
  if (kernel.card == nullptr) return "";
  std::string text(kernel.card->backend);
  if (kernel.card->kind == CardKind::foreign) text += " (layout known)";
  if (kernel.card->kind == CardKind::decision_only) text += " (capabilities known)";
  return kernel.packed ? text : text + ", published widths";
}

// Runs of like layers, one row each.
TextTable layer_table(const Footprint& footprint) {
  const auto bytes = [](const char* title) { return Column{.title = title, .right = true}; };
  TextTable table({{.title = "layers", .narrow = Narrow::wrap},
                   {.title = "count", .right = true, .narrow = Narrow::drop, .rank = 2},
                   bytes("attention"),
                   bytes("feed-forward"),
                   {.title = "norms", .right = true, .narrow = Narrow::drop, .rank = 1},
                   bytes("KV cache"),
                   {.title = "experts by", .narrow = Narrow::below, .rank = 3}});
  const auto& layers = footprint.layers;
  for (std::size_t first = 0; first < layers.size();) {
    std::size_t end = first + 1;
    while (end < layers.size() && alike(layers[first], layers[end])) ++end;
    const LayerFootprint& layer = layers[first];
    const std::string range = end - first == 1 ? layer.name : layer.name + "-" + std::to_string(end - 1);
    table.row({printable(range), std::to_string(end - first), human_bytes(layer.mixer), human_bytes(layer.feed_forward),
               human_bytes(layer.norms), human_bytes(layer.state), experts_text(layer.experts)});
    first = end;
  }
  return table;
}

// The degrees that are legal, and of each rule the degrees that it forbids.
std::string degrees_text(const std::string& name, const std::vector<Degree>& degrees, std::size_t width) {
  struct Forbidden {
    const Degree* first;
    std::string rule;
    std::vector<int> numbers;
  };
  std::vector<Forbidden> forbidden;
  for (const Degree& row : degrees) {
    if (row.legal()) continue;
    // Of "tp 3 does not divide 4 attention heads", what is the same for every degree.
    const std::string rule = row.wanted.empty() ? row.found.substr(row.found.find(' ', 3) + 1) : "no " + row.wanted;
    const auto same = [&](const Forbidden& each) { return each.first->module == row.module && each.rule == rule; };
    auto known = std::find_if(forbidden.begin(), forbidden.end(), same);
    if (known == forbidden.end()) known = forbidden.insert(forbidden.end(), Forbidden{&row, rule, {}});
    known->numbers.push_back(row.degree);
  }
  std::string text = paragraph("", name + " degrees that are legal: " + legal_text(degrees), width, 0);
  for (const Forbidden& each : forbidden) {
    const std::string what = fmt::format("{}: {} ({})", numbers_text(each.numbers), each.rule, each.first->module);
    text += paragraph("  not ", printable(what, kShownLineBytes), width, 6);
  }
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
  const std::string counted = some_experts_packed(footprint)
                                  ? "experts are counted as the named kernel lays them out, all else"
                                  : "every module is counted";
  return "this build has no kernel for this device: " + counted +
         " at the width of the published codes and scales; the workspace of those kernels is not known";
}

std::string plan_text(const Plan& plan, const PlanCommand& options) {
  const Footprint& footprint = plan.footprint;
  const std::size_t width = screen_width(STDOUT_FILENO);
  const Paint paint(wants_color(STDOUT_FILENO));
  std::string text = paragraph(
      "",
      fmt::format("{} on {}: tp {}, ep {}, {} rank{}; of each rank:", printable_path(options.model), plan.machine.name,
                  options.tp, options.ep, options.tp * options.ep, options.tp * options.ep == 1 ? "" : "s"),
      width, 0);
  text += "\n" + layer_table(footprint).text(width, paint) + "\n";
  const auto sum = [&](const char* name, std::uint64_t bytes, const std::string& about) {
    text += paragraph(fmt::format("{:<10}  {:>10}  ", name, human_bytes(bytes)), about, width, 24);
  };
  sum("embedding", footprint.embedding, "");
  sum("head", footprint.head, "");
  sum("weights", footprint.weights(), fmt::format("all of the above with the final norm, {}", weights_text(footprint)));
  sum("KV cache", footprint.state,
      fmt::format("one sequence of {} positions (the model's limit is {})", footprint.context, plan.max_positions));
  sum("workspace", footprint.workspace, fmt::format("calls of up to {} tokens", footprint.batch_tokens));
  const std::string fits = plan.fits() ? paint.good("fits") : paint.bad("does not fit");
  sum("total", footprint.total(), fmt::format("of {}: {}", human_bytes(plan.machine.memory_bytes), fits));
  if (!footprint.packed) text += paragraph("note: ", elsewhere_note(footprint), width, 6);
  text += "\n" + degrees_text("tensor-parallel", plan.tp, width) + degrees_text("expert-parallel", plan.ep, width);
  for (const std::string& warning : plan.warnings)
    text += paragraph(paint.warning("warning") + ": ", warning, width, 9);
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
      root.add_subcommand("plan", "Count the memory that a model takes, and tell how it may be spread over ranks");
  auto options = std::make_shared<PlanCommand>();
  add_model(*command, options->model);
  options->add(*command, false);
  command
      ->add_option("--device", options->device,
                   "Machine of one rank: cpu, a name that `devices` lists, or a JSON file (default: cpu)")
      ->type_name("NAME|FILE.json");
  command
      ->add_option("--tp", options->tp, "Ranks that share heads, intermediate widths and the vocabulary (default: 1)")
      ->type_name("N")
      ->check(whole_number(1, 1024));
  command->add_option("--ep", options->ep, "Ranks that share the experts; with --tp, tp x ep ranks (default: 1)")
      ->type_name("N")
      ->check(whole_number(1, 1024));
  command
      ->add_option("--context", options->context,
                   fmt::format("Positions of one sequence (default: {}, or the model's limit where that is less)",
                               kUsualContext))
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
