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
#include "cli/tool_results.h"

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

// One reply. Calls of tools in it get no result.
Result<int> reply_once(Session& session, const RunOptions& options, const ReplyRequest& asked, Console& console) {
  MORACLE_ASSIGN(const auto state, session.model().new_sequence());
  const ReplyStyle style{.silent = options.json, .hide_reasoning = options.hide_reasoning};
  MORACLE_ASSIGN(const Reply reply, generate_reply(session, *state, asked, style, console));
  if (options.json) {
    console.json(run_json(session, reply, asked.ids));
  } else {
    console.info(reply_line(session, reply.generation, screen_width(STDERR_FILENO)));
  }
  if (interrupted()) return interrupt_exit_code();
  if (asked.form != nullptr && !reply.ended_to_call()) MORACLE_TRY(asked.form->check_whole(reply.generation));
  return 0;
}

// Replies until one calls no tool, or a result is missing.
Result<int> reply_with_tools(Session& session, const RunOptions& options, const ToolChat& request,
                             const std::optional<AnswerForm>& form, const std::string& text, Console& console) {
  Conversation conversation(session, request, session.settings(), options.context, form, request.callable);
  conversation.skip_system_check();
  const auto editor = is_terminal(STDIN_FILENO) ? LineEditor::make() : nullptr;
  const auto results = editor == nullptr ? read_results() : typed_results(*editor, [] {});
  const ReplyStyle style{.hide_reasoning = options.hide_reasoning, .json_calls = editor == nullptr};
  MORACLE_ASSIGN(const Turn turn, take_turn(conversation, text, *results, style, console));
  console.info(reply_line(session, turn.reply.generation, screen_width(STDERR_FILENO)));
  if (interrupted()) return interrupt_exit_code();
  if (!turn.complete) console.info("moracle: no result came, so the calls end the answer\n");
  if (form && turn.complete) MORACLE_TRY(form->check_whole(turn.reply.generation));
  return 0;
}

Result<int> run_once(const RunOptions& options, Console& console) {
  MORACLE_ASSIGN(const std::string text, options.read_prompt());
  MORACLE_ASSIGN(const ToolChat request, options.chat_request());
  MORACLE_ASSIGN(const auto form, options.answer_form());
  ChatPrompt prompt;
  const auto prepare = [&](const ModelText& model) -> Result<> {
    MORACLE_TRY(options.check_tools(model));
    MORACLE_ASSIGN(prompt, make_prompt(model, text, request, options, console));
    return Ok{};
  };
  MORACLE_ASSIGN(const auto session, options.open(console, options.opening(prepare)));
  if (!request.tools.is_null() && !options.json)
    return reply_with_tools(*session, options, request, form, text, console);
  const ReplyRequest asked{.prompt = prompt.text,
                           .ids = prompt.ids,
                           .context = options.context,
                           .settings = session->settings(),
                           .form = form ? &*form : nullptr,
                           .tools = request.callable.first};
  return reply_once(*session, options, asked, console);
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
