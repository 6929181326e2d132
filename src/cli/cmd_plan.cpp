// moracle plan: what a model takes on each rank, and how it may be spread, from headers alone.
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>

#include "api/documents.h"
#include "base/generic/quantity.h"
#include "base/printable.h"
#include "bench/calibrate.h"
#include "cli/hub.h"
#include "cli/options.h"
#include "cli/plan_nodes.h"
#include "cli/program.h"
#include "cli/screen.h"
#include "kernels/cuda/host/described_gpu.h"
#include "machine/host_limits.h"
#include "model/load/device_room.h"

namespace moracle::cli {

namespace {

struct PlanCommand : BackendOptions {
  std::string model;
  std::string device = "cpu";
  std::uint64_t vram = 0;  // as in add_vram
  RankLayout ranks{};
  std::int64_t context = 0;  // 0: the usual one, or the model's where that is shorter
  std::string kv;            // empty: the default for the backend
  int nodes = 1;
  std::string link = "25gbe";
  double bandwidth = 0;      // GB/s; 0: measured
  std::uint64_t memory = 0;  // as in add_memory
  bool json = false;
};

bool alike(const LayerMemory& a, const LayerMemory& b) {
  return a.mixer == b.mixer && a.feed_forward == b.feed_forward && a.norms == b.norms && a.state == b.state &&
         a.experts.card == b.experts.card && a.experts.packed == b.experts.packed;
}

// "avx512bf16", "marlin (layout known)", "flashinfer (layout known), published widths"
std::string experts_text(const ExpertsKernel& kernel) {
  if (kernel.card == nullptr) return "";
  std::string text(kernel.card->backend);
  if (kernel.card->kind == CardKind::external) text += " (layout known)";
  return kernel.packed ? text : text + ", published widths";
}

// Runs of like layers, one row each.
TextTable layer_table(const MemoryPlan& memory) {
  const auto bytes = [](const char* title) { return Column{.title = title, .right = true}; };
  TextTable table({{.title = "layers", .narrow = Narrow::wrap},
                   {.title = "count", .right = true, .narrow = Narrow::drop, .rank = 2},
                   bytes("attention"),
                   bytes("feed-forward"),
                   {.title = "norms", .right = true, .narrow = Narrow::drop, .rank = 1},
                   bytes("KV cache"),
                   {.title = "experts by", .narrow = Narrow::below, .rank = 3}});
  const auto& layers = memory.layers;
  for (std::size_t first = 0; first < layers.size();) {
    std::size_t end = first + 1;
    while (end < layers.size() && alike(layers[first], layers[end])) ++end;
    const LayerMemory& layer = layers[first];
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

bool some_experts_packed(const MemoryPlan& memory) {
  return std::any_of(memory.layers.begin(), memory.layers.end(),
                     [](const LayerMemory& layer) { return layer.experts.packed; });
}

std::string_view weights_text(const MemoryPlan& memory) {
  if (memory.packed) return "packed";
  return some_experts_packed(memory) ? "experts packed, the rest as published" : "as published";
}

// What the numbers mean on a device for which this build has no kernel.
std::string elsewhere_note(const MemoryPlan& memory) {
  const std::string counted = some_experts_packed(memory)
                                  ? "experts are counted as the named kernel lays them out, all else"
                                  : "every module is counted";
  return "this build has no kernel for this device: " + counted +
         " at the width of the published codes and scales; the workspace of those kernels is not known";
}

// "; the disk gives 2.1 GB/s (measured), at most 2.0, 4.0, 20.1 tokens/s"
std::string disk_text(const MemoryAnswer& plan) {
  if (!plan.disk) return "";
  std::string rates;
  for (const int hits : kShownHits) {
    const auto bytes = static_cast<double>(plan.room->read_bytes(hits));
    rates += fmt::format("{}{:.1f}", rates.empty() ? "" : ", ", *plan.disk / std::max(bytes, 1.0));
  }
  return fmt::format("; the disk gives {:.1f} GB/s (measured), at most {} tokens/s", *plan.disk * 1e-9, rates);
}

// What a bound of memory leaves for experts.
std::string bound_text(const MemoryAnswer& plan, bool asked, std::size_t width) {
  const ExpertRoom& room = *plan.room;
  const std::string name = fmt::format("{:<10}  {:>10}  ", asked ? "--memory" : "free", human_bytes(room.bound));
  if (room.pool.slots == 0) return paragraph(name, "all experts fit", width, 24);
  std::string reads;
  for (const int hits : kShownHits)
    reads += fmt::format("{}{} at {} %", reads.empty() ? "" : ", ", human_bytes(room.read_bytes(hits)), hits);
  return paragraph(name,
                   fmt::format("{} of {} experts in slots of {}; KV cache {}, workspace {}; the least is {}",
                               room.pool.slots, room.pool.experts, human_bytes(room.pool.slot_bytes),
                               human_bytes(room.state), human_bytes(room.workspace), human_bytes(room.floor)),
                   width, 24) +
         paragraph("", fmt::format("a token reads {} of experts there{}", reads, disk_text(plan)), width, 24);
}

// "a decoded token reads 0.9 GiB there: no less than 0.96 ms at 1008 GB/s"
std::string token_text(const MemoryAnswer::Share& share, double read_gb_s) {
  std::string text = fmt::format("a decoded token reads {} of weights there", human_bytes(share.token_bytes));
  const double rate = share.read_gb_s > 0 ? share.read_gb_s : read_gb_s;
  if (rate <= 0) return text;
  return text + fmt::format(", in no less than {:.2f} ms at {:.0f} GB/s",
                            static_cast<double>(share.token_bytes) / rate * 1e-6, rate);
}

std::string plan_text(const MemoryAnswer& plan, const PlanCommand& options) {
  const MemoryPlan& memory = plan.memory;
  const std::size_t width = screen_width(STDOUT_FILENO);
  const Paint paint(wants_color(STDOUT_FILENO));
  std::string text =
      paragraph("",
                fmt::format("{} on {}: tp {}, ep {}, {} rank{}; of each rank:", printable_path(options.model),
                            plan.machine.name, options.ranks.tp, options.ranks.ep, options.ranks.tp * options.ranks.ep,
                            options.ranks.tp * options.ranks.ep == 1 ? "" : "s"),
                width, 0);
  text += "\n" + layer_table(memory).text(width, paint) + "\n";
  const auto sum = [&](const char* name, std::uint64_t bytes, const std::string& about) {
    text += paragraph(fmt::format("{:<10}  {:>10}  ", name, human_bytes(bytes)), about, width, 24);
  };
  sum("embedding", memory.embedding, "");
  sum("head", memory.head, "");
  sum("weights", memory.weights(), fmt::format("all of the above with the final norm, {}", weights_text(memory)));
  sum("KV cache", memory.state,
      fmt::format("one sequence of {} positions (the model's limit is {})", memory.context, plan.max_context));
  sum("workspace", memory.workspace + memory.on_device.workspace,
      fmt::format("calls of up to {} tokens", memory.batch_tokens));
  const auto fits = [&](bool holds) { return holds ? paint.good("fits") : paint.bad("does not fit"); };
  const auto shares = plan.shares();
  if (shares.size() == 1) {
    sum("total", memory.total(), fmt::format("of {}: {}", human_bytes(shares[0].memory), fits(plan.fits())));
  } else {
    sum("total", memory.total(), "");
    for (const auto& share : shares) {
      const std::string free = share.free ? human_bytes(*share.free) + " free of " : "of ";
      sum(share.machine == plan.machine.name ? "on device" : "on host", share.total(),
          fmt::format("{}: {}{}, weights {}, workspace {}: {}", share.machine, free, human_bytes(share.memory),
                      human_bytes(share.weights), human_bytes(share.workspace), fits(share.fits())));
      if (share.free && !share.fits())
        text += paragraph("", fmt::format("{} has room for {}", share.machine, room_text(memory.on_device)), width, 0);
      if (share.token_bytes > 0)
        text += paragraph(fmt::format("{:24}", ""), token_text(share, options.bandwidth), width, 24);
    }
  }
  if (plan.room) text += bound_text(plan, options.memory > 0, width);
  if (!memory.packed) text += paragraph("note: ", elsewhere_note(memory), width, 6);
  text += "\n" + degrees_text("tensor-parallel", plan.tp_degrees, width) +
          degrees_text("expert-parallel", plan.ep_degrees, width);
  for (const std::string& warning : plan.warnings)
    text += paragraph(paint.warning("warning") + ": ", warning, width, 9);
  return text;
}

MemoryQuestion question_of(const PlanCommand& options, const Place& place, const RankLayout& ranks) {
  return {.host = place.host,
          .device = place.device,
          .tp = ranks.tp,
          .ep = ranks.ep,
          .context = options.context,
          .policy = options.policy_value(place),
          .kv = kv_type_of(options.kv)};
}

// Errors: those of find_link and plan_memory; "plan.bandwidth" where nothing says how fast a node reads.
Result<NodesAnswer> ask_nodes(const PlanCommand& options, const Place& place, const std::filesystem::path& folder) {
  NodesAnswer answer{.question = {.nodes = options.nodes, .read_gb_s = options.bandwidth}};
  MORACLE_ASSIGN(answer.question.link, find_link(options.link));
  if (options.bandwidth == 0) {
    const auto measured = options.device == "cpu" ? quick_bandwidth(place.host) : std::nullopt;
    if (!measured) {
      return Error{.code = "plan.bandwidth",
                   .where = "--nodes",
                   .wanted = "how fast a node reads its memory",
                   .found = "another machine than this one",
                   .advice = "state it: --bandwidth GB/S"};
    }
    answer.question.read_gb_s = *measured;
    answer.measured = true;
  }
  MORACLE_ASSIGN(const MemoryAnswer whole, plan_memory(folder, question_of(options, place, {})));
  answer.steps = nodes_steps(whole.memory, whole.info, answer.question);
  answer.alone = whole.memory.weights();
  answer.fits = whole.fits();
  const auto cut = plan_memory(folder, question_of(options, place, {.tp = options.nodes}));
  if (cut.ok()) {
    answer.rank = cut->memory.weights();
  } else if (cut.error().code == "plan.tp") {
    answer.forbidden = cut.error().found;
  } else {
    return cut.error();
  }
  return answer;
}

// Also a GPU of another machine, beside this host. Errors: those of check_vram, resolve_place and describe_gpu.
Result<Place> planned_place(const PlanCommand& options) {
  if (!names_device(options.device) && options.device != "cpu") {
    MORACLE_ASSIGN(const Machine machine, resolve_machine(options.device));
    auto described = describe_gpu(machine, options.vram);
    // Without a bound an older GPU is counted as a machine of its own.
    if (machine.device == DeviceKind::cuda && (described.ok() || options.vram > 0)) {
      MORACLE_ASSIGN(std::shared_ptr<GpuDevice> gpu, std::move(described));
      return Place{.host = probe_machine(), .device = std::move(gpu)};
    }
  }
  MORACLE_TRY(check_vram(options.vram, options.device));
  return resolve_place(options.device, "--device", options.vram);
}

int plan_command(const PlanCommand& options, Console& console) {
  std::optional<NodesAnswer> nodes;
  const auto ask = [&]() -> Result<MemoryAnswer> {
    MORACLE_ASSIGN(Place place, planned_place(options));
    MORACLE_ASSIGN(const auto folder, locate_model(options.model));
    if (options.nodes > 1) {
      MORACLE_ASSIGN(nodes, ask_nodes(options, place, folder));
    }
    // Beside a GPU the bound is one of the host's memory.
    if (place.device != nullptr && options.memory > 0) place.host.memory_bytes = options.memory;
    MemoryQuestion question = question_of(options, place, options.ranks);
    if (place.device == nullptr) question.memory = options.memory;
    question.policy.elsewhere = place.device != nullptr && !names_device(options.device);
    question.measure_disk = options.device == "cpu";
    if (options.device == "cpu") question.free = read_free_memory("/");
    return plan_memory(folder, question);
  };
  const Result<MemoryAnswer> plan = ask();
  if (!plan.ok()) return console.fail(as_options(plan.error()));
  if (options.json) {
    Json document = plan_json(plan.value());
    if (nodes) document["nodes"] = nodes_json(*nodes);
    console.json(document);
  } else {
    console.out(plan_text(plan.value(), options));
    if (nodes) console.out("\n" + nodes_text(*nodes, screen_width(STDOUT_FILENO), Paint(wants_color(STDOUT_FILENO))));
  }
  return 0;
}

}  // namespace

void add_plan(CLI::App& root, Program& program) {
  CLI::App* command =
      root.add_subcommand("plan", "Count the memory that a model takes, and tell how it may be spread over ranks");
  auto options = std::make_shared<PlanCommand>();
  add_model(*command, options->model);
  options->add(*command);
  command
      ->add_option("--device", options->device,
                   "Machine of one rank: cpu, cuda:0, a name that `devices` lists, or a JSON file (default: cpu)")
      ->type_name("NAME|FILE.json");
  add_vram(*command, options->vram);
  add_ranks(*command, options->ranks);
  command
      ->add_option("--context", options->context,
                   fmt::format("Positions of one sequence (default: {}, or the model's limit where that is less)",
                               kUsualContext))
      ->type_name("N")
      ->check(whole_number(1, INT32_MAX));
  add_kv(*command, options->kv);
  command
      ->add_option("--nodes", options->nodes, "Machines or sockets alike, over which the model may be cut (default: 1)")
      ->type_name("N")
      ->check(whole_number(1, 64));
  command
      ->add_option("--link", options->link,
                   "What links them: shm, rdma, 100gbe, 25gbe, 10gbe, 1gbe, or MICROSECONDS:GBIT (default: 25gbe)")
      ->type_name("NAME");
  command->add_option("--bandwidth", options->bandwidth, "What a node reads from memory (default: measured here)")
      ->type_name("GB/S")
      ->check(real_number([](double value) { return value > 0 && value < 1e6; }, "above 0 and below 1000000"));
  add_memory(*command, options->memory);
  add_json(*command, options->json);
  command->footer(
      "Reads headers only; where experts share memory, weights too, for half a second.\nExample:\n  moracle plan "
      "./Qwen3-30B-A3B-GPTQ-Int4 --tp 2 --context 32768\n"
      "  moracle plan ./Qwen3-30B-A3B-GPTQ-Int4 --nodes 2 --link 25gbe");
  command->callback([options, &program] {
    program.action = [options, &program] { return plan_command(*options, program.console); };
  });
}

}  // namespace moracle::cli
