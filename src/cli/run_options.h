// The options of `moracle run`: what is asked, and how the answer is made.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "base/result.h"
#include "cli/answer_form.h"
#include "cli/conversation.h"
#include "cli/options.h"
#include "generate/model_text.h"

namespace moracle::cli {

// A conversation, and the tools that it may call; `tools` of the conversation is null: none.
struct ToolChat : ChatRequest {
  TurnTools callable{};
};

struct RunOptions : ModelOptions {
  std::optional<std::string> prompt;  // "-": standard input
  std::optional<std::string> file;    // the same
  bool chat = false;
  std::string system;
  std::vector<std::string> template_args;  // NAME=JSON
  std::string tools;                       // file
  std::string tool_choice;                 // none, auto, required or a tool's name; empty: auto
  std::string tool_format;                 // empty: as the template shows
  bool trust_content = false;
  std::int64_t context = 0;  // 0: what the model can hold
  GenerationChoice choice;
  std::string schema;  // file
  bool json = false;
  bool quiet = false;
  bool hide_reasoning = false;

  void add(CLI::App& command);

  // How the model is opened; `on_text` as in SessionOptions.
  [[nodiscard]] Opening opening(std::function<Result<>(const ModelText&)> on_text) const;
  // Neither -p nor -f, and a person to talk with.
  [[nodiscard]] bool interactive() const;
  // Options that only a chat template can serve ask for it.
  [[nodiscard]] bool uses_template() const;
  // The prompt, from wherever it comes. Errors: "usage" (none anywhere), "text.utf8", those of read_text.
  [[nodiscard]] Result<std::string> read_prompt() const;
  // A conversation without messages but the system's, with tools and variables. Errors: "usage", those of read_text,
  // parse_ordered_json and read_tool_use.
  [[nodiscard]] Result<ToolChat> chat_request() const;
  // What --schema holds answers to; empty: nothing. Errors: those of AnswerForm::read.
  [[nodiscard]] Result<std::optional<AnswerForm>> answer_form() const;
  // Whether calls of --tools can be told from text. Error: that of ModelText::check_calls.
  [[nodiscard]] Result<> check_tools(const ModelText& text) const;
  // Whether the model can hold --context tokens. Error: "usage".
  [[nodiscard]] Result<> check_context(const ModelText& text) const;
};

// How an answer is made and where it ends.
void add_generation_options(CLI::App& command, GenerationChoice& choice);

}  // namespace moracle::cli
