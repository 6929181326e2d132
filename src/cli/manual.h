// Completions for shells, and manual pages, from the tables of options.
#pragma once

#include <string>
#include <vector>

#include "cli/option_table.h"

namespace moracle::cli {

// A file of an installation: "man/man1/moracle-run.1" and what it holds.
struct SharedFile {
  std::string path;
  std::string text;
};

// Completions of bash, zsh and fish, and a manual page of each command, where an installation has them below share/.
[[nodiscard]] std::vector<SharedFile> shared_files(const CommandTable& root);

[[nodiscard]] std::string bash_completion(const CommandTable& root);
[[nodiscard]] std::string zsh_completion(const CommandTable& root);
[[nodiscard]] std::string fish_completion(const CommandTable& root);
[[nodiscard]] std::string manual_page(const CommandTable& table);

}  // namespace moracle::cli
