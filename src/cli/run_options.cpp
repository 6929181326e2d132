#include "cli/run_options.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <variant>

#include "cli/option_table.h"
#include "text/constrain/calls/tool_use.h"
#include "text/reply/call_syntax.h"

namespace moracle::cli {

namespace {

constexpr std::int64_t kMaxTokens = 1 << 24;
constexpr std::size_t kPromptBytes = std::size_t{64} << 20;

// All of standard input but its final line break, which a shell adds.
Result<std::string> read_standard_input() {
  std::string text;
  char buffer[1 << 16];
  for (;;) {
    const ssize_t got = ::read(STDIN_FILENO, buffer, sizeof buffer);
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) {
      return Error{.code = "file.read", .file = "standard input", .wanted = "text", .found = std::strerror(errno)};
    }
    if (got == 0) break;
    text.append(buffer, static_cast<std::size_t>(got));
    if (text.size() > kPromptBytes) {
      return Error{.code = "file.size",
                   .file = "standard input",
                   .wanted = fmt::format("at most {} bytes", kPromptBytes),
                   .found = "more"};
    }
  }
  if (text.ends_with('\n')) text.pop_back();
  if (text.ends_with('\r')) text.pop_back();
  return text;
}

// A request's tool_choice.
OrderedJson choice_json(const std::string& choice) {
  if (choice.empty() || choice == "none" || choice == "auto" || choice == "required")
    return choice.empty() ? OrderedJson() : OrderedJson(choice);
  return {{"type", "function"}, {"function", {{"name", choice}}}};
}

Error of_choice(Error error) {
  error.code = "usage";
  error.where = "--tool-choice";
  return error;
}

CLI::Validator limits_of(const SamplingField& field) {
  if (field.is_whole())
    return whole_number(static_cast<std::int64_t>(field.low),
                        static_cast<std::int64_t>(std::min<double>(field.high, INT32_MAX)));
  return real_number([&field](double value) { return field.accepts(value); }, field.limits());
}

template <class Number>
void add_sampling(CLI::App& command, SamplingChoice& choice, const SamplingField& field,
                  Number SamplingOptions::* member) {
  command
      .add_option_function<Number>(
          fmt::format("--{}{}", field.option(), field.option_alias),
          [&choice, member](const Number& value) { choice.set(member, value); }, std::string(field.option_text))
      ->type_name(std::string(field.option_value))
      ->check(limits_of(field));
}

}  // namespace

void add_generation_options(CLI::App& command, GenerationChoice& choice) {
  const InGroup group(command, kSamplingGroup);
  command
      .add_option_function<std::int64_t>(
          "-n,--max-tokens", [&choice](const std::int64_t& value) { choice.max_tokens = value; },
          "Most tokens to generate (default: as the model's generation_config.json says, else 512)")
      ->type_name("N")
      ->check(whole_number(1, kMaxTokens));
  for (const SamplingField& field : kSamplingFields) {
    std::visit([&](auto member) { add_sampling(command, choice.sampling, field, member); }, field.member);
  }
  command.add_option("--seed", choice.seed, "Seed of the draws; the same seed gives the same text (default: 0)")
      ->type_name("N")
      ->check(whole_number(0, INT64_MAX));
  command.add_option("--stop", choice.stop_texts, "End the answer before this text; repeatable (default: none)")
      ->type_name("TEXT")
      ->allow_extra_args(false);
  command.add_flag("--ignore-eos", choice.ignore_eos, "Go on behind end tokens (default: they end the answer)");
}

void RunOptions::add(CLI::App& command) {
  ModelOptions::add(command);
  {
    const InGroup group(command, kPromptGroup);
    CLI::Option* text =
        command.add_option("-p,--prompt", prompt, "Prompt; - reads standard input, as does a pipe alone")
            ->type_name("TEXT");
    command.add_option("-f,--file", file, "Read the prompt from a file; - is standard input")
        ->type_name("FILE")
        ->excludes(text);
    command.add_flag("--chat", chat, "Apply the model's chat template to the prompt (default: the prompt as it is)");
    command.add_option("--system", system, "System prompt; implies --chat")->type_name("TEXT");
    command.add_option("--template-arg", template_args, "Variable of the chat template; repeatable; implies --chat")
        ->type_name("NAME=JSON")
        ->allow_extra_args(false);
    command
        .add_option(
            "--tools", tools,
            "Tools that the model may call, a JSON list of functions; calls are shown, and their results typed or "
            "read as lines of standard input; implies --chat")
        ->type_name("FILE");
    command
        .add_option(
            "--tool-choice", tool_choice,
            "Whether the first reply to a question calls: auto, none, required, or the name of the one tool that "
            "it calls (default: auto)")
        ->type_name("CHOICE")
        ->check(named("a choice"))
        ->needs("--tools");
    add_tool_format(command, tool_format);
    add_trust_content(command, trust_content);
  }
  add_generation_options(command, choice);
  {
    const InGroup group(command, kSamplingGroup);
    command
        .add_option(
            "--schema", schema,
            "Hold the answer to the JSON schema of a file; reasoning before it is free, and tools may be called "
            "instead (default: any answer)")
        ->type_name("FILE")
        ->check(named("a file"))
        ->excludes("--stop")
        ->excludes("--ignore-eos");
  }
  {
    const InGroup group(command, kMemoryGroup);
    command.add_option("--context", context, "Most tokens of prompt and answer (default: what the model can hold)")
        ->type_name("N")
        ->check(whole_number(1, kMaxTokens));
  }
  add_json(command, json);
  const InGroup group(command, kOutputGroup);
  command.add_flag("--quiet", quiet, "No progress, no figures: the text, warnings and errors (default: all are shown)");
  command.add_flag("--hide-reasoning", hide_reasoning, "Show the answer without the reasoning (default: both)");
}

