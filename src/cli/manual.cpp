#include "cli/manual.h"

#include <fmt/format.h>

#include <algorithm>

namespace moracle::cli {

namespace {

std::string replaced(std::string_view text, std::string_view from, std::string_view to) {
  std::string out;
  for (std::size_t at = 0; at < text.size();) {
    if (!from.empty() && text.substr(at).starts_with(from)) {
      out += to;
      at += from.size();
    } else {
      out += text[at++];
    }
  }
  return out;
}

// A word of a shell that means `text`.
std::string shell_word(std::string_view text) {
  return "'" + replaced(text, "'", "'\\''") + "'";
}

bool takes_files(const OptionRow& row) {
  return row.value == "MODEL" || row.value == "DIR" || row.value.find("FILE") != std::string::npos;
}

bool takes_file_arguments(const CommandTable& table) {
  return std::any_of(table.options.begin(), table.options.end(),
                     [](const OptionRow& row) { return row.flags.empty() && takes_files(row); });
}

std::vector<std::string> names_of(const std::vector<CommandTable>& commands) {
  std::vector<std::string> names;
  for (const CommandTable& command : commands) names.push_back(command.name);
  return names;
}

// The words that an option or argument may be; empty: any.
std::vector<std::string> values_of(const OptionRow& row, const CommandTable& root) {
  return row.value == "COMMAND" ? names_of(root.commands) : row.choices();
}

std::string joined(const std::vector<std::string>& words, std::string_view between) {
  return fmt::format("{}", fmt::join(words, between));
}

// Every command, those of commands behind them, the root first.
std::vector<const CommandTable*> all_commands(const CommandTable& root) {
  std::vector<const CommandTable*> all = {&root};
  for (const CommandTable& command : root.commands) {
    const auto below = all_commands(command);
    all.insert(all.end(), below.begin(), below.end());
  }
  return all;
}

// "moracle bench layer" -> " bench layer".
std::string behind_program(const CommandTable& table) {
  return table.path.substr(std::min(table.path.find(' '), table.path.size()));
}

std::string page_name(const CommandTable& table) {
  return replaced(table.path, " ", "-");
}

// --- bash ---

std::string bash_values(const CommandTable& table) {
  std::string out;
  for (const OptionRow& row : table.options) {
    if (row.flags.empty() || row.value.empty() || row.value_may_lack) continue;
    std::vector<std::string> patterns;
    for (const std::string& flag : row.flags) patterns.push_back("\"" + behind_program(table) + " " + flag + "\"");
    std::string words = "-W \"" + joined(row.choices(), " ") + "\"";
    if (takes_files(row)) words = "-f";
    out += fmt::format("    {}) _moracle_reply {} ;;\n", joined(patterns, " | "), words);
  }
  return out;
}

std::string bash_words(const CommandTable& table, const CommandTable& root) {
  std::vector<std::string> words = names_of(table.commands);
  for (const OptionRow& row : table.options) {
    const std::vector<std::string> more = row.flags.empty() ? values_of(row, root) : row.flags;
    words.insert(words.end(), more.begin(), more.end());
  }
  return fmt::format("    \"{}\") _moracle_reply {}-W \"{}\" ;;\n", behind_program(table),
                     takes_file_arguments(table) ? "-f " : "", joined(words, " "));
}

// --- zsh ---

std::string zsh_text(std::string_view text) {
  return replaced(replaced(replaced(text, "[", "\\["), "]", "\\]"), ":", "\\:");
}

std::string zsh_option(const OptionRow& row, const CommandTable& root) {
  std::string value;
  if (!row.value.empty()) {
    const std::vector<std::string> words = values_of(row, root);
    const std::string action = takes_files(row) ? "_files" : words.empty() ? "" : "(" + joined(words, " ") + ")";
    value = (row.value_may_lack ? "::" : ":") + zsh_text(row.value) + ":" + action;
  }
  if (row.flags.empty()) return shell_word("*" + value);
  const std::string text = "[" + zsh_text(row.text) + "]" + value;
  if (row.flags.size() == 1) return shell_word(row.flags.front() + (row.value_may_lack ? "=-" : "") + text);
  return shell_word("(" + joined(row.flags, " ") + ")") + "{" + joined(row.flags, ",") + "}" + shell_word(text);
}

std::string zsh_function(const CommandTable& table, const CommandTable& root) {
  std::string out = replaced("_" + page_name(table), "-", "_") + "() {\n";
  if (!table.commands.empty()) out += "  local -a commands\n  local state line\n";
  out += "  _arguments -s -C";
  for (const OptionRow& row : table.options) out += " \\\n    " + zsh_option(row, root);
  if (table.commands.empty()) return out + "\n}\n";
  out += " \\\n    '1: :->command' '*:: :->rest'\n  case $state in\n    command)\n      commands=(\n";
  for (const CommandTable& command : table.commands)
    out += "        " + shell_word(command.name + ":" + zsh_text(command.text)) + "\n";
  out += "      )\n      _describe command commands ;;\n    rest)\n      case $words[1] in\n";
  for (const CommandTable& command : table.commands)
    out += fmt::format("        {}) {} ;;\n", command.name, replaced("_" + page_name(command), "-", "_"));
  return out + "      esac ;;\n  esac\n}\n";
}

// --- fish ---

std::string fish_lines(const CommandTable& table, const CommandTable& root) {
  std::vector<std::string> seen;
  std::string path = behind_program(table);
  for (std::size_t at = path.find(' '); at != std::string::npos; at = path.find(' ', at + 1))
    seen.push_back("__fish_seen_subcommand_from " + path.substr(at + 1, path.find(' ', at + 1) - at - 1));
  if (!table.commands.empty())
    seen.push_back("not __fish_seen_subcommand_from " + joined(names_of(table.commands), " "));
  const std::string start = "complete -c moracle -n " + shell_word(joined(seen, "; and "));
  std::string out;
  if (!takes_file_arguments(table)) out += start + " -f\n";
  for (const CommandTable& command : table.commands)
    out += fmt::format("{} -f -a {} -d {}\n", start, command.name, shell_word(command.text));
  for (const OptionRow& row : table.options) {
    const std::vector<std::string> words = values_of(row, root);
    if (row.flags.empty() && words.empty()) continue;
    out += start;
    for (const std::string& flag : row.flags)
      out += flag.starts_with("--") ? " -l " + flag.substr(2) : " -s " + flag.substr(1);
    if (!row.flags.empty() && !row.value.empty() && !row.value_may_lack) out += takes_files(row) ? " -r -F" : " -x";
    if (!words.empty()) out += " -a " + shell_word(joined(words, " "));
    out += " -d " + shell_word(row.text) + "\n";
  }
  return out;
}

// --- manual pages ---

std::string roff(std::string_view text) {
  std::string out = replaced(replaced(text, "\\", "\\e"), "-", "\\-");
  if (out.starts_with(".") || out.starts_with("'")) out.insert(0, "\\&");
  return out;
}

}  // namespace

std::string bash_completion(const CommandTable& root) {
  std::string patterns;
  std::string values;
  std::string words;
  for (const CommandTable* table : all_commands(root)) {
    if (table != &root) patterns += (patterns.empty() ? "" : " | ") + ("\"" + behind_program(*table) + "\"");
    values += bash_values(*table);
    words += bash_words(*table, root);
  }
  return fmt::format(
      "# Completion of moracle for bash; made from its tables of options.\n"
      "_moracle_reply() {{\n"
      "  mapfile -t COMPREPLY < <(compgen \"$@\" -- \"${{COMP_WORDS[COMP_CWORD]}}\")\n"
      "}}\n"
      "_moracle() {{\n"
      "  local path= i\n"
      "  for ((i = 1; i < COMP_CWORD; ++i)); do\n"
      "    case \"$path ${{COMP_WORDS[i]}}\" in\n"
      "    {}) path=\"$path ${{COMP_WORDS[i]}}\" ;;\n"
      "    esac\n"
      "  done\n"
      "  case \"$path ${{COMP_WORDS[COMP_CWORD - 1]}}\" in\n{}"
      "    *)\n"
      "    case \"$path\" in\n{}"
      "    esac ;;\n"
      "  esac\n"
      "}}\n"
      "complete -o filenames -F _moracle moracle\n",
      patterns, values, words);
}

std::string zsh_completion(const CommandTable& root) {
  std::string out = "#compdef moracle\n# Completion of moracle for zsh; made from its tables of options.\n";
  for (const CommandTable* table : all_commands(root)) out += zsh_function(*table, root);
  return out + "_moracle \"$@\"\n";
}

std::string fish_completion(const CommandTable& root) {
  std::string out = "# Completion of moracle for fish; made from its tables of options.\n";
  for (const CommandTable* table : all_commands(root)) out += fish_lines(*table, root);
  return out;
}

std::string manual_page(const CommandTable& table) {
  const std::string name = page_name(table);
  std::string upper = name;
  std::transform(upper.begin(), upper.end(), upper.begin(),
                 [](char c) { return c >= 'a' && c <= 'z' ? static_cast<char>(c - 'a' + 'A') : c; });
  std::string out =
      fmt::format(".TH {} 1 \"\" \"moracle {}\" \"User Commands\"\n.SH NAME\n{} \\- {}\n.SH SYNOPSIS\n{}\n",
                  roff(upper), MORACLE_VERSION, roff(name), roff(table.text), roff(table.usage()));
  if (!table.commands.empty()) out += ".SH COMMANDS\n";
  for (const CommandTable& command : table.commands)
    out += fmt::format(".TP\n.B {}\n{} See\n.BR {} (1).\n", roff(command.name), roff(command.text + "."),
                       roff(page_name(command)));
  out += ".SH OPTIONS\n";
  std::string group;
  for (const OptionRow& row : table.options) {
    if (row.group != group) out += ".SS " + roff(row.group) + "\n";
    group = row.group;
    out += ".TP\n.B " + roff(row.spelled()) + "\n" + roff(row.text) + "\n";
  }
  if (!table.notes.empty()) out += ".SH NOTES\n";
  for (const std::string& note : table.notes) out += roff(note) + "\n.PP\n";
  if (!table.examples.empty()) out += ".SH EXAMPLES\n";
  for (const std::string& example : table.examples) out += ".EX\n" + roff(example) + "\n.EE\n";
  return out + ".SH EXIT STATUS\n0: done. 1: the work failed. 2: wrong usage. 128 + n: ended by signal n.\n";
}

std::vector<SharedFile> shared_files(const CommandTable& root) {
  std::vector<SharedFile> files = {{"bash-completion/completions/moracle", bash_completion(root)},
                                   {"zsh/site-functions/_moracle", zsh_completion(root)},
                                   {"fish/vendor_completions.d/moracle.fish", fish_completion(root)}};
  for (const CommandTable* table : all_commands(root))
    files.push_back({"man/man1/" + page_name(*table) + ".1", manual_page(*table)});
  return files;
}

}  // namespace moracle::cli
