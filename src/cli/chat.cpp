#include "cli/chat.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <filesystem>
#include <functional>
#include <memory>
#include <optional>
#include <variant>

#include "base/printable.h"
#include "checkpoint/atomic_file.h"
#include "cli/conversation.h"
#include "cli/interrupt.h"
#include "cli/line_editor.h"
#include "cli/option_table.h"
#include "cli/screen.h"
#include "cli/tool_results.h"

namespace moracle::cli {

namespace {

class Chat {
 public:
  Chat(const RunOptions& options, Session& session, ToolChat request, std::optional<AnswerForm> form,
       LineEditor& editor, Console& console)
      : options_(options),
        session_(session),
        choice_(options.choice),
        settings_(session.settings()),
        conversation_(session, request, settings_, options.context, std::move(form), request.callable),
        editor_(editor),
        results_(typed_results(editor, [this] { ended_ = true; })),
        console_(console) {}

  int run();

 private:
  struct Command {
    std::string_view name, argument, text;
    Result<> (Chat::*act)(const std::string& argument);
  };
  static const std::array<Command, 7> kCommands;

  void ask(const std::string& message);
  void command(const std::string& line);

  Result<> help(const std::string& argument);
  Result<> reset(const std::string& argument);
  Result<> system(const std::string& argument);
  Result<> set(const std::string& argument);
  Result<> stats(const std::string& argument);
  Result<> save(const std::string& argument);
  Result<> exit(const std::string& argument);
  [[nodiscard]] std::string settings_text() const;

