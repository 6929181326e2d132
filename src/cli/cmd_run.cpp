// moracle run: generates text.
#include <fmt/format.h>
#include <unistd.h>

#include "cli/chat.h"
#include "cli/conversation.h"
#include "cli/interrupt.h"
#include "cli/program.h"
#include "cli/reply.h"
#include "cli/run_options.h"
#include "cli/screen.h"

namespace moracle::cli {

namespace {

// What the model is fed, all that may be wrong with it told.
Result<ChatPrompt> make_prompt(const ModelText& model, const std::string& text, ChatRequest request,
                               const RunOptions& options, Console& console) {
  MORACLE_TRY(options.check_context(model));
  ChatPrompt prompt{text, {}};
  if (options.uses_template()) {
    request.messages.push_back({{"role", "user"}, {"content", text}});
    MORACLE_ASSIGN(prompt, model.encode_chat(request));
    for (const std::string& warning : model.templates().warnings(request)) console.warn(warning);
    warn_of_hidden_system(request, prompt, console);
  } else {
    MORACLE_ASSIGN(prompt.ids, model.encode_prompt(text));
  }
  MORACLE_TRY(model.check_prompt(prompt.ids, options.context));
  return prompt;
}

Result<int> run_once(const RunOptions& options, Console& console) {
  MORACLE_ASSIGN(const std::string text, options.read_prompt());
  MORACLE_ASSIGN(const ChatRequest request, options.chat_request());
  MORACLE_ASSIGN(const auto form, options.answer_form());
  ChatPrompt prompt;
  const auto prepare = [&](const ModelText& model) -> Result<> {
    MORACLE_ASSIGN(prompt, make_prompt(model, text, request, options, console));
    return Ok{};
  };
  MORACLE_ASSIGN(
      const auto session,
      options.open(console, {.guard_content = !options.trust_content, .on_text = prepare, .choice = options.choice}));
  MORACLE_ASSIGN(const auto state, session->model().new_sequence());
  const ReplyStyle style{.silent = options.json, .hide_reasoning = options.hide_reasoning};
  const ReplyRequest asked{.prompt = prompt.text,
                           .ids = prompt.ids,
                           .context = options.context,
                           .settings = session->settings(),
                           .form = form ? &*form : nullptr};
  MORACLE_ASSIGN(const Reply reply, generate_reply(*session, *state, asked, style, console));
  if (options.json) {
    console.json(run_json(*session, reply, prompt.ids));
  } else {
    console.info(reply_line(*session, reply.generation, screen_width(STDERR_FILENO)));
  }
  if (interrupted()) return interrupt_exit_code();
  if (form) MORACLE_TRY(form->check_whole(reply.generation));
  return 0;
}

int run_command(const RunOptions& options, Console& console) {
  if (options.quiet) console.be_quiet();
  const auto code = options.interactive() ? run_chat(options, console) : run_once(options, console);
  return code.ok() ? *code : console.fail(code.error());
}

}  // namespace

void add_run(CLI::App& root, Program& program) {
  CLI::App* command = root.add_subcommand("run", "Generate text, streaming; without a prompt: an interactive chat");
  auto options = std::make_shared<RunOptions>();
  options->add(*command);
  command->footer(
      "Example:\n  moracle run ./Qwen3-30B-A3B-GPTQ-Int4 --chat -p \"Why is the sky blue?\" -n 200 --temperature 0\n"
      "  git diff | moracle run ./Qwen3-30B-A3B-GPTQ-Int4 --system \"Review this patch.\"");
  command->callback(
      [options, &program] { program.action = [options, &program] { return run_command(*options, program.console); }; });
}

}  // namespace moracle::cli
