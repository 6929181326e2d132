// moracle bench layer and bench model.
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <fstream>
#include <numeric>

#include "base/files/file.h"
#include "base/generic/quantity.h"
#include "base/printable.h"
#include "bench/configurations.h"
#include "bench/layer.h"
#include "bench/model.h"
#include "bench/sequences.h"
#include "cli/interrupt.h"
#include "cli/options.h"
#include "cli/program.h"
#include "cli/screen.h"
#ifdef MORACLE_SERVE
#include "cli/cmd_serve_bench.h"
#endif

namespace moracle::cli {

namespace {

struct LayerCommand : ComputeOptions {
  std::string shape;
  std::string scheme;
  std::string tokens = "1,4,16,64,512";
  std::string cells;
  std::string routing = "drawn";
  std::string out;
  bool baseline = true;
  bool json = false;
};

Json limits_json(const std::optional<Calibration>& limits) {
  if (!limits) return nullptr;
  return {{"read_gb_s", limits->read_gb_s}, {"gflop_s", limits->gflop_s}, {"unit", limits->unit}};
}

Json calibration_json(const BenchLayerRow& first, const BenchLayerRow& last) {
  return {{"before", limits_json(first.before)}, {"after", limits_json(last.after)}};
}

Json layer_json(const LayerCommand& options, const BenchLayerResult& result) {
  const auto optional = [](const std::optional<double>& value) { return value ? Json(*value) : Json(nullptr); };
  Json rows = Json::array();
  for (const BenchLayerRow& row : result.rows) {
    rows.push_back({{"tokens", row.tokens},
                    {"median_us", row.median_us},
                    {"min_us", row.min_us},
                    {"iterations", row.iterations},
                    {"experts", row.experts},
                    {"weight_bytes", row.weight_bytes},
                    {"weight_gb_s", row.weight_gb_s},
                    {"gflop_s", row.gflop_s},
                    {"rel_err", row.rel_err},
                    {"calibration", calibration_json(row, row)},
                    {"floor_us", optional(row.floor_us)},
                    {"dequantize_to_bf16_us", optional(row.dequantize_to_bf16_us)}});
  }
  return {{"backend", result.backend},
          {"device", result.device},
          {"threads", result.threads},
          {"shape", options.shape},
          {"scheme", options.scheme},
          {"copies", result.copies},
          {"packed_bytes", result.packed_bytes},
          {"calibration", calibration_json(result.rows.front(), result.rows.back())},
          {"rows", std::move(rows)}};
}

// "31 to 33": one limit before and after the row.
std::string limits_text(const BenchLayerRow& row, double Calibration::* limit) {
  if (!row.before || !row.after) return "-";
  return fmt::format("{:.0f} to {:.0f}", (*row.before).*limit, (*row.after).*limit);
}

std::string layer_text(const LayerCommand& options, const BenchLayerResult& result) {
  const std::size_t width = screen_width(STDOUT_FILENO);
  std::string text =
      paragraph("",
                fmt::format("{} {} on {}, {} thread{}, backend {}: {} copies, {} packed", printable(options.shape),
                            printable(options.scheme), result.device, result.threads, result.threads == 1 ? "" : "s",
                            result.backend, result.copies, human_bytes(result.packed_bytes)),
                width, 0);
  const auto number = [](const char* title, Narrow narrow = Narrow::keep, int rank = 0) {
    return Column{.title = title, .right = true, .narrow = narrow, .rank = rank};
  };
  TextTable table({number("tokens"), number("median us"), number("min us", Narrow::drop, 5),
                   number("experts", Narrow::drop, 2), number("GB/s"), number("GFLOP/s"),
                   number("read GB/s", Narrow::drop, 4), number("peak GFLOP/s", Narrow::drop, 4),
                   number("floor us", Narrow::drop, 1), number("times floor"),
                   number("bf16 detour us", Narrow::drop, 3), number("rel. error")});
  for (const BenchLayerRow& row : result.rows) {
    const auto cell = [](const std::optional<double>& value) { return value ? fmt::format("{:.0f}", *value) : "-"; };
    table.row({std::to_string(row.tokens), fmt::format("{:.1f}", row.median_us), fmt::format("{:.1f}", row.min_us),
               std::to_string(row.experts), fmt::format("{:.1f}", row.weight_gb_s), fmt::format("{:.1f}", row.gflop_s),
               limits_text(row, &Calibration::read_gb_s), limits_text(row, &Calibration::gflop_s), cell(row.floor_us),
               row.floor_us ? fmt::format("{:.2f}", row.median_us / *row.floor_us) : "-",
               cell(row.dequantize_to_bf16_us), fmt::format("{:.1e}", row.rel_err)});
  }
  text += table.text(width, Paint(wants_color(STDOUT_FILENO)));
  if (const auto& limits = result.rows.front().before)
    text += paragraph("", "read and peak: what the machine could do before and after the row, peak of " + limits->unit,
                      width, 0);
  return text;
}

Json configurations_json(const std::vector<ConfigurationRow>& timed) {
  Json rows = Json::array();
  for (const ConfigurationRow& row : timed) {
    rows.push_back({{"shape", row.shape},
                    {"scheme", row.scheme},
                    {"M", row.tokens},
                    {"us", row.us},
                    {"min_us", row.min_us},
                    {"max_us", row.max_us},
                    {"calls", row.calls},
                    {"copies", row.copies},
                    {"experts", row.experts},
                    {"backend", row.backend},
                    {"rel_err", row.rel_err}});
  }
  return rows;
}

std::string configurations_text(const std::vector<ConfigurationRow>& timed) {
  const auto number = [](const char* title) { return Column{.title = title, .right = true}; };
  TextTable table({{.title = "shape"},
                   {.title = "scheme"},
                   number("tokens"),
                   number("median us"),
                   number("min us"),
                   number("max us"),
                   number("experts"),
                   {.title = "backend"},
                   number("rel. error")});
  for (const ConfigurationRow& row : timed) {
    table.row({row.shape, row.scheme, std::to_string(row.tokens), fmt::format("{:.1f}", row.us),
               fmt::format("{:.1f}", row.min_us), fmt::format("{:.1f}", row.max_us), fmt::format("{:.2f}", row.experts),
               row.backend, fmt::format("{:.1e}", row.rel_err)});
  }
  return table.text(screen_width(STDOUT_FILENO), Paint(wants_color(STDOUT_FILENO)));
}

Error usage(std::string wanted, std::string found) {
  return {.code = "usage", .wanted = std::move(wanted), .found = std::move(found)};
}

// The lines of --cells, or one of the other options.
Result<std::vector<ConfigurationLine>> configuration_lines(const LayerCommand& options) {
  if (!options.cells.empty()) {
    if (!options.shape.empty() || !options.scheme.empty())
      return usage("--cells, or --shape with --scheme", "both of them");
    MORACLE_ASSIGN(const std::string text, read_text(options.cells, std::size_t{1} << 20U));
    auto lines = parse_configurations(text);
    if (!lines.ok()) return in_file(lines.error(), options.cells);
    return lines;
  }
  ConfigurationLine line;
  line.shape_name = options.shape;
  MORACLE_ASSIGN(line.shape, parse_layer_shape(options.shape));
  MORACLE_ASSIGN(line.scheme, find_scheme(options.scheme));
  MORACLE_ASSIGN(line.tokens, parse_integers(options.tokens, "--tokens", 1, 1 << 20));
  return std::vector<ConfigurationLine>{line};
}

Result<> write_out(const std::string& path, const Json& json) {
  std::ofstream file(path, std::ios::binary | std::ios::trunc);
  file << json.dump(1) << '\n';
  file.close();
  if (!file)
    return Error{.code = "file.write", .where = path, .wanted = "a file that can be written", .found = "an error"};
  return Ok{};
}

Result<int> configurations_command(const LayerCommand& options, Console& console) {
  BenchConfigurationsOptions bench;
  MORACLE_ASSIGN(bench.lines, configuration_lines(options));
  MORACLE_ASSIGN(const Place place, options.place());
  bench.machine = place.machine();
  bench.device = place.device;
  bench.policy = options.policy_value(place);
  bench.threads = options.threads;
  bench.interrupted = [] { return interrupted(); };
  bench.on_progress = [&](const std::string& what, double share) { console.progress(what, share, 1); };
  bench.on_warning = [&](const std::string& warning) { console.warn(warning); };
  const auto timed = bench_configurations(bench);
  console.end_progress();
  MORACLE_ASSIGN(const std::vector<ConfigurationRow> rows, timed);
  if (!options.out.empty()) MORACLE_TRY(write_out(options.out, configurations_json(rows)));
  if (options.json) {
    console.json(configurations_json(rows));
  } else {
    console.out(configurations_text(rows));
  }
  return 0;
}

Result<int> layer_command(const LayerCommand& options, Console& console) {
  if (options.cells.empty() && (options.shape.empty() || options.scheme.empty()))
    return usage("--shape and --scheme, or --cells", "neither");
  if (options.routing == "spec") return configurations_command(options, console);
  if (!options.cells.empty() || !options.out.empty())
    return usage("--routing spec with --cells and --out", "--routing " + options.routing);
  BenchLayerOptions bench;
  MORACLE_ASSIGN(bench.shape, parse_layer_shape(options.shape));
  MORACLE_ASSIGN(bench.scheme, find_scheme(options.scheme));
  MORACLE_ASSIGN(bench.tokens, parse_integers(options.tokens, "--tokens", 1, 1 << 20));
  MORACLE_ASSIGN(const Place place, options.place());
  bench.machine = place.machine();
  bench.device = place.device;
  bench.policy = options.policy_value(place);
  bench.threads = options.threads;
  bench.baseline = options.baseline;
  bench.interrupted = [] { return interrupted(); };
  bench.on_progress = [&](const std::string& what, double share) { console.progress(what, share, 1); };
  bench.on_warning = [&](const std::string& warning) { console.warn(warning); };
  const auto timed = bench_layer(bench);
  console.end_progress();
  MORACLE_ASSIGN(const BenchLayerResult result, timed);
  if (options.json) {
    console.json(layer_json(options, result));
  } else {
    console.out(layer_text(options, result));
  }
  return 0;
}

void add_layer(CLI::App& bench, Program& program) {
  CLI::App* command = bench.add_subcommand("layer", "Time one MoE layer with random weights, routing excluded");
  auto options = std::make_shared<LayerCommand>();
  options->add(*command);
  command->add_option("--shape", options->shape, "A shape by name, or E=..,K=..,N=..,topk=..")->type_name("NAME");
  command->add_option("--scheme", options->scheme, "A scheme by name")->type_name("NAME");
  command->add_option("--tokens", options->tokens, "Token counts to time (default: 1, 4, 16, 64 and 512)")
      ->type_name("N,N,...");
  command->add_option("--cells", options->cells, "A file of lines `shape scheme tokens...`, instead of one shape")
      ->type_name("FILE");
  command
      ->add_option("--routing", options->routing,
                   "drawn: anew for each call; spec: the routings that other engines are timed with (default: drawn)")
      ->type_name("KIND")
      ->check(one_of({"drawn", "spec"}));
  command->add_option("--out", options->out, "Also write the rows of --routing spec to a file, as JSON")
      ->type_name("FILE");
  command->add_flag("!--no-baseline", options->baseline,
                    "Do not time the detour over weights expanded to bf16 (default: it is timed)");
  add_json(*command, options->json);
  std::string names = "Shapes:";
  for (const std::string& name : layer_shape_names()) names += " " + name;
  names += "\nSchemes:";
  for (const std::string& name : scheme_names()) names += " " + name;
  command->footer(names + "\nExample:\n  moracle bench layer --shape qwen3-30b-a3b --scheme int4-g128 --tokens 1,512");
  command->callback([options, &program] {
    program.action = [options, &program] {
      const auto code = layer_command(*options, program.console);
      return code.ok() ? *code : program.console.fail(code.error());
    };
  });
}

struct ModelCommand : ModelOptions {
  std::int64_t prompt = 512;
  std::int64_t generate = 64;
  double temperature = 0;
  std::int64_t top_k = 0;
  std::string sequences;
  std::int64_t runs = 5;
  std::string routing_trace;
  bool json = false;
};

Json sequences_json(const BenchSequencesOptions& options, const std::vector<BenchSequencesRow>& timed) {
  Json rows = Json::array();
  for (const BenchSequencesRow& row : timed) {
    rows.push_back({{"sequences", row.sequences},
                    {"prefill_tok_s", row.prefill_tok_s},
                    {"decode_tok_s", row.decode_tok_s},
                    {"least_tok_s", row.least_tok_s},
                    {"most_tok_s", row.most_tok_s}});
  }
  return {{"prompt", options.prompt}, {"generate", options.generate}, {"runs", options.runs}, {"rows", rows}};
}

std::string sequences_text(const std::vector<BenchSequencesRow>& timed) {
  const auto number = [](const char* title) { return Column{.title = title, .right = true}; };
  TextTable table(
      {number("sequences"), number("prefill tok/s"), number("decode tok/s"), number("least"), number("most")});
  for (const BenchSequencesRow& row : timed) {
    table.row({std::to_string(row.sequences), fmt::format("{:.1f}", row.prefill_tok_s),
               fmt::format("{:.1f}", row.decode_tok_s), fmt::format("{:.1f}", row.least_tok_s),
               fmt::format("{:.1f}", row.most_tok_s)});
  }
  return table.text(screen_width(STDOUT_FILENO));
}

// Seconds of each phase, and their share of all.
Json phases_json(const PhaseClock::Seconds& seconds) {
  const double all = std::accumulate(seconds.begin(), seconds.end(), 0.0);
  Json result = Json::object();
  for (std::size_t i = 0; i < kPhases; ++i) {
    result[std::string(to_string(static_cast<Phase>(i)))] = {{"s", seconds[i]},
                                                             {"share", all > 0 ? seconds[i] / all : 0.0}};
  }
  return result;
}

std::string phases_text(const BenchModelResult& result) {
  const auto number = [](const char* title) { return Column{.title = title, .right = true}; };
  TextTable table({{.title = "us a token"}, number("prefill"), number("share"), number("decode"), number("share")});
  const auto add = [](std::vector<std::string>& row, const PhaseClock::Seconds& seconds, std::size_t phase,
                      std::int64_t tokens) {
    const double all = std::accumulate(seconds.begin(), seconds.end(), 0.0);
    row.push_back(fmt::format("{:.1f}", seconds[phase] * 1e6 / static_cast<double>(std::max<std::int64_t>(1, tokens))));
    row.push_back(fmt::format("{:.1f} %", all > 0 ? 100 * seconds[phase] / all : 0.0));
  };
  for (std::size_t i = 0; i < kPhases; ++i) {
    if (result.prefill[i] == 0 && result.decode[i] == 0) continue;
    std::vector<std::string> row = {std::string(to_string(static_cast<Phase>(i)))};
    add(row, result.prefill, i, result.timing.prefill_tokens);
    add(row, result.decode, i, result.timing.decode_tokens);
    table.row(std::move(row));
  }
  return table.text(screen_width(STDOUT_FILENO));
}

Json weights_json(const LoadTime& load) {
  const double bound = load.bound().rate;
  return {{"bytes", load.bytes},
          {"s", load.weights_seconds},
          {"bytes_per_s", load.rate()},
          {"copy_bytes_per_s", load.rates.copy},
          {"read_bytes_per_s", load.rates.read},
          {"device_bytes_per_s", load.rates.to_device},
          {"share", bound > 0 ? Json(load.rate() / bound) : Json(nullptr)}};
}

// "2.0 GB/s = 52 % of the memory-copy rate of 3.9 GB/s": what the load itself attained of what bounds it.
std::string weights_text(const LoadTime& load) {
  const std::size_t width = screen_width(STDOUT_FILENO);
  std::string text = fmt::format("{:.2f} GB in {:.2f} s: {:.1f} GB/s", static_cast<double>(load.bytes) * 1e-9,
                                 load.weights_seconds, load.rate() * 1e-9);
  if (const auto [rate, name] = load.bound(); rate > 0) {
    text += fmt::format(" = {:.0f} % of the {} rate of {:.1f} GB/s", 100 * load.rate() / rate, name, rate * 1e-9);
  }
  return paragraph("packing", text, width, 13);
}

// Of a GPU; the host has no such line.
std::string graphs_text(const BenchModelResult& result) {
  const DecodeGraphs& graphs = result.graphs;
  if (graphs.sizes == 0) return "";
  if (graphs.captured == 0) return "graphs       off\n";
  return fmt::format("graphs       {} of {} decode steps replayed; {} graphs, {}\n", graphs.replayed,
                     result.timing.decode_tokens, graphs.captured, human_bytes(graphs.bytes));
}

Json graphs_json(const DecodeGraphs& graphs) {
  return {{"captured", graphs.captured}, {"replayed", graphs.replayed}, {"bytes", graphs.bytes}};
}

Json slots_json(const ExpertSlots& slots, std::int64_t tokens) {
  const double all = static_cast<double>(std::max<std::int64_t>(tokens, 1));
  return {{"uses", slots.uses},
          {"hits", slots.hits},
          {"reads", slots.reads},
          {"read_bytes", slots.read_bytes},
          {"ahead", slots.ahead},
          {"foreseen", slots.foreseen},
          {"bytes_a_token", static_cast<double>(slots.read_bytes) / all}};
}

// Of a model whose experts share slots.
Json slots_json(const BenchModelResult& result) {
  const ExpertSlots& slots = *result.decode_slots;
  return {{"slots", slots.slots},
          {"experts", slots.experts},
          {"slot_bytes", slots.slot_bytes},
          {"prefill", slots_json(*result.prefill_slots, result.timing.prefill_tokens)},
          {"decode", slots_json(slots, result.timing.decode_tokens)}};
}

std::string slots_text(const BenchModelResult& result) {
  if (!result.decode_slots || !result.prefill_slots) return "";
  const auto hits = [](const ExpertSlots& slots, std::int64_t tokens) {
    const double share = slots.uses > 0 ? static_cast<double>(slots.hits) / static_cast<double>(slots.uses) : 0.0;
    return fmt::format("{:.1f} % hits, {} a token read", 100 * share,
                       human_bytes(slots.read_bytes / static_cast<std::uint64_t>(std::max<std::int64_t>(tokens, 1))));
  };
  const ExpertSlots& slots = *result.decode_slots;
  return fmt::format("experts      {} of {} in slots of {}\n             prefill {}\n             decode {}\n",
                     std::min(slots.slots, slots.experts), slots.experts, human_bytes(slots.slot_bytes),
                     hits(*result.prefill_slots, result.timing.prefill_tokens),
                     hits(slots, result.timing.decode_tokens));
}

// The rows of --sequences.
Result<int> sequences_command(const ModelCommand& options, Console& console) {
  if (options.temperature > 0 || options.top_k > 0 || !options.routing_trace.empty())
    return usage("--sequences, or --temperature, --top-k and --routing-trace", "both of them");
  BenchSequencesOptions bench{
      .prompt = options.prompt, .generate = options.generate, .runs = options.runs, .interrupted = [] {
        return interrupted();
      }};
  MORACLE_ASSIGN(bench.sequences, parse_integers(options.sequences, "--sequences", 1, 4096));
  MORACLE_ASSIGN(const auto session, options.open(console, {.needs_text = false, .generates = false}));
  MORACLE_ASSIGN(const std::vector<BenchSequencesRow> rows, bench_sequences(*session, bench));
  if (options.json) {
    console.json(sequences_json(bench, rows));
  } else {
    console.out(sequences_text(rows));
  }
  return interrupted() ? interrupt_exit_code() : 0;
}

Result<int> model_command(const ModelCommand& options, Console& console) {
  if (!options.sequences.empty()) return sequences_command(options, console);
  MORACLE_ASSIGN(const auto session,
                 options.open(console, {.measure_rates = true, .needs_text = false, .generates = false}));
  BenchModelOptions bench{.prompt = options.prompt,
                          .generate = options.generate,
                          .temperature = options.temperature,
                          .top_k = options.top_k,
                          .interrupted = [] { return interrupted(); }};
  std::optional<RoutingTrace> trace;
  if (!options.routing_trace.empty()) {
    MORACLE_ASSIGN(trace, RoutingTrace::create(options.routing_trace, session->info().layers, session->info().experts));
    bench.trace = &*trace;
  }
  MORACLE_ASSIGN(const BenchModelResult result, bench_model(*session, bench));
  if (trace) MORACLE_TRY(trace->close());
  if (result.interrupted) return interrupt_exit_code();
  const auto backends = session->backends();
  const auto experts = backends.find("experts");
  if (options.json) {
    Json json = {{"load_s", result.load.seconds},
                 {"load_weights", weights_json(result.load)},
                 {"prefill_tok_s", result.timing.prefill_tok_s()},
                 {"decode_tok_s", result.timing.decode_tok_s()},
                 {"prefill_tokens", result.timing.prefill_tokens},
                 {"decode_tokens", result.timing.decode_tokens},
                 {"temperature", options.temperature},
                 {"top_k", options.top_k},
                 {"prefill_phases", phases_json(result.prefill)},
                 {"decode_phases", phases_json(result.decode)},
                 {"peak_rss_bytes", result.peak_rss_bytes},
                 {"backend", experts != backends.end() ? Json(experts->second) : Json(nullptr)},
                 {"backends", backends},
                 {"threads", session->pool().threads()}};
    if (result.graphs.sizes > 0) json["graphs"] = graphs_json(result.graphs);
    if (result.decode_slots && result.prefill_slots) json["experts"] = slots_json(result);
    console.json(json);
    return 0;
  }
  console.out(fmt::format("load         {:.2f} s\n", result.load.seconds) + weights_text(result.load) +
              fmt::format("prefill      {:.1f} tokens/s ({} tokens)\ndecode       {:.1f} tokens/s ({} tokens)\n"
                          "peak memory  {}\n",
                          result.timing.prefill_tok_s(), result.timing.prefill_tokens, result.timing.decode_tok_s(),
                          result.timing.decode_tokens, human_bytes(result.peak_rss_bytes)) +
              graphs_text(result) + slots_text(result) + "\n" + phases_text(result));
  return 0;
}

void add_whole_model(CLI::App& bench, Program& program) {
  CLI::App* command = bench.add_subcommand("model", "Time a whole model: load, prefill, decode, peak memory");
  auto options = std::make_shared<ModelCommand>();
  options->add(*command);
  command->add_option("--prompt", options->prompt, "Tokens of the prompt (default: 512)")
      ->type_name("N")
      ->check(whole_number(1, 1 << 24));
  command->add_option("--generate", options->generate, "Tokens to decode (default: 64)")
      ->type_name("N")
      ->check(whole_number(1, 1 << 24));
  command->add_option("--temperature", options->temperature, "0 is greedy; else tokens are drawn (default: greedy)")
      ->type_name("X")
      ->check(real_number([](double value) { return value >= 0; }, "a finite number of at least 0"));
  command->add_option("--top-k", options->top_k, "Draw among the K likeliest; 0: all (default: all)")
      ->type_name("K")
      ->check(whole_number(0, INT32_MAX));
  command
      ->add_option("--sequences", options->sequences,
                   "Time decode steps of so many sequences at a time instead, a row for each number")
      ->type_name("N,N,...");
  command->add_option("--runs", options->runs, "Runs of --generate steps that a row is the median of (default: 5)")
      ->type_name("N")
      ->check(whole_number(1, 1000));
  command
      ->add_option("--routing-trace", options->routing_trace,
                   "Write the experts that each timed call chose to a file, which scripts/cache-sim replays")
      ->type_name("FILE");
  add_json(*command, options->json);
  command->footer("Example:\n  moracle bench model ./Qwen3-30B-A3B-GPTQ-Int4 --prompt 512 --generate 64");
  command->callback([options, &program] {
    program.action = [options, &program] {
      const auto code = model_command(*options, program.console);
      return code.ok() ? *code : program.console.fail(code.error());
    };
  });
}

}  // namespace

void add_bench(CLI::App& root, Program& program) {
#ifdef MORACLE_SERVE
  CLI::App* command = root.add_subcommand("bench", "Time one layer, a whole model, or a server");
#else
  CLI::App* command = root.add_subcommand("bench", "Time one layer, or a whole model");
#endif
  command->require_subcommand(1);
  add_layer(*command, program);
  add_whole_model(*command, program);
#ifdef MORACLE_SERVE
  add_bench_serve(*command, program);
#endif
  command->footer("Example:\n  moracle bench layer --shape qwen3-30b-a3b --scheme int4-g128 --tokens 1,512");
}

}  // namespace moracle::cli
