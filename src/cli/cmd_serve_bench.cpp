#include "cli/cmd_serve_bench.h"

#include <fmt/format.h>
#include <unistd.h>

#include <atomic>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <future>
#include <thread>

#include "base/printable.h"
#include "bench/load/load.h"
#include "cli/interrupt.h"
#include "cli/option_table.h"
#include "cli/options.h"
#include "cli/screen.h"
#include "serve/server.h"

namespace moracle::cli {

namespace {

constexpr const char* kKeyVariable = "MORACLE_API_KEY";
constexpr const char* kLoadGroup = "Load";

struct BenchServeCommand : ModelOptions {
  BenchServeCommand() { invariant = "auto"; }  // as `serve` has it

  load::BenchServeOptions bench;
  std::string clients = "1,8,32";
  std::string picture;
  bool json = false;

  [[nodiscard]] bool drives_a_server() const { return model.find("://") != std::string::npos; }
};

std::string report(const load::BenchServeResult& result) {
  const auto number = [](const char* title, Narrow narrow = Narrow::keep, int rank = 0) {
    return Column{.title = title, .right = true, .narrow = narrow, .rank = rank};
  };
  TextTable table({{.title = "load"},
                   number("requests", Narrow::drop, 4),
                   number("tokens/s"),
                   number("prompt tokens", Narrow::drop, 3),
                   number("cached", Narrow::drop, 2),
                   number("first token ms"),
                   number("p99", Narrow::drop, 1),
                   number("between tokens ms"),
                   number("p99", Narrow::drop, 1)});
  for (const load::BenchServeRow& row : result.rows) {
    table.row({row.load, std::to_string(row.requests), fmt::format("{:.1f}", row.output_rate()),
               std::to_string(row.prompt_tokens), std::to_string(row.cached_tokens),
               fmt::format("{:.1f}", row.first_token.p50 * 1e3), fmt::format("{:.1f}", row.first_token.p99 * 1e3),
               fmt::format("{:.2f}", row.inter_token.p50 * 1e3), fmt::format("{:.2f}", row.inter_token.p99 * 1e3)});
  }
  return table.text(screen_width(STDOUT_FILENO), Paint(wants_color(STDOUT_FILENO)));
}

Result<> write_picture(const std::string& path, const std::string& picture) {
  std::ofstream file(path, std::ios::binary);
  file << picture;
  file.close();
  if (file) return Ok{};
  return Error{.code = "file.write", .file = path, .wanted = "a file that can be written", .found = "a failure"};
}

Result<load::BenchServeResult> drive(BenchServeCommand& options, Console& console) {
  options.bench.interrupted = [] { return interrupted(); };
  options.bench.on_progress = [&](const std::string& what, double share) { console.progress(what, share, 1); };
  auto result = load::bench_serve(options.bench);
  console.end_progress();
  return result;
}

// Serves the model on a port of its own while it is driven.
Result<load::BenchServeResult> serve_and_drive(BenchServeCommand& options, Console& console) {
  MORACLE_ASSIGN(const Place place, options.place());
  serve::ServerOptions how;
  how.http.port = 0;
  const std::string name = std::filesystem::path(options.model).filename().string();
  how.service.names.push_back(name.empty() ? options.model : name);
  how.service.version = MORACLE_VERSION;
  MORACLE_ASSIGN(const auto server, serve::Server::open(how));
  MORACLE_ASSIGN(const auto session, options.open(console, {.generates = false}));
  options.bench.url = server->address();
  options.bench.key.clear();
  std::promise<void> ready;
  std::atomic<bool> ends{false};
  std::jthread serving([&] {
    server->serve(
        *session, {.batch_invariant = options.batch_invariant(place), .numerics = options.policy},
        [&] { ready.set_value(); }, [&] { return ends ? serve::ServerCommand::drain : serve::ServerCommand::serve; });
  });
  ready.get_future().wait();
  auto result = drive(options, console);
  ends = true;
  serving.join();
  options.bench.url = options.model;
  return result;
}

Result<int> bench_serve_command(BenchServeCommand& options, Console& console) {
  MORACLE_ASSIGN(options.bench.clients, parse_integers(options.clients, "--clients", 1, 100000));
  if (options.drives_a_server()) {
    options.bench.url = options.model;
    const char* const key = std::getenv(kKeyVariable);
    if (key != nullptr) options.bench.key = key;
  }
  MORACLE_ASSIGN(const load::BenchServeResult result,
                 options.drives_a_server() ? drive(options, console) : serve_and_drive(options, console));
  if (!options.picture.empty()) MORACLE_TRY(write_picture(options.picture, load::bench_serve_picture(result)));
  if (options.json) {
    console.json(load::bench_serve_json(options.bench, result));
  } else {
    console.out(report(result));
  }
  return 0;
}

void add_load_options(CLI::App& command, BenchServeCommand& options) {
  const InGroup group(command, kLoadGroup);
  load::BenchServeOptions& bench = options.bench;
  const auto share = [] {
    return real_number([](double value) { return value >= 0 && value <= 1; }, "a number from 0 to 1");
  };
  CLI::Option* clients = command
                             .add_option("--clients", options.clients,
                                         "A row each: so many requests are always under way (default: 1, 8 and 32)")
                             ->type_name("N,N,...");
  command
      .add_option("--rate", bench.rates,
                  "A row each: requests a second, which arrive at random (Poisson); repeatable (default: --clients)")
      ->type_name("R")
      ->allow_extra_args(false)
      ->excludes(clients)
      ->check(real_number([](double value) { return value > 0 && value <= 1e6; }, "a number above 0, at most 1e6"));
  command.add_option("--requests", bench.requests, "Requests of each row (default: 4 of each client, 32 of each rate)")
      ->type_name("N")
      ->check(whole_number(1, 10000000));
  command.add_option("--prompt", bench.prompt, "Tokens of a prompt, within a few (default: 512)")
      ->type_name("N")
      ->check(whole_number(1, 1 << 24));
  command.add_option("--ragged", bench.spread, "Prompts are shorter or longer by up to this share (default: 0)")
      ->type_name("SHARE")
      ->check(share());
  command.add_option("--shared-prefix", bench.shared, "This share of each prompt begins all of a row's (default: 0)")
      ->type_name("SHARE")
      ->check(share());
  command.add_option("--generate", bench.generate, "Tokens of a reply (default: 128)")
      ->type_name("N")
      ->check(whole_number(2, 1 << 24));
  command.add_option("--temperature", bench.temperature, "0 is greedy; else tokens are drawn (default: 0)")
      ->type_name("X")
      ->check(real_number([](double value) { return value >= 0 && value <= 100; }, "a number from 0 to 100"));
  command.add_option("--seed", bench.seed, "Of prompts, arrivals and draws (default: 1)")
      ->type_name("N")
      ->check(whole_number(0, INT32_MAX));
  command
      .add_option("--served-name", bench.model,
                  "Name of the model that requests give (default: the first that the server lists)")
      ->type_name("NAME");
  command.add_option("--timeout", bench.timeout_s, "Seconds that a server may be silent (default: 600)")
      ->type_name("S")
      ->check(real_number([](double value) { return value > 0 && value <= 86400; }, "a number above 0, at most 86400"));
}

}  // namespace

void add_bench_serve(CLI::App& bench, Program& program) {
  CLI::App* command =
      bench.add_subcommand("serve", "Time a server of OpenAI's API: first token, time between tokens, tokens/s");
  auto options = std::make_shared<BenchServeCommand>();
  options->ModelOptions::add(*command);
  command->get_option("model")->description(
      "http://HOST:PORT of a server, or a model as `moracle run` takes it, which is served for as long as it is timed");
  add_load_options(*command, *options);
  command->add_option("--picture", options->picture, "Write the rows as an SVG picture")->type_name("FILE");
  add_json(*command, options->json);
  command->footer(fmt::format(
      "A server that wants a key gets that of ${}. The first request measures how many tokens the prompts' words "
      "are.\nExample:\n  moracle bench serve http://127.0.0.1:8080 --clients 1,8 --prompt 512 --generate 128\n"
      "  moracle bench serve ./Qwen3-30B-A3B-GPTQ-Int4 --rate 2 --ragged 0.5 --json --picture load.svg",
      kKeyVariable));
  command->callback([options, &program] {
    program.action = [options, &program] {
      const auto code = bench_serve_command(*options, program.console);
      return code.ok() ? *code : program.console.fail(code.error());
    };
  });
}

}  // namespace moracle::cli
