// moracle serve: one model for many clients.
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <ctime>

#include "base/printable.h"
#include "checkpoint/hub_cache.h"
#include "cli/hub.h"
#include "cli/interrupt.h"
#include "cli/option_table.h"
#include "cli/options.h"
#include "cli/program.h"
#include "cli/sandbox.h"
#include "model/load/explain_plan.h"
#include "serve/api/fields.h"
#include "serve/api/openapi.h"
#include "serve/server.h"
#include "text/reply/call_syntax.h"

namespace moracle::cli {

namespace {

constexpr const char* kServerGroup = "Server";
constexpr const char* kAccessGroup = "Access";
constexpr const char* kBatchGroup = "Batching";
constexpr const char* kKeyVariable = "MORACLE_API_KEY";
constexpr std::string_view kUnix = "unix:";

struct ServeCommand : ModelOptions {
  ServeCommand() { invariant = "auto"; }

  serve::ServerOptions server;
  std::string key;
  std::string key_file;
  std::string tool_format;
  bool quiet = false;
  bool trust_content = false;
  bool no_sandbox = false;
  double kv_gib = 0;
};

CLI::Validator positive(double most) {
  return real_number([most](double value) { return value > 0 && value <= most; },
                     fmt::format("a number above 0 and at most {}", most));
}

CLI::Validator text_of(std::size_t most) {
  return CLI::Validator(
      [most](const std::string& text) {
        return !text.empty() && text.size() <= most ? "" : fmt::format("wanted 1 to {} bytes, found '{}'", most, text);
      },
      "");
}

// As a shell reads it.
std::string quoted(const std::string& text) {
  const bool plain = std::all_of(text.begin(), text.end(), [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') ||
           std::string_view("._-/:").find(c) != std::string_view::npos;
  });
  if (plain && !text.empty()) return text;
  std::string out = "'";
  for (const char c : text) out += c == '\'' ? "'\\''" : std::string(1, c);
  return out + "'";
}

void add_server_options(CLI::App& command, ServeCommand& options) {
  const InGroup group(command, kServerGroup);
  command
      .add_option("--listen,--host", options.server.http.listen,
                  "Address to listen at, or unix:PATH (default: 127.0.0.1, which this machine alone reaches)")
      ->type_name("ADDRESS");
  command.add_option("--port", options.server.http.port, "Port; 0: any that is free (default: 8080)")
      ->type_name("N")
      ->check(whole_number(0, 65535));
  command
      .add_option("--served-name", options.server.service.names,
                  "Name that requests may give as model; repeatable (default: the folder's name)")
      ->type_name("NAME")
      ->check(text_of(serve::kNameBytes))
      ->allow_extra_args(false);
  command.add_flag("--any-model", options.server.service.any_model, "Serve requests whatever model they name");
  command.add_flag("--strict", options.server.service.strict,
                   "Refuse unknown fields (default: the header x-moracle-ignored lists them)");
  add_tool_format(command, options.tool_format);
  add_trust_content(command, options.trust_content);
  command.add_option("--drain", options.server.drain_s, "Seconds for replies under way at the end (default: 30)")
      ->type_name("S")
      ->check(real_number([](double value) { return value >= 0 && value <= 86400; }, "a number from 0 to 86400"));
  command
      .add_option("--stall", options.server.service.stall_s,
                  "Seconds without a step, while there is work, that turn /health red (default: 60)")
      ->type_name("S")
      ->check(positive(86400));
  command.add_option("--max-connections", options.server.http.connections, "Most connections (default: 2048)")
      ->type_name("N")
      ->check(whole_number(1, 1000000));
  command.add_flag("--log-prompts", options.server.service.log_prompts,
                   "Log the text of prompts (default: counts and times alone)");
  command.add_flag("--expert-metrics", options.server.service.expert_metrics,
                   "Tell in /metrics how many tokens each expert of each layer took (default: /v1/routing tells)");
  command.add_flag("--quiet", options.quiet, "No log and no progress: warnings and errors (default: a line a request)");
}

void add_access_options(CLI::App& command, ServeCommand& options) {
  const InGroup group(command, kAccessGroup);
  CLI::Option* file =
      command
          .add_option("--api-key-file", options.key_file,
                      fmt::format("File of keys, a line name:key each (default: the one key in ${})", kKeyVariable))
          ->type_name("FILE")
          ->check(named("a file"));
  command.add_option("--api-key", options.key, "The one key; other users of this machine can read it here")
      ->type_name("KEY")
      ->check(named("a key"))
      ->excludes(file);
  command.add_flag("--no-auth", options.server.everybody, "Serve whoever reaches the address, without a key");
  command
      .add_option("--allowed-host", options.server.access.allowed_hosts,
                  "Host name that requests may come by; repeatable; *: any (default: those of loopback)")
      ->type_name("NAME")
      ->allow_extra_args(false);
  command
      .add_option("--cors-origin", options.server.access.cors_origins,
                  "Origin whose pages may ask, such as https://chat.example; repeatable (default: none)")
      ->type_name("ORIGIN")
      ->allow_extra_args(false);
  command.add_flag("--no-sandbox", options.no_sandbox,
                   "Keep the right to open connections, to run programs and to write files (default: given up once the "
                   "model is loaded)");
  command.add_flag("--share-prefixes", options.server.scheduler.share_prefixes,
                   "Reuse prompts among keys: faster, and one key can time what another asked (default: within a key)");
}

void add_batch_options(CLI::App& command, ServeCommand& options) {
  const InGroup group(command, kBatchGroup);
  SchedulerOptions& how = options.server.scheduler;
  const auto whole = [&](const char* name, std::int64_t& target, const char* text, std::int64_t low) {
    command.add_option(name, target, text)->type_name("N")->check(whole_number(low, std::int64_t{1} << 40));
  };
  whole("--context", how.context, "Most tokens of prompt and reply (default: what the model can hold)", 2);
  whole("--max-running", how.max_running, "Most replies that are generated at once (default: 32, on a GPU 64)", 1);
  whole("--per-key-running", how.max_running_per_key, "Of these, of one key; 0: no bound of its own (default: 0)", 0);
  whole("--max-queue", how.max_queue, "Most replies that wait; more get status 429 (default: 1024)", 1);
  whole("--max-queue-tokens", how.max_queue_tokens, "Most prompt tokens that wait; 0: no bound (default: 0)", 0);
  command
      .add_option(
          "--kv-memory", options.kv_gib,
          "GiB for keys and values, of replies and of stored prefixes together (default: what the memory allows)")
      ->type_name("GIB")
      ->check(positive(1 << 20));
  command
      .add_option("--step-ms", how.step_ms,
                  "Time that a step's share of prompts may take, tenfold where no reply decodes (default: 200)")
      ->type_name("MS")
      ->check(positive(60000));
}

Result<> resolve_access(ServeCommand& options, Console& console) {
  serve::AccessRules& rules = options.server.access;
  const char* const variable = std::getenv(kKeyVariable);
  if (!options.key_file.empty()) {
    MORACLE_ASSIGN(rules.keys, serve::read_keys(options.key_file));
  } else if (!options.key.empty()) {
    console.warn("--api-key can be read by other users of this machine: --api-key-file keeps it to its file");
    MORACLE_ASSIGN(auto key, serve::make_key("default", options.key));
    rules.keys.push_back(std::move(key));
  } else if (variable != nullptr && *variable != '\0') {
    MORACLE_ASSIGN(auto key, serve::make_key("default", variable));
    rules.keys.push_back(std::move(key));
  }
  return Ok{};
}

Result<std::unique_ptr<serve::Server>> open_server(const serve::ServerOptions& options) {
  auto server = serve::Server::open(options);
  if (server.ok() || server.error().code != "access.open") return server;
  Error error = server.error();
  error.code = "usage";
  error.where = "--listen " + error.where;
  error.advice = "add --api-key-file FILE, or --no-auth";
  return error;
}

std::string name_of(const std::string& model) {
  const auto folder = locate_model(model);
  return model_name(folder.ok() ? *folder : std::filesystem::path(model));
}

// Behind what it needs, where the shell may lack that.
std::string curl_line(const ServeCommand& options, const std::string& address, bool chats) {
  std::string url = address;
  std::string line = "curl ";
  if (address.starts_with(kUnix)) {
    line += "--unix-socket " + quoted(address.substr(kUnix.size())) + " ";
    url = "http://localhost";
  }
  for (const auto& [any, here] : {std::pair{"//0.0.0.0:", "//127.0.0.1:"}, std::pair{"//[::]:", "//[::1]:"}}) {
    const std::size_t at = url.find(any);
    if (at != std::string::npos) url.replace(at, std::string(any).size(), here);
  }
  if (!options.key_file.empty()) {
    line += "-H \"Authorization: Bearer $(grep -v '^#' " + quoted(options.key_file) + " | head -n 1 | cut -d: -f2-)\" ";
  } else if (!options.server.access.keys.empty()) {
    line += fmt::format("-H \"Authorization: Bearer ${}\" ", kKeyVariable);
    const char* const variable = std::getenv(kKeyVariable);
    if (variable == nullptr || options.server.access.keys.front().key != variable)
      line.insert(0, fmt::format("(with {} set to the key of --api-key)\n  ", kKeyVariable));
  }
  return line + url + (chats ? "/v1/chat/completions" : "/v1/completions") +
         " -H 'Content-Type: application/json' -d '" +
         (chats ? R"({"messages": [{"role": "user", "content": "Hello"}], "max_tokens": 32})"
                : R"({"prompt": "Hello", "max_tokens": 32})") +
         "'";
}

// Why the process keeps its rights, or empty: it gave them up.
std::string sandbox_line(const ServeCommand& options, const Place& place) {
  if (options.no_sandbox) return "--no-sandbox is given";
  if (!has_sandbox()) return "this build has none";
  const auto entered = enter_sandbox({.opens_devices = place.device != nullptr});
  return entered.ok() ? "" : entered.error().found;
}

Result<int> serve_command(ServeCommand& options, Console& console) {
  if (options.quiet) console.be_quiet();
  MORACLE_TRY(resolve_access(options, console));
  MORACLE_ASSIGN(const Place place, options.place());
  const Machine machine = place.machine();
  const bool invariant = options.batch_invariant(place);
  serve::ServiceOptions& service = options.server.service;
  if (service.names.empty()) service.names.push_back(name_of(options.model));
  service.version = MORACLE_VERSION;
  service.created = std::time(nullptr);
  options.server.supervised = true;
  options.server.log = options.quiet ? -1 : STDERR_FILENO;
  std::string unboxed;
  options.server.enter_sandbox = [&] {
    unboxed = sandbox_line(options, place);
    return unboxed.empty();
  };

  MORACLE_ASSIGN(const auto server, open_server(options.server));
  serve::ServedFacts facts{.batch_invariant = invariant, .numerics = options.policy};
  const ModelOptions::Opening opening{
      .guard_content = !options.trust_content,
      .choice = {.samples = true},  // what requests that choose nothing get: told of, or refused, before the load
      .call_syntax = find_call_syntax(options.tool_format),
      .kv_memory = static_cast<std::size_t>(std::llround(options.kv_gib * 0x1p30)),
      .on_plan = [&](const LoadPlan& plan) { facts.decision = explain_plan_json(plan, machine); },
      .on_progress =
          [&](const LoadProgress& progress) {
            server->set_progress(static_cast<double>(progress.bytes_done), static_cast<double>(progress.bytes_total));
          }};
  MORACLE_ASSIGN(const auto session, options.open(console, opening));
  if (options.server.scheduler.context > session->info().max_context) {
    return Error{.code = "usage",
                 .where = "--context",
                 .wanted = fmt::format("at most {} tokens, which this model can hold", session->info().max_context),
                 .found = std::to_string(options.server.scheduler.context)};
  }
  if (const StateMemory memory = session->model().state_memory(); memory.budget > 0 && memory.positions < 2) {
    return Error{.code = "usage",
                 .where = "--kv-memory",
                 .wanted = "room for two tokens at least",
                 .found = fmt::format("{} bytes, room for {}", memory.budget, memory.positions)};
  }
  const auto report = [&] {
    if (!invariant) {
      const bool amx = has(place.host.cpu_features, CpuFeature::amx_tile);
      const std::string_view why = place.device != nullptr ? ", as a GPU is used" : amx ? ", as AMX is used" : "";
      console.note(fmt::format("moracle: replies may differ in bits by load: --batch-invariant is off{}{}\n", why,
                               why.empty() ? "" : "; --batch-invariant=on gives the same bits at any load"));
    }
    console.note(unboxed.empty()
                     ? "moracle: from here on this process opens no connection, runs no program and writes no file\n"
                     : fmt::format("moracle: no sandbox, as {}\n", unboxed));
    const std::string address = server->address();
    console.note(fmt::format("moracle: serving {} at {}{}\n  {}\n", printable(service.names.front()), address,
                             address.starts_with(kUnix) ? "" : "/v1",
                             curl_line(options, address, !session->text().templates().empty())));
  };
  server->serve(*session, facts, report,
                [] { return interrupted() ? serve::ServerCommand::drain : serve::ServerCommand::serve; });
  return 0;
}

void add_tables(CLI::App& root, Program& program) {
  // For the documents, which are made from the tables.
  CLI::App* command =
      root.add_subcommand("api-tables", "Print the API's description or its table of fields")->group("");
  auto which = std::make_shared<std::string>();
  command->add_option("which", *which, "What to print")->required()->check(one_of({"openapi", "fields"}));
  command->callback([which, &program] {
    program.action = [which, &program] {
      program.console.out(*which == "openapi" ? serve::openapi_yaml(MORACLE_VERSION) : serve::fields_markdown());
      return 0;
    };
  });
}

}  // namespace

void add_serve(CLI::App& root, Program& program) {
  add_tables(root, program);
  CLI::App* command = root.add_subcommand("serve", "Serve a model to clients of OpenAI's API");
  auto options = std::make_shared<ServeCommand>();
  options->ModelOptions::add(*command);
  add_server_options(*command, *options);
  add_access_options(*command, *options);
  add_batch_options(*command, *options);
  command->footer(
      "Once it serves, it prints its address and a curl command that asks it. SIGTERM and Ctrl-C let replies that are "
      "under way finish; a second one ends it at once.\n"
      "Example:\n  moracle serve ./Qwen3-30B-A3B-GPTQ-Int4 --port 8080\n"
      "  moracle serve org/name --listen 0.0.0.0 --api-key-file keys.txt --allowed-host llm.example");
  command->callback([options, &program] {
    program.action = [options, &program] {
      const auto code = serve_command(*options, program.console);
      return code.ok() ? *code : program.console.fail(code.error());
    };
  });
}

}  // namespace moracle::cli
