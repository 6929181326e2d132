#include "cli/option_table.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <numeric>
#include <sstream>

#include "base/printable.h"
#include "cli/screen.h"

namespace moracle::cli {

namespace {

constexpr std::size_t kWidestHelp = 100;  // longer lines are hard to read

constexpr std::array kGroups = {kModelGroup,    kArgumentsGroup, kOptionsGroup, kPromptGroup,
                                kSamplingGroup, kKernelsGroup,   kMemoryGroup,  kOutputGroup};

std::size_t place_of(const std::string& group) {
  const auto known = std::find(kGroups.begin(), kGroups.end(), group);
  return static_cast<std::size_t>(known - kGroups.begin());
}

OptionRow option_row(const CLI::Option& option) {
  OptionRow row{.group = option.get_group(),
                .flags = {},
                .value = option.get_type_name(),
                .text = option.get_description(),
                .required = option.get_required(),
                .value_may_lack = option.get_expected_min() == 0};
  for (const std::string& name : option.get_snames()) row.flags.push_back("-" + name);
  for (const std::string& name : option.get_lnames()) row.flags.push_back("--" + name);
  if (row.flags.empty()) row.group = row.value == "MODEL" ? kModelGroup : kArgumentsGroup;
  if (!option.get_default_str().empty()) row.text += " (default: " + option.get_default_str() + ")";
  if (row.required && !row.flags.empty()) row.text += " (required)";
  return row;
}

void read_footer(const std::string& footer, CommandTable& table) {
  std::istringstream lines(footer);
  for (std::string line; std::getline(lines, line);) {
    if (line.empty() || line == "Example:") continue;
    if (line.starts_with("  ")) {
      table.examples.push_back(line.substr(2));
    } else {
      table.notes.push_back(line);
    }
  }
}

// A command line in lines of at most `width` columns. An option and its value stay together, as does what is quoted.
std::string command_lines(const std::string& command, std::size_t width) {
  std::vector<std::string> words(1);
  bool quoted = false;
  for (std::size_t i = 0; i < command.size(); ++i) {
    if (command[i] == '"') quoted = !quoted;
    const bool value = words.back().starts_with("-") && words.back().find(' ') == std::string::npos &&
                       i + 1 < command.size() && command[i + 1] != '-';
    if (command[i] == ' ' && !quoted && !value) {
      words.emplace_back();
    } else {
      words.back() += command[i];
    }
  }
  std::string out = " ";
  std::size_t columns = 1;
  for (const std::string& word : words) {
    const std::size_t taken = columns_of(word) + 1;
    if (columns > 5 && columns + taken + 2 > width) {
      out += " \\\n     ";
      columns = 5;
    }
    out += " " + word;
    columns += taken;
  }
  return out + "\n";
}

std::string options_text(const std::vector<OptionRow>& options, std::size_t width) {
  constexpr std::size_t kMaxIndent = 28;
  std::size_t indent = 0;
  for (const OptionRow& row : options) {
    const std::size_t taken = columns_of(row.spelled()) + 4;
    if (taken <= kMaxIndent) indent = std::max(indent, taken);
  }
  indent = std::min(std::max<std::size_t>(indent, 16), width / 2);
  std::string out;
  std::string group;
  for (const OptionRow& row : options) {
    if (row.group != group) out += "\n" + row.group + ":\n";
    group = row.group;
    out += paragraph("  " + row.spelled(), row.text, width, indent);
  }
  return out;
}

}  // namespace

std::string OptionRow::spelled() const {
  std::string text;
  for (const std::string& flag : flags) text += (text.empty() ? "" : ", ") + flag;
  if (value.empty()) return text;
  if (value_may_lack) return text + "[=" + value + "]";
  return text + (text.empty() ? "" : " ") + value;
}

std::vector<std::string> OptionRow::choices() const {
  std::vector<std::string> found;
  const bool words = value.find('|') != std::string::npos &&
                     value.find_first_not_of("abcdefghijklmnopqrstuvwxyz0123456789-_|") == std::string::npos;
  if (!words) return found;
  std::istringstream parts(value);
  for (std::string part; std::getline(parts, part, '|');) found.push_back(part);
  return found;
}

std::string CommandTable::usage() const {
  std::string text = path;
  if (!commands.empty()) text += " [OPTIONS] COMMAND";
  if (commands.empty()) text += " [OPTIONS]";
  for (const OptionRow& row : options) {
    if (row.flags.empty()) text += " " + (row.required ? row.value : "[" + row.value + "]");
  }
  for (const OptionRow& row : options) {
    if (!row.flags.empty() && row.required) text += " " + row.flags.back() + " " + row.value;
  }
  return text;
}

CommandTable command_table(const CLI::App& command) {
  CommandTable table{.name = command.get_name(),
                     .path = path_of(&command),
                     .text = command.get_description(),
                     .options = {},
                     .commands = {},
                     .notes = {},
                     .examples = {}};
  for (std::size_t place = 0; place <= kGroups.size(); ++place) {  // the last: groups of this command alone
    for (const CLI::Option* option : command.get_options()) {
      if (option->get_group().empty() || option == command.get_help_ptr()) continue;
      OptionRow row = option_row(*option);
      if (place_of(row.group) == place) table.options.push_back(std::move(row));
    }
  }
  if (const CLI::Option* help = command.get_help_ptr()) {
    OptionRow row = option_row(*help);
    const std::string last = table.options.empty() ? kArgumentsGroup : table.options.back().group;
    row.group = last == kModelGroup || last == kArgumentsGroup ? kOptionsGroup : last;
    table.options.push_back(std::move(row));
  }
  for (const CLI::App* sub : command.get_subcommands({})) {
    if (!sub->get_group().empty()) table.commands.push_back(command_table(*sub));
  }
  read_footer(command.get_footer(), table);
  return table;
}

std::string path_of(const CLI::App* command) {
  if (command == nullptr) return "";
  const std::string above = path_of(command->get_parent());
  return above.empty() ? command->get_name() : above + " " + command->get_name();
}

std::string help_text(const CommandTable& table, std::size_t width) {
  width = std::min(width, kWidestHelp);
  std::string out = paragraph("", table.text, width, 0) + "\n" + paragraph("Usage: ", table.usage(), width, 7);
  if (!table.commands.empty()) {
    out += "\nCommands:\n";
    std::size_t indent = 0;
    for (const CommandTable& command : table.commands) indent = std::max(indent, command.name.size() + 4);
    for (const CommandTable& command : table.commands)
      out += paragraph("  " + command.name, command.text, width, indent);
  }
  out += options_text(table.options, width);
  if (!table.notes.empty()) out += "\n";
  for (const std::string& note : table.notes) out += paragraph("", note, width, 0);
  if (!table.examples.empty()) out += "\nExample:\n";
  for (const std::string& example : table.examples) out += command_lines(example, width);
  return out;
}

std::string nearest(std::string_view typed, const std::vector<std::string>& known) {
  std::string best;
  if (typed.empty() || typed.size() > 64) return best;
  std::size_t least = std::max<std::size_t>(2, typed.size() / 3) + 1;
  for (const std::string& word : known) {
    // Levenshtein distance, row by row.
    std::vector<std::size_t> row(word.size() + 1);
    std::iota(row.begin(), row.end(), std::size_t{0});
    for (std::size_t i = 0; i < typed.size(); ++i) {
      std::size_t diagonal = row[0]++;
      for (std::size_t j = 0; j < word.size(); ++j) {
        const std::size_t changed = diagonal + (typed[i] == word[j] ? 0 : 1);
        diagonal = row[j + 1];
        row[j + 1] = std::min({changed, row[j] + 1, diagonal + 1});
      }
    }
    const std::size_t distance = typed.starts_with(word) || word.starts_with(typed) ? 1 : row.back();
    if (distance < least && distance < std::max(typed.size(), word.size())) {
      least = distance;
      best = word;
    }
  }
  return best;
}

std::string unknown_word(std::string_view typed, const CommandTable& table) {
  const std::string word = printable(typed.substr(0, typed.find('=')));
  const bool option = word.starts_with("-");
  if (!option && table.commands.empty()) return "unknown argument '" + word + "'";
  std::vector<std::string> known;
  if (option) {
    for (const OptionRow& row : table.options) known.insert(known.end(), row.flags.begin(), row.flags.end());
  } else {
    for (const CommandTable& command : table.commands) known.push_back(command.name);
  }
  const std::string near = nearest(word, known);
  const std::string text = fmt::format("unknown {} '{}'", option ? "option" : "command", word);
  if (!near.empty()) return text + "; did you mean '" + near + "'?";
  return option ? text : fmt::format("{}; there are {}", text, fmt::join(known, ", "));
}

}  // namespace moracle::cli
