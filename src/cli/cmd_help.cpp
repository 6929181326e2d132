// moracle help and version, and the files that an installation has beside the program.
#include <fmt/format.h>
#include <unistd.h>

#include <filesystem>

#include "base/printable.h"
#include "checkpoint/atomic_file.h"
#include "cli/manual.h"
#include "cli/option_table.h"
#include "cli/options.h"
#include "cli/program.h"
#include "cli/screen.h"
#include "device/library.h"
#include "kernels/kernel.h"

namespace moracle::cli {

namespace {

#if defined(__clang__)
constexpr const char* kCompiler = "clang " __clang_version__;
#else
constexpr const char* kCompiler = "g++ " __VERSION__;
#endif

int help_command(const CLI::App& root, const std::vector<std::string>& words, Console& console) {
  CommandTable table = command_table(root);
  for (const std::string& word : words) {
    const auto found = std::find_if(table.commands.begin(), table.commands.end(),
                                    [&](const CommandTable& command) { return command.name == word; });
    if (found == table.commands.end()) return console.wrong_usage(unknown_word(word, table), table.path);
    CommandTable next = *found;
    table = std::move(next);
  }
  console.out(help_text(table, screen_width(STDOUT_FILENO)));
  return 0;
}

// The first place that has the object; empty: none has.
std::string cuda_object() {
  std::error_code error;
  for (const std::filesystem::path& path : device_library_paths()) {
    if (std::filesystem::exists(path, error)) return path.string();
  }
  return "";
}

int version_command(bool json, Console& console) {
  const Machine machine = probe_machine();
  const std::string cuda = cuda_object();
  if (json) {
    Json usable = Json::array();
    for (const CpuFeature feature : all_cpu_features()) {
      if (has(machine.cpu_features, feature)) usable.push_back(to_string(feature));
    }
    console.json({{"version", MORACLE_VERSION},
                  {"build", MORACLE_BUILD},
                  {"compiler", kCompiler},
                  {"instruction_sets", std::move(usable)},
                  {"cuda_object", cuda.empty() ? Json(nullptr) : Json(cuda)}});
    return 0;
  }
  const std::size_t width = screen_width(STDOUT_FILENO);
  std::string features = feature_list(machine.cpu_features);
  std::replace(features.begin(), features.end(), '+', ' ');
  console.out("moracle " MORACLE_VERSION "\n" + paragraph("build", MORACLE_BUILD, width, 18) +
              paragraph("compiler", kCompiler, width, 18) +
              paragraph("instruction sets", features + " (of this CPU, that kernels use)", width, 18) +
              paragraph("CUDA object",
                        cuda.empty() ? fmt::format("not found ({})", kCudaLibraryName) : printable_path(cuda), width,
                        18));
  return 0;
}

// Appears below a new or an existing folder, each file whole or not at all.
Result<> write_shared(const std::filesystem::path& folder, const std::vector<SharedFile>& files) {
  for (const SharedFile& file : files) {
    const std::filesystem::path path = folder / file.path;
    std::error_code error;
    std::filesystem::create_directories(path.parent_path(), error);
    MORACLE_ASSIGN(AtomicFile out, AtomicFile::create(path, 0));
    MORACLE_TRY(out.write(file.text));
    MORACLE_TRY(out.commit());
  }
  return Ok{};
}

int completions_command(const CLI::App& root, const std::string& shell, Console& console) {
  const CommandTable table = command_table(root);
  console.out(shell == "bash"  ? bash_completion(table)
              : shell == "zsh" ? zsh_completion(table)
                               : fish_completion(table));
  return 0;
}

void add_files(CLI::App& root, Program& program) {
  CLI::App* completions = root.add_subcommand("completions", "Print the completions of a shell");
  auto shell = std::make_shared<std::string>();
  completions->add_option("shell", *shell, "Which shell")
      ->type_name("bash|zsh|fish")
      ->required()
      ->check(one_of({"bash", "zsh", "fish"}));
  completions->footer("Example:\n  moracle completions bash > ~/.local/share/bash-completion/completions/moracle");
  completions->callback([&root, &program, shell] {
    program.action = [&root, &program, shell] { return completions_command(root, *shell, program.console); };
  });
  // For the build, which installs them.
  CLI::App* share = root.add_subcommand("share", "Write completions and manual pages below a folder")->group("");
  auto folder = std::make_shared<std::string>();
  share->add_option("folder", *folder, "Folder to write to")->type_name("DIR")->required();
  share->callback([&root, &program, folder] {
    program.action = [&root, &program, folder] {
      const auto written = write_shared(*folder, shared_files(command_table(root)));
      return written.ok() ? 0 : program.console.fail(written.error());
    };
  });
}

}  // namespace

void add_help(CLI::App& root, Program& program) {
  add_files(root, program);
  CLI::App* help = root.add_subcommand("help", "Show what a command does and its options");
  auto words = std::make_shared<std::vector<std::string>>();
  help->add_option("command", *words, "A command, such as run or bench layer; none: the list of them")
      ->type_name("COMMAND");
  help->footer("Example:\n  moracle help bench layer");
  help->callback([&root, &program, words] {
    program.action = [&root, &program, words] { return help_command(root, *words, program.console); };
  });
  CLI::App* version = root.add_subcommand("version", "Show version, build, compiler, instruction sets, CUDA object");
  auto json = std::make_shared<bool>(false);
  add_json(*version, *json);
  version->footer("Example:\n  moracle version --json");
  version->callback(
      [json, &program] { program.action = [json, &program] { return version_command(*json, program.console); }; });
}

}  // namespace moracle::cli