ModelOptions::Opening RunOptions::opening(std::function<Result<>(const ModelText&)> on_text) const {
  return {.guard_content = !trust_content,
          .on_text = std::move(on_text),
          .choice = choice,
          .call_syntax = find_call_syntax(tool_format),
          .sequences = 1,
          .context = context};
}

bool RunOptions::interactive() const {
  return !prompt && !file && is_terminal(STDIN_FILENO) && !json;
}

bool RunOptions::uses_template() const {
  return chat || !system.empty() || !template_args.empty() || !tools.empty();
}

Result<std::string> RunOptions::read_prompt() const {
  const bool given = prompt || file;
  if (prompt && *prompt != "-") {
    MORACLE_TRY(check_text(*prompt, "--prompt"));
    return *prompt;
  }
  if (file && *file != "-") {
    MORACLE_ASSIGN(std::string text, read_text(*file, kPromptBytes));
    MORACLE_TRY(check_text(text, *file));
    return text;
  }
  const bool pipe = !is_terminal(STDIN_FILENO);
  std::string text;
  if (given || pipe) {
    MORACLE_ASSIGN(text, read_standard_input());
  }
  if (!given && text.empty()) {
    return Error{.code = "usage",
                 .wanted = "-p TEXT, -f FILE, or a prompt on standard input",
                 .found = pipe ? "none of them" : "none of them, and with --json no chat",
                 .advice = "see `moracle run --help`"};
  }
  MORACLE_TRY(check_text(text, "standard input"));
  return text;
}

Result<ToolChat> RunOptions::chat_request() const {
  ToolChat request;
  if (!system.empty()) {
    MORACLE_TRY(check_text(system, "--system"));
    request.messages.push_back({{"role", "system"}, {"content", system}});
  }
  for (const std::string& argument : template_args) {
    const std::size_t equals = argument.find('=');
    const std::string name = argument.substr(0, std::min(equals, argument.size()));
    auto value = equals == std::string::npos
                     ? Result<OrderedJson>(Error{})
                     : parse_ordered_json(argument.substr(equals + 1), "--template-arg " + name);
    if (name.empty() || !value.ok()) {
      return Error{.code = "usage",
                   .where = "--template-arg",
                   .wanted = "NAME=JSON",
                   .found = "'" + argument + "'",
                   .advice = "texts need quotes of JSON: --template-arg 'effort=\"high\"'"};
    }
    request.variables[name] = *std::move(value);
  }
  if (!tools.empty()) {
    MORACLE_ASSIGN(const std::string text, moracle::read_text(tools, kPromptBytes));
    MORACLE_ASSIGN(const OrderedJson list, parse_ordered_json(text, tools));
    auto later = read_tool_use(list, nullptr);
    if (!later.ok()) return in_file(std::move(later).error(), tools);
    auto first = read_tool_use(list, choice_json(tool_choice));
    if (!first.ok()) return of_choice(std::move(first).error());
    request.tools = first->tools;
    request.callable = {.first = *std::move(first), .later = *std::move(later)};
  }
  return request;
}

Result<std::optional<AnswerForm>> RunOptions::answer_form() const {
  if (schema.empty()) return std::optional<AnswerForm>();
  MORACLE_ASSIGN(AnswerForm form, AnswerForm::read(schema));
  return std::optional(std::move(form));
}

Result<> RunOptions::check_tools(const ModelText& text) const {
  return tools.empty() ? Ok{} : text.check_calls("--tools", "--tool-format");
}

Result<> RunOptions::check_context(const ModelText& text) const {
  if (!text.info() || context <= text.info()->max_context) return Ok{};
  return Error{.code = "usage",
               .where = "--context",
               .wanted = fmt::format("at most {} tokens, which this model can hold", text.info()->max_context),
               .found = std::to_string(context)};
}

}  // namespace moracle::cli
