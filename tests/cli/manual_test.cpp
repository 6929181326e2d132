// Completions and manual pages know every command and option that the help knows.
#include <regex>
#include <sstream>

#include "cli/cli_fixture.h"

namespace moracle::test {
namespace {

using Strings = std::vector<std::string>;

std::string file_text(const std::filesystem::path& path) {
  std::ifstream file(path);
  std::stringstream text;
  text << file.rdbuf();
  EXPECT_TRUE(file.good() || file.eof()) << path;
  return text.str();
}

// The first words of the indented lines below "Commands:".
Strings commands_of(const std::string& help) {
  Strings commands;
  std::istringstream lines(help);
  bool inside = false;
  for (std::string line; std::getline(lines, line);) {
    if (line == "Commands:") inside = true;
    if (line.empty()) inside = false;
    if (inside && line.starts_with("  ") && line[2] != ' ') commands.push_back(line.substr(2, line.find(' ', 2) - 2));
  }
  return commands;
}

// Every "-x" and "--name" at the start of a line of options.
Strings options_of(const std::string& help) {
  static const std::regex option("(^|\n)  (-[^ \n]*(, -[^ \n]*)*)");
  static const std::regex flag("--?[a-z][a-z-]*");
  Strings options;
  for (std::sregex_iterator it(help.begin(), help.end(), option), end; it != end; ++it) {
    const std::string names = (*it)[2];
    for (std::sregex_iterator name(names.begin(), names.end(), flag), none; name != none; ++name)
      options.push_back(name->str());
  }
  return options;
}

// What bash offers for these words, the last of which is being typed.
std::string completed(const std::string& file, const Strings& words) {
  std::string array;
  for (const std::string& word : words) array += "'" + word + "' ";
  const RunOutcome bash = run_process({"/bin/bash", "-c",
                                       "set -eu; source '" + file + "'; COMP_WORDS=(" + array + "); COMP_CWORD=" +
                                           std::to_string(words.size() - 1) + "; _moracle; echo \"${COMPREPLY[*]}\""});
  EXPECT_EQ(bash.code, 0) << bash.err;
  EXPECT_EQ(bash.err, "");
  return bash.out;
}

TEST_F(CliTest, CompletionsAndManualPagesHaveEveryOption) {
  ASSERT_EQ(moracle_run({"share", folder_.string()}).code, 0);
  const std::string bash = (folder_ / "bash-completion" / "completions" / "moracle").string();
  const std::string zsh = file_text(folder_ / "zsh" / "site-functions" / "_moracle");
  const std::string fish = file_text(folder_ / "fish" / "vendor_completions.d" / "moracle.fish");
  std::vector<Strings> paths = {{}};
  for (std::size_t i = 0; i < paths.size(); ++i) {
    Strings words = paths[i];
    words.emplace_back("--help");
    const RunOutcome help = moracle_run(words);
    words.pop_back();
    ASSERT_EQ(help.code, 0);
    std::string page = "moracle";
    for (const std::string& word : words) page += "-" + word;
    std::string manual = file_text(folder_ / "man" / "man1" / (page + ".1"));
    manual = std::regex_replace(manual, std::regex("\\\\-"), "-");
    Strings typed = {"moracle"};
    typed.insert(typed.end(), words.begin(), words.end());
    typed.emplace_back("");
    Strings dashed = typed;
    dashed.back() = "-";
    const std::string offered = " " + completed(bash, typed) + " " + completed(bash, dashed);
    const Strings options = options_of(help.out);
    EXPECT_FALSE(options.empty()) << help.out;
    for (const std::string& option : options) {
      EXPECT_NE(manual.find(option), std::string::npos) << page << " " << option;
      EXPECT_TRUE(std::regex_search(offered, std::regex("[ \n]" + option + "[ \n]")))
          << page << " " << option << offered;
      EXPECT_NE(zsh.find(option), std::string::npos) << page << " " << option;
      const std::string fished = option.starts_with("--") ? " -l " + option.substr(2) : " -s " + option.substr(1);
      EXPECT_NE(fish.find(fished + " "), std::string::npos) << page << " " << option;
    }
    for (const std::string& command : commands_of(help.out)) {
      EXPECT_NE(offered.find(command), std::string::npos) << page << " " << command;
      EXPECT_NE(manual.find(command), std::string::npos) << page << " " << command;
      paths.push_back(words);
      paths.back().push_back(command);
    }
  }
  EXPECT_GE(paths.size(), 15U);
  EXPECT_EQ(completed(bash, {"moracle", "insp"}), "inspect\n");
  EXPECT_EQ(completed(bash, {"moracle", "run", "--policy", ""}), "exact fast\n");
  EXPECT_EQ(completed(bash, {"moracle", "bench", "layer", "--sc"}), "--scheme\n");
  EXPECT_EQ(completed(bash, {"moracle", "help", "insp"}), "inspect\n");
  EXPECT_EQ(completed(bash, {"moracle", "completions", "f"}), "fish\n");
  std::filesystem::create_directory(folder_ / "a model");
  EXPECT_EQ(completed(bash, {"moracle", "run", (folder_ / "a m").string()}), (folder_ / "a model").string() + "\n");
  EXPECT_EQ(moracle_run({"completions", "bash"}).out, file_text(bash));
  EXPECT_EQ(moracle_run({"completions", "zsh"}).out, zsh);
  EXPECT_EQ(moracle_run({"completions", "fish"}).out, fish);
  EXPECT_EQ(moracle_run({"completions", "tcsh"}).code, 2);
}

TEST_F(CliTest, ShellsAndTroffReadTheFiles) {
  ASSERT_EQ(moracle_run({"share", folder_.string()}).code, 0);
  const auto try_program = [&](const Strings& command) {
    if (!std::filesystem::exists(command[0])) return;
    const RunOutcome outcome = run_process(command);
    EXPECT_EQ(outcome.code, 0) << outcome.err;
    EXPECT_EQ(outcome.err, "") << command[0];
  };
  try_program({"/bin/bash", "-n", (folder_ / "bash-completion" / "completions" / "moracle").string()});
  try_program({"/usr/bin/zsh", "-n", (folder_ / "zsh" / "site-functions" / "_moracle").string()});
  try_program({"/usr/bin/fish", "-n", (folder_ / "fish" / "vendor_completions.d" / "moracle.fish").string()});
  for (const auto& page : std::filesystem::directory_iterator(folder_ / "man" / "man1"))
    try_program({"/usr/bin/groff", "-man", "-Tutf8", "-ww", "-z", page.path().string()});
}

}  // namespace
}  // namespace moracle::test
