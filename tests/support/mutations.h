// Real checkpoints with one thing changed, and what opening and loading them must say.
#pragma once

#include <filesystem>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "base/result.h"
#include "support/mutable_checkpoint.h"

namespace moracle::test {

struct Mutation {
  std::string name;
  std::function<void(MutableCheckpoint&)> change;
  std::string code;                // of the error; empty: it loads
  std::vector<std::string> texts;  // all in the error's message, or in one of the warnings of what loads
};

// The folder among the test data, else in the shared collection.
[[nodiscard]] std::optional<std::filesystem::path> find_checkpoint(const std::string& name);

// Opens the folder, plans it, and loads it with the reference kernel, which reads every value. `warnings` gets those of
// the plan.
[[nodiscard]] Result<> load_wholly(const std::filesystem::path& folder, std::vector<std::string>* warnings = nullptr);

// Loads the checkpoint unchanged, then each mutation of it. Skips the test with a message where the checkpoint or its
// model family is not there. Prints how many were tried.
void try_mutations(const std::string& checkpoint, const std::vector<Mutation>& mutations);

}  // namespace moracle::test
