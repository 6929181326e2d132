#include "cli/hub.h"

#include <algorithm>
#include <cstdlib>
#include <string_view>

#include "checkpoint/hub_cache.h"

namespace moracle::cli {

namespace {

namespace fs = std::filesystem;

// Set and not empty.
const char* variable(const char* name) {
  const char* const value = std::getenv(name);
  return value != nullptr && *value != '\0' ? value : nullptr;
}

bool is_name(std::string_view text) {
  const auto fits = [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '-' || c == '_' ||
           c == '.';
  };
  return !text.empty() && text.size() <= 96 && text.front() != '.' && text.front() != '-' &&
         std::all_of(text.begin(), text.end(), fits);
}

// "org/name", as repositories are called.
bool is_repository(std::string_view model) {
  const std::size_t slash = model.find('/');
  return slash != std::string_view::npos && is_name(model.substr(0, slash)) && is_name(model.substr(slash + 1));
}

// The "org/name" that was meant: itself, with a slash behind it, as an address of the hub, or as a folder of its cache.
std::string repository_of(std::string_view model) {
  if (model.starts_with("models--")) return hub_repository(model);
  for (const std::string_view start : {"https://", "huggingface.co/", "hf.co/"}) {
    if (model.starts_with(start)) model.remove_prefix(start.size());
  }
  for (const std::string_view end : {"/", "/tree/main"}) {
    if (model.ends_with(end)) model.remove_suffix(end.size());
  }
  return std::string(model);
}

}  // namespace

fs::path hub_cache_root() {
  for (const char* name : {"HF_HUB_CACHE", "HUGGINGFACE_HUB_CACHE"}) {
    if (const char* const root = variable(name)) return root;
  }
  if (const char* const home = variable("HF_HOME")) return fs::path(home) / "hub";
  if (const char* const cache = variable("XDG_CACHE_HOME")) return fs::path(cache) / "huggingface" / "hub";
  const char* const home = variable("HOME");
  return fs::path(home != nullptr ? home : "") / ".cache" / "huggingface" / "hub";
}

Result<fs::path> locate_model(const std::string& model) {
  std::error_code code;
  const std::string repository = repository_of(model);
  if (!is_repository(repository) || fs::exists(model, code)) return fs::path(model);
  const fs::path root = hub_cache_root();
  const fs::path cached = root / hub_folder_name(repository);
  if (fs::exists(cached, code)) return cached;
  return Error{.code = "hub.missing",
               .file = model,
               .wanted = "a folder, or a model in the hub's cache (" + root.string() + ")",
               .found = "neither",
               .advice = "`hf download " + repository + "` downloads it"};
}

}  // namespace moracle::cli
