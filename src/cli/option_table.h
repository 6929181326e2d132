// The commands and their options as data: what help, completions and manual pages are rendered from.
#pragma once

#include <CLI/CLI.hpp>
#include <string>
#include <string_view>
#include <vector>

namespace moracle::cli {

// Groups of options, in the order that they are shown in. Commands may have further ones.
inline constexpr const char* kModelGroup = "Model";
inline constexpr const char* kArgumentsGroup = "Arguments";
inline constexpr const char* kOptionsGroup = "Options";
inline constexpr const char* kPromptGroup = "Prompt";
inline constexpr const char* kSamplingGroup = "Sampling";
inline constexpr const char* kKernelsGroup = "Kernels";
inline constexpr const char* kMemoryGroup = "Memory";
inline constexpr const char* kOutputGroup = "Output";

// Options that are added while it lives belong to `group`.
class InGroup {
 public:
  InGroup(CLI::App& command, const char* group)
      : defaults_(*command.option_defaults()), before_(defaults_.get_group()) {
    defaults_.group(group);
  }
  ~InGroup() { defaults_.group(before_); }
  InGroup(const InGroup&) = delete;
  InGroup& operator=(const InGroup&) = delete;

 private:
  CLI::OptionDefaults& defaults_;
  std::string before_;
};

struct OptionRow {
  std::string group;
  std::vector<std::string> flags;  // "-p", "--prompt"; empty: an argument without a name
  std::string value;               // "TEXT", "exact|fast"; empty: a flag
  std::string text;                // what it does, with its default
  bool required = false;
  bool value_may_lack = false;  // "--name" or "--name=VALUE"

  [[nodiscard]] std::string spelled() const;               // "-p, --prompt TEXT"
  [[nodiscard]] std::vector<std::string> choices() const;  // of a value such as "exact|fast"; else empty
};

struct CommandTable {
  std::string name;                // "layer"
  std::string path;                // "moracle bench layer"
  std::string text;                // one sentence
  std::vector<OptionRow> options;  // by group
  std::vector<CommandTable> commands;
  std::vector<std::string> notes;     // of the footer: paragraphs
  std::vector<std::string> examples;  // of the footer: command lines, which are indented there

  [[nodiscard]] std::string usage() const;  // "moracle bench layer [OPTIONS] --shape NAME"
};

// Hidden commands and options (of group "") are left out.
[[nodiscard]] CommandTable command_table(const CLI::App& command);

// "moracle bench layer".
[[nodiscard]] std::string path_of(const CLI::App* command);

// The help of one command, for a screen of `width` columns.
[[nodiscard]] std::string help_text(const CommandTable& table, std::size_t width);

// The one of `known` that is nearest to what was typed; empty where none is near.
[[nodiscard]] std::string nearest(std::string_view typed, const std::vector<std::string>& known);

// What is said of a word that `table` does not have: "unknown command 'hlep'; did you mean 'help'?".
// Where no command is near, all are listed.
[[nodiscard]] std::string unknown_word(std::string_view typed, const CommandTable& table);

}  // namespace moracle::cli
