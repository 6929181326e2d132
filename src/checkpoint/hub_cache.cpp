#include "checkpoint/hub_cache.h"

#include <system_error>
#include <vector>

#include "base/files/folder.h"
#include "base/json.h"
#include "base/printable.h"

namespace moracle {

namespace {

namespace fs = std::filesystem;

constexpr std::string_view kPrefix = "models--";
constexpr std::string_view kSeparator = "--";
constexpr std::size_t kMaxRevisionBytes = 256;

std::string name_of(const fs::path& folder) {
  return folder.has_filename() ? folder.filename().string() : folder.parent_path().filename().string();
}

// The folder of refs and snapshots that the path names, itself or by its "snapshots"; else empty.
fs::path repository_folder(const fs::path& path) {
  std::error_code code;
  const fs::path whole = fs::weakly_canonical(path, code);
  if (code || !fs::is_directory(whole, code) || fs::exists(whole / "config.json", code)) return {};
  const fs::path folder = name_of(whole) == "snapshots" ? whole.parent_path() : whole;
  const bool cached = name_of(folder).starts_with(kPrefix) && fs::is_directory(folder / "snapshots", code);
  return cached ? folder : fs::path();
}

// What refs/main holds; empty where it is no name of one folder.
std::string main_revision(const fs::path& folder) {
  const Result<std::string> text = read_text(folder / "refs" / "main", kMaxRevisionBytes);
  if (!text.ok()) return {};
  std::string revision = *text;
  while (!revision.empty() && (revision.back() == '\n' || revision.back() == '\r' || revision.back() == ' ')) {
    revision.pop_back();
  }
  const bool plain = !revision.empty() && revision.front() != '.' && revision.find('/') == std::string::npos &&
                     revision.find('\0') == std::string::npos;
  return plain ? revision : std::string();
}

// Those with a config.json, sorted.
std::vector<std::string> snapshots_in(const fs::path& folder) {
  auto names = names_in(folder / "snapshots");
  if (!names.ok()) return {};
  std::erase_if(*names, [&](const std::string& name) {
    std::error_code ignored;
    return !fs::exists(folder / "snapshots" / name / "config.json", ignored);
  });
  return std::move(names).value();
}

}  // namespace

std::string hub_folder_name(std::string_view repository) {
  std::string name(kPrefix);
  for (const char c : repository) name += c == '/' ? std::string(kSeparator) : std::string(1, c);
  return name;
}

std::string hub_repository(const fs::path& path) {
  for (const fs::path& part : path) {
    std::string name = part.string();
    if (!name.starts_with(kPrefix)) continue;
    name.erase(0, kPrefix.size());
    const std::size_t at = name.find(kSeparator);
    if (at != std::string::npos) name.replace(at, kSeparator.size(), "/");
    return name;
  }
  return {};
}

std::string model_name(const fs::path& folder) {
  std::string repository = hub_repository(folder);
  if (!repository.empty()) return repository;
  std::error_code code;
  return printable(name_of(fs::absolute(folder, code).lexically_normal()));
}

std::string download_advice(const fs::path& folder, std::string words) {
  const std::string repository = hub_repository(folder);
  return repository.empty() ? std::move(words) : "hf download " + repository;
}

Result<fs::path> resolve_model_folder(const fs::path& path) {
  const fs::path folder = repository_folder(path);
  if (folder.empty()) return path;
  const std::string download = download_advice(folder, "");
  const std::string revision = main_revision(folder);
  std::error_code code;
  if (!revision.empty() && fs::is_directory(folder / "snapshots" / revision, code)) {
    return folder / "snapshots" / revision;
  }
  const std::vector<std::string> names = snapshots_in(folder);
  if (names.size() == 1) return folder / "snapshots" / names.front();
  if (names.empty()) {
    return Error{.code = "hub.snapshot",
                 .file = folder.string(),
                 .wanted = "a snapshot of the model below snapshots",
                 .found = "none with a config.json",
                 .advice = "download it: " + download};
  }
  std::string list;
  for (const std::string& name : names) list += (list.empty() ? "" : ", ") + in_quotes(name);
  return Error{.code = "hub.snapshot",
               .file = folder.string(),
               .where = "refs/main",
               .wanted = "the name of one of the snapshots",
               .found = (revision.empty() ? "nothing" : in_quotes(revision)) + " beside " + list,
               .advice = "name the folder of the snapshot itself, below snapshots"};
}

}  // namespace moracle
