#include "support/test_data.h"

#include <cstdlib>

namespace moracle::test {

std::filesystem::path source_dir() {
  return MORACLE_SOURCE_DIR;
}

std::filesystem::path data_dir() {
  return source_dir() / "tests" / "data";
}

std::filesystem::path reference_dir() {
  return MORACLE_REFERENCE_DIR;
}

std::optional<std::filesystem::path> shared_dir() {
  if (const char* named = std::getenv("MORACLE_SHARED"); named != nullptr && std::filesystem::is_directory(named))
    return named;
  const auto beside = source_dir().parent_path() / "shared";
  if (std::filesystem::is_directory(beside / "golden")) return beside;
  return std::nullopt;
}

}  // namespace moracle::test
