// moracle run: generates text.
#include <fmt/format.h>
#include <unistd.h>

#include <iostream>

#include "base/memory.h"
#include "cli/interrupt.h"
#include "cli/options.h"
#include "cli/program.h"

namespace moracle::cli {

namespace {

constexpr std::int64_t kMostTokens = 1 << 24;
constexpr std::size_t kPromptBytes = std::size_t{64} << 20;

struct RunOptions : ModelOptions {
  std::string prompt;
  std::string file;
  bool has_prompt = false;
  bool has_file = false;
  std::int64_t max_tokens = 512;
  bool chat = false;
  bool json = false;
  // Unset: the publisher's settings.
  std::optional<double> temperature, top_p, min_p;
  std::optional<std::int64_t> top_k;
  std::uint64_t seed = 0;
};

SamplingOptions sampling_of(const RunOptions& options, const Session& session) {
  SamplingOptions sampling = session.generation().sampling;
  sampling.temperature = options.temperature.value_or(sampling.temperature);
  sampling.top_k = options.top_k.value_or(sampling.top_k);
  sampling.top_p = options.top_p.value_or(sampling.top_p);
  sampling.min_p = options.min_p.value_or(sampling.min_p);
  sampling.seed = options.seed;
  return sampling;
}

// Generates after `prompt` on `state`; hands text pieces to `emit` as they are settled.
Result<Generation> stream(Session& session, SequenceState& state, std::span<const std::int32_t> prompt,
                          const RunOptions& options, const Console& console,
                          const std::function<void(std::string_view)>& emit) {
  const Completion completion{.sampling = sampling_of(options, session), .max_tokens = options.max_tokens};
  return complete(session, state, prompt, completion, emit, [&] { return interrupted() || console.closed(); });
}

std::string timing_line(const Session& session, const Generation& generation) {
  const GenerationTiming& timing = generation.timing;
  return fmt::format(
      "load {:.2f} s{}; prompt {} tokens, {:.1f} tokens/s; generated {} tokens, {:.1f} tokens/s; stopped by {}; peak "
      "memory {}\n",
      session.load_seconds(), session.loaded_from_cache() ? " from cache" : "", timing.prefill_tokens,
      timing.prefill_tok_s(), generation.ids.size(), timing.decode_tok_s(), to_string(generation.finish),
      human_bytes(peak_resident_bytes()));
}

Json run_json(const Session& session, const std::string& text, const std::vector<std::int32_t>& prompt,
              const Generation& generation) {
  const GenerationTiming& timing = generation.timing;
  const bool stopped_early = generation.finish == FinishReason::interrupted;
  return {{"text", text},
          {"prompt_ids", prompt},
          {"ids", generation.ids},
          {"finish_reason", stopped_early ? "stop" : std::string(to_string(generation.finish))},
          {"interrupted", stopped_early},
          {"backend", session.backends()},
          {"timing",
           {{"load_s", session.load_seconds()},
            {"load_from", load_origin(session)},
            {"prefill_s", timing.prefill_s},
            {"prefill_tokens", timing.prefill_tokens},
            {"decode_s", timing.decode_s},
            {"decode_tokens", timing.decode_tokens},
            {"prefill_tok_s", timing.prefill_tok_s()},
            {"decode_tok_s", timing.decode_tok_s()}}},
          {"peak_rss_bytes", peak_resident_bytes()}};
}

Result<int> run_once(const RunOptions& options, Console& console) {
  std::string prompt = options.prompt;
  if (options.has_file) {
    MORACLE_ASSIGN(prompt, read_text(options.file, kPromptBytes));
  }
  MORACLE_ASSIGN(const auto session,
                 options.open(console, {.temperature = options.temperature, .top_k = options.top_k}));
  if (options.chat) {
    MORACLE_ASSIGN(prompt, session->render_chat(Json::array({{{"role", "user"}, {"content", prompt}}})));
  }
  // A template writes the special tokens itself.
  MORACLE_ASSIGN(const auto ids, session->encode_prompt(prompt, !options.chat));
  MORACLE_ASSIGN(const auto state, session->model().new_sequence());
  std::string text;
  MORACLE_ASSIGN(const Generation generation,
                 stream(*session, *state, ids, options, console, [&](std::string_view piece) {
                   text += piece;
                   if (!options.json) console.out(piece);
                 }));
  if (options.json) {
    console.json(run_json(*session, text, ids, generation));
  } else {
    console.out("\n");
    console.note(timing_line(*session, generation));
  }
  return interrupted() ? interrupt_exit_code() : 0;
}

// The tokens of a conversation that the model has seen already, so that each turn feeds only what is new.
class Conversation {
 public:
  explicit Conversation(Session& session) : session_(session) {}

