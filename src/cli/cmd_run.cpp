// moracle run: generates text.
#include <fmt/format.h>
#include <unistd.h>

#include <iostream>

#include "base/memory.h"
#include "cli/interrupt.h"
#include "cli/program.h"
#include "cli/run_options.h"

namespace moracle::cli {

namespace {

// Generates after `prompt` on `state`, which holds `before`; hands text pieces to `emit` as they are settled.
Result<Generation> stream(Session& session, SequenceState& state, std::span<const std::int32_t> before,
                          std::span<const std::int32_t> prompt, const RunOptions& options, const Console& console,
                          const std::function<void(std::string_view)>& emit) {
  const Completion completion{.settings = session.settings(),
                              .max_tokens = session.settings().answer_tokens(std::ssize(before) + std::ssize(prompt)),
                              .context = options.context,
                              .before = before};
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

// The prompt's ids: what the model is fed, all that may be wrong with it told.
Result<std::vector<std::int32_t>> prompt_ids(const ModelText& text, const std::string& prompt, ChatRequest request,
                                             const RunOptions& options) {
  MORACLE_TRY(options.check_context(text));
  std::string whole = prompt;
  if (options.uses_template()) {
    request.messages.push_back({{"role", "user"}, {"content", prompt}});
    MORACLE_ASSIGN(whole, text.templates().render(request));
  }
  // A template writes the special tokens itself.
  MORACLE_ASSIGN(auto ids, text.encode_prompt(whole, !options.uses_template()));
  MORACLE_TRY(text.check_prompt(ids, options.context));
  return ids;
}

Result<int> run_once(const RunOptions& options, Console& console) {
  MORACLE_ASSIGN(const std::string prompt, options.read_prompt());
  MORACLE_ASSIGN(const ChatRequest request, options.chat_request());
  std::vector<std::int32_t> ids;
  const auto prepare = [&](const ModelText& text) -> Result<> {
    MORACLE_ASSIGN(ids, prompt_ids(text, prompt, request, options));
    return Ok{};
  };
  MORACLE_ASSIGN(const auto session, options.open(console, {.on_text = prepare, .choice = options.choice}));
  MORACLE_ASSIGN(const auto state, session->model().new_sequence());
  std::string text;
  MORACLE_ASSIGN(const Generation generation,
                 stream(*session, *state, {}, ids, options, console, [&](std::string_view piece) {
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
  Conversation(Session& session, ChatRequest request) : session_(session), request_(std::move(request)) {}

  Result<> answer(const std::string& question, const RunOptions& options, Console& console) {
    request_.messages.push_back({{"role", "user"}, {"content", question}});
    MORACLE_ASSIGN(const std::string prompt, session_.text().templates().render(request_));
    MORACLE_ASSIGN(const auto ids, session_.text().encode_prompt(prompt, false));
    const bool continues = state_ && seen_.size() < ids.size() && std::equal(seen_.begin(), seen_.end(), ids.begin());
    if (!continues) {
      MORACLE_ASSIGN(state_, session_.model().new_sequence());
      seen_.clear();
    }
    std::string text;
    MORACLE_ASSIGN(const Generation generation, stream(session_, *state_, seen_, std::span(ids).subspan(seen_.size()),
                                                       options, console, [&](std::string_view piece) {
                                                         text += piece;
                                                         console.out(piece);
                                                       }));
    console.out("\n");
    seen_ = ids;
    seen_.insert(seen_.end(), generation.ids.begin(), generation.ids.end());
    // The last token was chosen, not fed.
    seen_.resize(static_cast<std::size_t>(std::min<std::int64_t>(state_->length(), std::ssize(seen_))));
    request_.messages.push_back({{"role", "assistant"}, {"content", text}});
    return Ok{};
  }

 private:
  Session& session_;
  ChatRequest request_;
  std::unique_ptr<SequenceState> state_;
  std::vector<std::int32_t> seen_;
};

Result<int> run_interactive(const RunOptions& options, Console& console) {
  MORACLE_ASSIGN(ChatRequest request, options.chat_request());
  const auto prepare = [&](const ModelText& text) -> Result<> {
    MORACLE_TRY(options.check_context(text));
    return text.templates().check(request);
  };
  MORACLE_ASSIGN(const auto session, options.open(console, {.on_text = prepare, .choice = options.choice}));
  console.note("Type a message; /exit or Ctrl-D ends, Ctrl-C stops an answer.\n");
  Conversation conversation(*session, std::move(request));
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
  const auto code = options.interactive() ? run_interactive(options, console) : run_once(options, console);
  return code.ok() ? *code : console.fail(code.error());
}

}  // namespace

void add_run(CLI::App& root, Program& program) {
  CLI::App* command = root.add_subcommand("run", "Generate text, streaming; without a prompt: an interactive chat");
  auto options = std::make_shared<RunOptions>();
  options->add(*command);
  command->footer(
      "Example:\n  moracle run ./Qwen3-30B-A3B-GPTQ-Int4 --chat -p \"Why is the sky blue?\" -n 200 --temperature 0");
  command->callback(
      [options, &program] { program.action = [options, &program] { return run_command(*options, program.console); }; });
}

}  // namespace moracle::cli
