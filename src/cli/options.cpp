#include "cli/options.h"

#include <fmt/format.h>
#include <unistd.h>

#include <cctype>
#include <charconv>
#include <cmath>
#include <cstdlib>

#include "api/documents.h"
#include "base/printable.h"
#include "cli/hub.h"
#include "cli/interrupt.h"
#include "cli/option_table.h"
#include "cli/report.h"
#include "cli/screen.h"
#include "text/reply/call_syntax.h"

namespace moracle::cli {

namespace {

constexpr int kMaxThreads = 1024;

std::optional<std::int64_t> to_integer(const std::string& text) {
  std::int64_t value = 0;
  const char* end = text.data() + text.size();
  const auto [stop, failed] = std::from_chars(text.data(), end, value);
  if (failed != std::errc{} || stop != end) return std::nullopt;
  return value;
}

// One process computes a whole model: ranks have another engine, which has our experts.
void refuse_ranks(CLI::App& command) {
  for (const char* const name : {"--tp", "--ep"}) {
    const auto refuse = [name](const std::string&) {
      throw CLI::ValidationError(
          name,
          "vLLM runs the ranks of a model, with the plug-in of the Python package: `vllm serve MODEL "
          "--tensor-parallel-size N`; `moracle plan MODEL --nodes N` says whether it pays");
    };
    command.add_option_function<std::string>(name, refuse)->group("");
  }
}

}  // namespace

CLI::Validator whole_number(std::int64_t low, std::int64_t high) {
  return CLI::Validator(
      [low, high](const std::string& text) -> std::string {
        const auto value = to_integer(text);
        if (value && *value >= low && *value <= high) return "";
        return fmt::format("wanted a whole number from {} to {}, found '{}'", low, high, text);
      },
      "");
}

CLI::Validator memory_size() {
  return CLI::Validator(
      [](std::string& text) -> std::string {
        constexpr std::string_view kUnits = "KMGT";
        char* end = nullptr;
        double bytes = std::strtod(text.c_str(), &end);
        std::string_view unit(end);
        const std::size_t power =
            unit.empty() ? kUnits.npos
                         : kUnits.find(static_cast<char>(std::toupper(static_cast<unsigned char>(unit[0]))));
        if (power != kUnits.npos) {
          bytes = std::ldexp(bytes, 10 * (static_cast<int>(power) + 1));
          unit.remove_prefix(unit.size() > 1 && unit[1] == 'i' ? 2 : 1);
        }
        const bool known = unit.empty() || unit == "B" || unit == "b";
        if (end == text.c_str() || !known || !(bytes >= 1) || bytes >= 0x1p53)
          return fmt::format("wanted a size as 60G or 512M, found '{}'", text);
        text = std::to_string(static_cast<std::uint64_t>(bytes));
        return "";
      },
      "");
}

CLI::Validator real_number(std::function<bool(double)> accepts, std::string wanted) {
  return CLI::Validator(
      [accepts = std::move(accepts), wanted = std::move(wanted)](const std::string& text) -> std::string {
        char* end = nullptr;
        const double value = std::strtod(text.c_str(), &end);
        const bool whole = !text.empty() && end == text.c_str() + text.size();
        if (whole && std::isfinite(value) && accepts(value)) return "";
        return "wanted " + wanted + ", found '" + text + "'";
      },
      "");
}

CLI::Validator one_of(std::vector<std::string> words) {
  return CLI::Validator(
      [words = std::move(words)](const std::string& text) -> std::string {
        if (std::find(words.begin(), words.end(), text) != words.end()) return "";
        return fmt::format("wanted {}, found '{}'", fmt::join(words, " or "), text);
      },
      "");
}

CLI::Validator named(const char* what) {
  return CLI::Validator(
      [what](const std::string& text) { return text.empty() ? fmt::format("wanted {}, found ''", what) : ""; }, "");
}

Result<std::vector<std::int64_t>> parse_integers(const std::string& text, const std::string& option, std::int64_t low,
                                                 std::int64_t high) {
  std::vector<std::int64_t> values;
  for (std::size_t begin = 0; begin <= text.size();) {
    const std::size_t end = std::min(text.find(',', begin), text.size());
    const std::string part = text.substr(begin, end - begin);
    const auto value = to_integer(part);
    if (!value || *value < low || *value > high) {
      return Error{.code = "usage",
                   .where = option,
                   .wanted = fmt::format("whole numbers from {} to {}, separated by commas", low, high),
                   .found = "'" + part + "'"};
    }
    values.push_back(*value);
    begin = end + 1;
  }
  return values;
}

Error in_file(Error error, const std::string& file) {
  if (error.file.empty()) error.file = file;
  return error;
}

void BackendOptions::add(CLI::App& command) {
  const InGroup group(command, kKernelsGroup);
  command
      .add_option("--backend", backend,
                  "Pin a kernel: it serves, or the command fails and says why (default: the oracle's choice)")
      ->type_name("NAME")
      ->check(named("a kernel"));
  command
      .add_option("--policy", policy,
                  "exact computes the scheme as published; fast may quantize activations further (default: exact)")
      ->type_name("exact|fast")
      ->check(one_of({"exact", "fast"}));
  // A flag, so that the word behind it is never its value.
  command
      .add_flag(
          "--batch-invariant{on}", invariant,
          fmt::format(
              "Use only kernels that sum in one order for every batch, so that a request has the same bits "
              "at any load; auto: where that costs little, which is everywhere but with AMX and on GPUs (default: {})",
              invariant))
      ->type_name("on|off|auto")
      ->check(one_of({"on", "off", "auto"}));
}

void add_trust_content(CLI::App& command, bool& trust_content) {
  command.add_flag("--trust-content", trust_content,
                   "Read control tokens in messages and tools as such (default: what spells one stays text)");
}

void add_tool_format(CLI::App& command, std::string& format) {
  std::vector<std::string> names;
  for (const CallSyntax& row : call_syntaxes()) names.emplace_back(row.name);
  command
      .add_option("--tool-format", format,
                  "How the model writes calls of tools, such as hermes or glm (default: as its template shows)")
      ->type_name("NAME")
      ->check(one_of(std::move(names)));
}

void add_ranks(CLI::App& command, RankLayout& ranks) {
  command.add_option("--tp", ranks.tp, "Ranks that share heads, intermediate widths and the vocabulary (default: 1)")
      ->type_name("N")
      ->check(whole_number(1, 1024));
  command.add_option("--ep", ranks.ep, "Ranks that share the experts; with --tp, tp x ep ranks (default: 1)")
      ->type_name("N")
      ->check(whole_number(1, 1024));
}

Error as_options(Error error) {
  if (error.code == "plan.tp" || error.code == "plan.ep") error.found = "--" + error.found;
  return error;
}

void add_kv(CLI::App& command, std::string& kv) {
  const InGroup group(command, kKernelsGroup);
  command.add_option("--kv", kv, "Keep keys and values as f32, bf16 or int8 (default: bf16; f32 with --backend ref)")
      ->type_name("f32|bf16|int8")
      ->check(one_of({"f32", "bf16", "int8"}));
}

bool BackendOptions::batch_invariant(const Place& place) const {
  const bool on_host = place.machine().device == DeviceKind::cpu;
  if (invariant == "auto") return on_host && !has(place.host.cpu_features, CpuFeature::amx_tile);
  return invariant == "on";
}

Policy BackendOptions::policy_value(const Place& place) const {
  Policy value;
  value.numerics = policy == "fast" ? Numerics::fast : Numerics::exact;
  value.batch_invariant = batch_invariant(place);
  if (!backend.empty()) value.pinned = backend;
  return value;
}

void ComputeOptions::add(CLI::App& command) {
  BackendOptions::add(command);
  const InGroup group(command, kKernelsGroup);
  command.add_option("--threads", threads, "Threads to compute with (default: one for each core)")
      ->type_name("N")
      ->check(whole_number(1, kMaxThreads));
  command.add_option("--device", device, "Where to compute: cpu, or a GPU, cuda:0 and so on (default: cpu)")
      ->type_name("D");
  add_vram(command, vram);
}

Result<Place> ComputeOptions::place() const {
  MORACLE_TRY(check_vram(vram, device));
  return place_of_work(device, "--device", vram);
}

void add_vram(CLI::App& command, std::uint64_t& vram) {
  command
      .add_option("--vram", vram,
                  "Memory of the GPU to use at most, as 60G: weights, keys and values, workspaces; the host computes "
                  "the experts for which there is no room (default: what is free less 2 %)")
      ->type_name("BYTES")
      ->transform(memory_size());
}

void add_memory(CLI::App& command, std::uint64_t& memory) {
  const InGroup group(command, kMemoryGroup);
  command
      .add_option("--memory", memory,
                  "Memory of this machine to use at most, as 20G: where not all experts fit, they are read from the "
                  "files when they are chosen (default: what is free less a tenth)")
      ->type_name("BYTES")
      ->transform(memory_size());
}

Result<> check_vram(std::uint64_t vram, const std::string& device) {
  if (vram == 0 || names_device(device)) return Ok{};
  return Error{.code = "device.vram",
               .where = "--vram",
               .wanted = "a GPU beside it, as --device cuda:0",
               .found = "--device " + device,
               .advice = "add --device cuda:0, or leave --vram out"};
}

void add_model(CLI::App& command, std::string& model) {
  command
      .add_option(
          "model", model,
          "Folder in Hugging Face layout (config.json, *.safetensors, tokenizer.json), or org/name of a model in "
          "the hub's local cache")
      ->type_name("MODEL")
      ->required();
}

void add_json(CLI::App& command, bool& json) {
  const InGroup group(command, kOutputGroup);
  command.add_flag("--json", json, "Print one JSON document on standard output and nothing else there");
}

void ModelOptions::add(CLI::App& command, bool loads) {
  add_model(command, model);
  ComputeOptions::add(command);
  if (loads) {
    add_kv(command, kv);
    refuse_ranks(command);
    add_memory(command, memory);
  }
  add_no_cache(command, no_cache);
}

void add_no_cache(CLI::App& command, bool& no_cache) {
  const InGroup group(command, kMemoryGroup);
  command.add_flag("--no-cache", no_cache, "Does nothing: no load keeps anything for the next");
}

void tell_no_cache(Console& console, bool no_cache) {
  if (no_cache) console.info("moracle: --no-cache does nothing: no load keeps anything for the next\n");
}

void tell_plan(Console& console, const LoadPlan& plan, int threads) {
  console.info(model_line(plan, threads, screen_width(STDERR_FILENO)));
  for (const std::string& warning : warnings_of(plan)) console.warn(warning);
}

namespace {

void tell_slots(Console& console, Session& session) {
  const std::optional<ExpertSlots> slots = session.model().expert_slots();
  if (!slots) return;
  console.info(paragraph("moracle: ",
                         fmt::format("memory has room for {} of {} experts; the others are read from the files when "
                                     "they are chosen",
                                     slots->slots, slots->experts),
                         screen_width(STDERR_FILENO), 9));
}

}  // namespace

Result<std::unique_ptr<Session>> ModelOptions::open(Console& console, const Opening& opening) const {
  tell_no_cache(console, no_cache);
  MORACLE_ASSIGN(Place here, place());
  SessionOptions options;
  MORACLE_ASSIGN(options.folder, locate_model(model));
  options.policy = policy_value(here);
  options.machine = std::move(here.host);
  options.device = std::move(here.device);
  options.threads = threads;
  options.needs_text = opening.needs_text;
  options.guard_content = opening.guard_content;
  options.on_text = opening.on_text;
  options.on_warning = [&console](const std::string& text) { console.warn(text); };
  options.generates = opening.generates;
  options.call_syntax = opening.call_syntax;
  options.choice = opening.choice;
  options.kv = kv_type_of(kv);
  options.kv_memory = opening.kv_memory;
  options.memory = memory;
  options.sequences = opening.sequences;
  options.context = opening.context;
  options.measure_rates = opening.measure_rates;
  const int used = threads > 0 ? threads : options.machine.cores;
  options.on_plan = [&console, &opening, used](const LoadPlan& plan) {
    tell_plan(console, plan, used);
    if (opening.on_plan) opening.on_plan(plan);
  };
  options.on_progress = [&console, &opening](const LoadProgress& progress) {
    if (opening.on_progress) opening.on_progress(progress);
    console.progress("loading", static_cast<double>(progress.bytes_done), static_cast<double>(progress.bytes_total),
                     Console::Unit::bytes);
    return !interrupted();
  };
  auto session = Session::open(options);
  console.end_progress();
  if (session.ok()) tell_slots(console, **session);
  return session;
}

}  // namespace moracle::cli
