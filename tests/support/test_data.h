// Where tests find their data.
#pragma once

#include <filesystem>
#include <optional>

namespace moracle::test {

// tests/data of the source tree: what the suite needs, always there.
[[nodiscard]] std::filesystem::path data_dir();

// Golden vectors, tokenizers with their cases, and decisions: tests/data/reference.tar.xz as the build unpacked it.
[[nodiscard]] std::filesystem::path reference_dir();

// The root of the source tree.
[[nodiscard]] std::filesystem::path source_dir();

// The larger reference collection: $MORACLE_SHARED, else ../shared beside the source tree; empty where neither is
// there. Tests that need it skip with a message when it is absent.
[[nodiscard]] std::optional<std::filesystem::path> shared_dir();

}  // namespace moracle::test
