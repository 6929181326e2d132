#include "checkpoint/folder_hints.h"

#include <algorithm>
#include <array>
#include <functional>
#include <string_view>
#include <system_error>
#include <vector>

#include "base/files/folder.h"
#include "base/printable.h"
#include "checkpoint/hub_cache.h"

namespace moracle {

namespace {

namespace fs = std::filesystem;

constexpr std::size_t kMaxEntries = 4096;  // of a folder that is no model, and may be anything
constexpr std::size_t kListed = 3;
constexpr std::array<std::string_view, 5> kUnfinished{".incomplete", ".part", ".partial", ".crdownload", ".aria2"};

// Names in a folder, sorted, the first few thousand of them; empty where it cannot be read.
std::vector<std::string> listed(const fs::path& folder) {
  auto names = names_in(folder);
  if (!names.ok()) return {};
  if (names->size() > kMaxEntries) names->resize(kMaxEntries);
  return *std::move(names);
}

bool is_there(const fs::path& path) {
  std::error_code code;
  return fs::exists(path, code);
}

bool holds_safetensors(const fs::path& folder) {
  const std::vector<std::string> names = listed(folder);
  return std::any_of(names.begin(), names.end(),
                     [](const std::string& name) { return name.ends_with(".safetensors"); });
}

// The first few folders below that fit, each in quotes.
std::string folders_below(const fs::path& folder, const std::function<bool(const std::string& name)>& fits) {
  std::string list;
  std::size_t found = 0;
  for (const std::string& name : listed(folder)) {
    std::error_code code;
    if (!fs::is_directory(folder / name, code) || !fits(name)) continue;
    if (found++ < kListed) list += (list.empty() ? "" : ", ") + in_quotes(name);
  }
  return list + (found > kListed ? ", ..." : "");
}

}  // namespace

FolderHint hint_of_file(const fs::path& file) {
  const fs::path folder = file.has_parent_path() ? file.parent_path() : fs::path(".");
  if (!is_there(folder / "config.json")) return {};
  return {.found = "", .advice = "name the folder that it lies in: " + in_quotes(folder.string())};
}

FolderHint hint_without_config(const fs::path& folder) {
  const std::string models =
      folders_below(folder, [&](const std::string& name) { return is_there(folder / name / "config.json"); });
  if (!models.empty()) return {.found = ", which is in " + models, .advice = "name the folder that has it"};
  const std::string cached =
      folders_below(folder, [](const std::string& name) { return !hub_repository(name).empty(); });
  if (!cached.empty()) {
    return {.found = ", but models of the hub's cache: " + cached, .advice = "name one of them, as org/name"};
  }
  const std::string command = download_advice(folder, "");
  if (!command.empty()) return {.found = "", .advice = "download the model: " + command};
  return {};
}

std::string unfinished_download(const fs::path& folder) {
  for (const char* place : {".", ".cache/huggingface/download"}) {
    for (const std::string& name : listed(folder / place)) {
      const bool unfinished = std::any_of(kUnfinished.begin(), kUnfinished.end(),
                                          [&](std::string_view ending) { return name.ends_with(ending); });
      if (unfinished) return name;
    }
  }
  return {};
}

FolderHint hint_without_weights(const fs::path& folder) {
  const std::string cut = unfinished_download(folder);
  if (!cut.empty()) return {.found = ", but a download that is not finished, " + in_quotes(cut), .advice = ""};
  for (const std::string& name : listed(folder)) {
    if (name.ends_with(".gguf")) {
      return {.found = ", but " + in_quotes(name),
              .advice = "GGUF is not read: download the model as its publisher has it, in safetensors files"};
    }
  }
  const std::string below =
      folders_below(folder, [&](const std::string& name) { return holds_safetensors(folder / name); });
  if (!below.empty()) return {.found = "; there are some in " + below, .advice = "name the folder that has them"};
  return {};
}

}  // namespace moracle