  const RunOptions& options_;
  Session& session_;
  GenerationChoice choice_;
  GenerationSettings settings_;
  Conversation conversation_;
  LineEditor& editor_;
  std::unique_ptr<ToolResults> results_;
  Console& console_;
  std::string last_line_;        // of the last answer's figures
  std::filesystem::path saved_;  // the file of this conversation
  bool ended_ = false;
};

const std::array<Chat::Command, 7> Chat::kCommands = {{
    {"/help", "", "show these commands", &Chat::help},
    {"/reset", "", "forget the conversation, but not the system prompt", &Chat::reset},
    {"/system", "[TEXT]", "set the system prompt; without TEXT, remove it", &Chat::system},
    {"/set", "[NAME VALUE]", "set a sampling option, as /set temperature 0.7; alone, show them", &Chat::set},
    {"/stats", "", "show the figures of the last answer, and how full the context is", &Chat::stats},
    {"/save", "FILE", "write the conversation to a new file, as JSON", &Chat::save},
    {"/exit", "", "end the chat, as Ctrl-D does", &Chat::exit},
}};

int Chat::run() {
  bool cancelled = false;
  std::string message;
  while (!ended_ && !console_.closed() && !asked_to_end()) {
    switch (read_message(editor_, "> ", message)) {
      case LineEditor::Outcome::closed:
        return 0;
      case LineEditor::Outcome::cancelled:
        if (cancelled || asked_to_end()) return interrupt_exit_code();
        cancelled = true;
        clear_interrupt();
        console_.note("Ctrl-C again ends the chat.\n");
        continue;
      case LineEditor::Outcome::line:
        break;
    }
    cancelled = false;
    while (message.ends_with('\n')) message.pop_back();  // of pasted text
    if (message.find_first_not_of(" \t\n") == std::string::npos) continue;
    editor_.remember(message);
    if (message.starts_with("//")) {
      ask(message.substr(1));
    } else if (message.starts_with("/")) {
      command(message);
    } else {
      ask(message);
    }
    if (!asked_to_end()) clear_interrupt();
  }
  return interrupted() ? interrupt_exit_code() : 0;
}

void Chat::ask(const std::string& message) {
  const OrderedJson before = conversation_.messages();
  const auto turn = take_turn(conversation_, message, *results_, {.hide_reasoning = options_.hide_reasoning}, console_);
  if (!turn.ok() || !turn->complete) conversation_.restore(before);
  if (!turn.ok()) {
    console_.fail(turn.error());
    return;
  }
  if (!turn->complete) {
    console_.note("The question is forgotten, as its calls have no results.\n");
    return;
  }
  const Generation& generation = turn->reply.generation;
  last_line_ = reply_line(session_, generation, screen_width(STDERR_FILENO));
  if (generation.finish == FinishReason::length)
    console_.info(fmt::format("moracle: the answer was cut after {} tokens\n", generation.ids.size()));
}

void Chat::command(const std::string& line) {
  const std::size_t space = std::min(line.find_first_of(" \t\n"), line.size());
  const std::string name = line.substr(0, space);
  const std::size_t begin = std::min(line.find_first_not_of(" \t", space), line.size());
  const std::string argument = line.substr(begin);
  const auto found =
      std::find_if(kCommands.begin(), kCommands.end(), [&](const Command& each) { return each.name == name; });
  if (found != kCommands.end()) {
    const auto done = (this->*found->act)(argument);
    if (!done.ok()) console_.fail(done.error());
    return;
  }
  std::vector<std::string> names;
  for (const Command& each : kCommands) names.emplace_back(each.name);
  const std::string near = nearest(name, names);
  console_.note("moracle: unknown command '" + printable(name) + "'" +
                (near.empty() ? "" : "; did you mean '" + near + "'?") +
                "\n/help lists the commands; // begins a message with a slash\n");
}

Result<> Chat::help(const std::string&) {
  const std::size_t width = screen_width(STDERR_FILENO);
  std::string text;
  for (const Command& each : kCommands)
    text += paragraph(fmt::format("{} {}", each.name, each.argument), std::string(each.text), width, 20);
  text += paragraph("",
                    "A line that ends in \\ goes on in the next; \"\"\" begins and ends a message of several lines, as "
                    "pasted text is one. Ctrl-C ends an answer.",
                    width, 0);
  console_.note(text);
  return Ok{};
}

Result<> Chat::reset(const std::string&) {
  conversation_.reset();
  console_.note("The conversation is forgotten.\n");
  return Ok{};
}

Result<> Chat::system(const std::string& argument) {
  MORACLE_TRY(check_text(argument, "/system"));
  conversation_.set_system(argument);
  console_.note(argument.empty() ? "There is no system prompt.\n" : "The system prompt is set.\n");
  return Ok{};
}

std::string Chat::settings_text() const {
  const SamplingOptions& sampling = settings_.sampling;
  std::string text;
  for (const SamplingField& field : kSamplingFields) {
    std::visit([&](auto member) { text += fmt::format("{} {}, ", field.option(), sampling.*member); }, field.member);
  }
  return text + fmt::format("seed {}, max-tokens {}", sampling.seed, settings_.answer_tokens(0));
}

// By the options of the command line, so that names, limits and words are the same.
Result<> Chat::set(const std::string& argument) {
  if (!argument.empty()) {
    const std::size_t space = std::min(argument.find_first_of(" =\t"), argument.size());
    const std::size_t value = std::min(argument.find_first_not_of(" =\t", space), argument.size());
    GenerationChoice choice = choice_;
    CLI::App app;
    app.set_help_flag();
    add_generation_options(app, choice);
    std::vector<std::string> words = {"--" + argument.substr(0, space)};
    if (value < argument.size()) words.insert(words.begin(), argument.substr(value));
    try {
      app.parse(words);  // which takes them from the back
    } catch (const CLI::ExtrasError&) {
      std::vector<std::string> names;
      for (const OptionRow& row : command_table(app).options) {
        const auto first = std::find_if(row.flags.begin(), row.flags.end(),
                                        [](const std::string& flag) { return flag.starts_with("--"); });
        if (first != row.flags.end()) names.push_back(first->substr(2));
      }
      return Error{.code = "usage",
                   .where = "/set",
                   .wanted = fmt::format("one of {}", fmt::join(names, ", ")),
                   .found = "'" + printable(argument.substr(0, space)) + "'"};
    } catch (const CLI::ParseError& error) {
      return Error{.code = "usage", .where = "/set", .found = printable(error.what())};
    }
    MORACLE_ASSIGN(settings_, session_.text().generation().settle(choice));
    choice_ = std::move(choice);
    conversation_.set_settings(settings_);
  }
  console_.note(paragraph("", settings_text(), screen_width(STDERR_FILENO), 0));
  return Ok{};
}

Result<> Chat::stats(const std::string&) {
  console_.note(last_line_ +
                fmt::format("context: {} of {} tokens\n", conversation_.tokens(), conversation_.context()));
  return Ok{};
}

Result<> Chat::save(const std::string& argument) {
  if (argument.empty()) return Error{.code = "usage", .where = "/save", .wanted = "a file", .found = "none"};
  const std::filesystem::path path = argument;
  std::error_code code;
  if (path != saved_ && std::filesystem::exists(path, code)) {
    return Error{.code = "file.exists",
                 .file = argument,
                 .wanted = "a new file",
                 .found = "one that is there",
                 .advice = "choose another name"};
  }
  MORACLE_ASSIGN(AtomicFile file, AtomicFile::create(path, 0));
  const OrderedJson document = {{"messages", conversation_.messages()}};
  MORACLE_TRY(file.write(document.dump(2, ' ', false, OrderedJson::error_handler_t::replace) + "\n"));
  MORACLE_TRY(file.commit());
  saved_ = path;
  console_.note("Saved to " + printable_path(argument) + ".\n");
  return Ok{};
}

Result<> Chat::exit(const std::string&) {
  ended_ = true;
  return Ok{};
}

}  // namespace

Result<int> run_chat(const RunOptions& options, Console& console) {
  MORACLE_ASSIGN(ToolChat request, options.chat_request());
  MORACLE_ASSIGN(auto form, options.answer_form());
  const auto prepare = [&](const ModelText& text) -> Result<> {
    MORACLE_TRY(options.check_context(text));
    MORACLE_TRY(options.check_tools(text));
    MORACLE_TRY(text.templates().check(request));
    for (const std::string& warning : text.templates().warnings(request)) console.warn(warning);
    return Ok{};
  };
  const auto editor = LineEditor::make();
  if (editor == nullptr) {
    return Error{.code = "terminal.unusable",
                 .wanted = "a terminal to chat on",
                 .found = "one that lines cannot be edited on",
                 .advice = "give the prompt with -p or -f"};
  }
  MORACLE_ASSIGN(const auto session, options.open(console, options.opening(prepare)));
  console.info(hanging("Type a message; /help lists the commands, Ctrl-D ends the chat, Ctrl-C an answer.",
                       screen_width(STDERR_FILENO)));
  return Chat(options, *session, std::move(request), std::move(form), *editor, console).run();
}

}  // namespace moracle::cli