  Result<> answer(const std::string& question, const RunOptions& options, Console& console) {
    messages_.push_back({{"role", "user"}, {"content", question}});
    MORACLE_ASSIGN(const std::string prompt, session_.render_chat(messages_));
    MORACLE_ASSIGN(const auto ids, session_.encode_prompt(prompt, false));
    const bool continues = state_ && seen_.size() < ids.size() && std::equal(seen_.begin(), seen_.end(), ids.begin());
    if (!continues) {
      MORACLE_ASSIGN(state_, session_.model().new_sequence());
      seen_.clear();
    }
    std::string text;
    MORACLE_ASSIGN(const Generation generation, stream(session_, *state_, std::span(ids).subspan(seen_.size()), options,
                                                       console, [&](std::string_view piece) {
                                                         text += piece;
                                                         console.out(piece);
                                                       }));
    console.out("\n");
    seen_ = ids;
    seen_.insert(seen_.end(), generation.ids.begin(), generation.ids.end());
    // The last token was chosen, not fed.
    seen_.resize(static_cast<std::size_t>(std::min<std::int64_t>(state_->length(), std::ssize(seen_))));
    messages_.push_back({{"role", "assistant"}, {"content", text}});
    return Ok{};
  }

 private:
  Session& session_;
  Json messages_ = Json::array();
  std::unique_ptr<SequenceState> state_;
  std::vector<std::int32_t> seen_;
};

Result<int> run_interactive(const RunOptions& options, Console& console) {
  MORACLE_ASSIGN(const auto session,
                 options.open(console, {.temperature = options.temperature, .top_k = options.top_k}));
  if (!session->chat_template()) return session->render_chat(Json::array()).error();
  console.note("Type a message; /exit or Ctrl-D ends, Ctrl-C stops an answer.\n");
  Conversation conversation(*session);
  std::string line;
  while (!console.closed()) {
    console.note("> ");
    if (!std::getline(std::cin, line) || line == "/exit") break;
    if (line.empty()) continue;
    MORACLE_TRY(conversation.answer(line, options, console));
    clear_interrupt();
  }
  console.note("\n");
  return interrupted() ? interrupt_exit_code() : 0;
}

int run_command(const RunOptions& options, Console& console) {
  const bool interactive = !options.has_prompt && !options.has_file;
  if (interactive && (!is_terminal(STDIN_FILENO) || options.json)) {
    return console.fail({.code = "usage",
                         .wanted = "-p TEXT or -f FILE",
                         .found = "neither, and no terminal to chat on",
                         .advice = "see `moracle run --help`"});
  }
  const auto code = interactive ? run_interactive(options, console) : run_once(options, console);
  return code.ok() ? *code : console.fail(code.error());
}

void add_sampling(CLI::App& command, RunOptions& options) {
  const auto add_real = [&](const char* name, std::optional<double>& target, const char* help,
                            std::function<bool(double)> accepts, const char* wanted) {
    command.add_option_function<double>(
               name, [&target](const double& value) { target = value; }, help)
        ->type_name("X")
        ->check(real_number(std::move(accepts), wanted));
  };
  add_real(
      "--temperature", options.temperature,
      "0 is greedy (default: the model's generation_config.json where it names a temperature, else greedy)",
      [](double value) { return value >= 0; }, "a finite number of at least 0");
  command
      .add_option_function<std::int64_t>(
          "--top-k", [&options](const std::int64_t& value) { options.top_k = value; }, "Keep the K likeliest; 0: all")
      ->type_name("K")
      ->check(whole_number(0, INT32_MAX));
  add_real(
      "--top-p", options.top_p, "Keep the shortest likeliest set whose probability reaches P",
      [](double value) { return value > 0 && value <= 1; }, "a number above 0 and at most 1");
  add_real(
      "--min-p", options.min_p, "Drop what is less likely than P times the likeliest",
      [](double value) { return value >= 0 && value <= 1; }, "a number from 0 to 1");
  command.add_option("--seed", options.seed, "Seed of the random choices; the same seed gives the same text")
      ->type_name("S")
      ->check(whole_number(0, INT64_MAX));
}

}  // namespace

void add_run(CLI::App& root, Program& program) {
  CLI::App* command = root.add_subcommand("run", "Generate text, streaming; without a prompt: an interactive chat");
  auto options = std::make_shared<RunOptions>();
  options->add(*command);
  CLI::Option* prompt = command->add_option("-p,--prompt", options->prompt, "Prompt")->type_name("TEXT");
  CLI::Option* file = command->add_option("-f,--file", options->file, "Read the prompt from a file")->type_name("FILE");
  prompt->excludes(file);
  command->add_option("-n,--max-tokens", options->max_tokens, "Most tokens to generate")
      ->type_name("MAX")
      ->capture_default_str()
      ->check(whole_number(1, kMostTokens));
  command->add_flag("--chat", options->chat, "Apply the model's chat template to the prompt");
  add_sampling(*command, *options);
  add_json(*command, options->json);
  command->footer(
      "Example:\n  moracle run ./Qwen3-30B-A3B-GPTQ-Int4 --chat -p \"Why is the sky blue?\" -n 200 --temperature 0");
  command->callback([options, prompt, file, &program] {
    options->has_prompt = prompt->count() > 0;
    options->has_file = file->count() > 0;
    program.action = [options, &program] { return run_command(*options, program.console); };
  });
}

}  // namespace moracle::cli
