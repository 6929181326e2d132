#include "checkpoint/shard_index.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <system_error>
#include <utility>

#include "base/files/file_error.h"
#include "base/files/folder.h"
#include "base/json.h"
#include "base/json_scanner.h"
#include "base/printable.h"
#include "checkpoint/folder_hints.h"
#include "checkpoint/hub_cache.h"
#include "checkpoint/safetensors_header.h"

namespace moracle {

namespace {

namespace fs = std::filesystem;

constexpr std::size_t kMaxIndexBytes = std::size_t{256} << 20;
constexpr std::size_t kMaxShards = 8192;
constexpr int kIndexDepth = 16;  // of what the index holds besides weight_map
constexpr std::string_view kExtension = ".safetensors";
constexpr std::string_view kSingleName = "model.safetensors";
// What tools save beside a model's weights: the weights in another layout, an adapter, a trainer's state.
constexpr std::array<std::string_view, 3> kOtherPurposes{"consolidated", "adapter_", "optimizer"};

bool has_other_purpose(const std::string& file) {
  return std::any_of(kOtherPurposes.begin(), kOtherPurposes.end(),
                     [&](std::string_view stem) { return file.starts_with(stem); });
}

Result<> check_shard_path(const std::string& shard, const std::string& tensor, const std::string& index_path) {
  const fs::path path(shard);
  const bool leaves = path.is_absolute() || std::find(path.begin(), path.end(), "..") != path.end();
  if (leaves || shard.find('\0') != std::string::npos || path.extension() != kExtension) {
    return Error{.code = "shard.path",
                 .file = index_path,
                 .where = in_quotes(tensor),
                 .wanted = "a .safetensors file inside the model folder",
                 .found = in_quotes(shard),
                 .advice = "do not use this checkpoint unless you know who wrote its index"};
  }
  return Ok{};
}

// Reads the weight_map object into an index.
class WeightMapReader {
 public:
  WeightMapReader(JsonScanner& scanner, ShardIndex& index) : scanner_(scanner), index_(index) {}

  Result<> read() {
    return scanner_.object([&](std::string tensor, std::uint64_t byte) -> Result<> {
      MORACLE_ASSIGN(std::string shard, scanner_.string());
      auto known = numbers_.find(shard);
      if (known == numbers_.end()) {
        MORACLE_TRY(check_shard_path(shard, tensor, index_.path));
        if (index_.files.size() == kMaxShards)
          return scanner_.error("at most " + std::to_string(kMaxShards) + " files");
        index_.files.push_back(shard);
        known = numbers_.emplace(std::move(shard), static_cast<std::uint32_t>(index_.files.size() - 1)).first;
      }
      if (index_.tensors.size() == kMaxHeaderEntries) {
        return Error{.code = "shard.index",
                     .file = index_.path,
                     .where = "/weight_map",
                     .wanted = "at most " + std::to_string(kMaxHeaderEntries) + " tensors",
                     .found = "more"};
      }
      // Writers sort the names, so the end is nearly always the place.
      const std::size_t before = index_.tensors.size();
      const auto place = index_.tensors.emplace_hint(index_.tensors.end(), std::move(tensor), known->second);
      if (index_.tensors.size() == before) {
        return Error{.code = "tensor.duplicate",
                     .file = index_.path,
                     .where = in_quotes(place->first) + " at byte " + std::to_string(byte),
                     .wanted = "each name once",
                     .found = "a second one of this name",
                     .advice = "the file is damaged or hostile; download it again"};
      }
      return Ok{};
    });
  }

 private:
  JsonScanner& scanner_;
  ShardIndex& index_;
  std::map<std::string, std::uint32_t> numbers_;
};

// "model-00002-of-00003.safetensors" -> {"model-", "-of-00003", 3}.
struct Numbering {
  std::string set;
  std::uint64_t total = 0;
};

std::optional<Numbering> numbering_of(const std::string& file) {
  const std::string stem = file.substr(0, file.size() - kExtension.size());
  const auto of = stem.rfind("-of-");
  if (of == std::string::npos || of == 0) return std::nullopt;
  const auto dash = stem.find_last_not_of("0123456789", of - 1);
  if (dash == std::string::npos || dash + 1 == of) return std::nullopt;
  std::uint64_t total = 0;
  const char* const end = stem.data() + stem.size();
  const auto [stop, code] = std::from_chars(stem.data() + of + 4, end, total);
  if (code != std::errc{} || stop != end) return std::nullopt;
  return Numbering{.set = stem.substr(0, dash + 1) + "*" + stem.substr(of), .total = total};
}

// Removes the files that belong, and returns them in their order.
template <class Belongs>
std::vector<std::string> take(std::vector<std::string>& files, const Belongs& belongs) {
  std::vector<std::string> taken;
  std::erase_if(files, [&](const std::string& file) {
    if (!belongs(file)) return false;
    taken.push_back(file);
    return true;
  });
  return taken;
}

// Without an index nothing but the names tells that a shard is missing.
Result<> check_complete(const std::vector<std::string>& files, const fs::path& folder) {
  std::map<std::string, std::pair<std::uint64_t, std::uint64_t>> sets;  // set -> {found, total}
  for (const std::string& file : files) {
    if (const auto numbering = numbering_of(file)) {
      auto& [found, total] = sets[numbering->set];
      ++found;
      total = numbering->total;
    }
  }
  const auto whole =
      std::find_if(sets.begin(), sets.end(), [](const auto& set) { return set.second.first == set.second.second; });
  for (const auto& [set, counts] : sets) {
    if (counts.first == counts.second) continue;
    return Error{.code = "shard.missing",
                 .file = folder.string(),
                 .where = set + std::string(kExtension),
                 .wanted = std::to_string(counts.second) + " files",
                 .found = std::to_string(counts.first),
                 .advice = whole == sets.end() ? "download the missing files and " + std::string(kIndexName)
                                               : whole->first + std::string(kExtension) +
                                                     " is complete: move the files of this set away"};
  }
  return Ok{};
}

struct Listing {
  std::vector<std::string> safetensors;
  std::vector<std::string> pickles;
};

Result<Listing> list_folder(const fs::path& folder) {
  Listing listing;
  MORACLE_ASSIGN(const std::vector<std::string> names, names_in(folder));
  for (const std::string& name : names) {
    const fs::path extension = fs::path(name).extension();
    if (extension == kExtension) {
      listing.safetensors.push_back(name);
    } else if (extension == ".bin" || extension == ".pt" || extension == ".pth" || extension == ".ckpt") {
      listing.pickles.push_back(name);
    }
  }
  return listing;
}

Error no_weights(const Listing& listing, const fs::path& folder) {
  if (!listing.pickles.empty()) {
    return Error{.code = "pickle.refused",
                 .file = (folder / listing.pickles.front()).string(),
                 .wanted = "weights in *.safetensors files",
                 .found = "only pickle files, which run code when they are read",
                 .advice = "convert the checkpoint to safetensors with a tool you trust"};
  }
  const FolderHint hint = hint_without_weights(folder);
  return Error{.code = "checkpoint.missing",
               .file = folder.string(),
               .wanted = "weights: model.safetensors, or shards with " + std::string(kIndexName),
               .found = "no *.safetensors file" + hint.found,
               .advice = hint.advice.empty() ? download_advice(folder, "download the weights as well") : hint.advice};
}

}  // namespace

Result<ShardIndex> parse_shard_index(std::string_view text, const std::string& path) {
  ShardIndex index;
  index.path = path;
  JsonScanner scanner(text, 0, path, "json.syntax");
  bool has_map = false;
  MORACLE_TRY(scanner.object([&](const std::string& key, std::uint64_t byte) -> Result<> {
    if (key != "weight_map") return scanner.skip_value(kIndexDepth);
    if (has_map) {
      return Error{.code = "json.duplicate",
                   .file = path,
                   .where = "weight_map at byte " + std::to_string(byte),
                   .wanted = "each key once",
                   .found = "a key that occurs twice"};
    }
    has_map = true;
    return WeightMapReader(scanner, index).read();
  }));
  MORACLE_TRY(scanner.expect_end());
  if (index.tensors.empty()) {
    return Error{.code = "shard.index",
                 .file = path,
                 .where = "/weight_map",
                 .wanted = "an object that names the file of each tensor",
                 .found = has_map ? "an empty one" : "nothing"};
  }
  return index;
}

Result<WeightFiles> find_weight_files(const fs::path& folder) {
  const fs::path index_path = folder / kIndexName;
  WeightFiles found;
  MORACLE_ASSIGN(const bool indexed, file_exists(index_path));
  if (indexed) {
    MORACLE_ASSIGN(const std::string text, read_text(index_path, kMaxIndexBytes));
    MORACLE_ASSIGN(found.index, parse_shard_index(text, index_path.string()));
    found.files = found.index->files;
    const bool knows_single = std::find(found.files.begin(), found.files.end(), kSingleName) != found.files.end();
    std::error_code code;
    if (!knows_single && fs::exists(folder / kSingleName, code)) {
      const bool merged = std::none_of(found.files.begin(), found.files.end(),
                                       [&](const std::string& file) { return fs::exists(folder / file, code); });
      return Error{
          .code = "shard.ambiguous",
          .file = (folder / kSingleName).string(),
          .wanted = "one set of weights",
          .found = "this file beside " + std::string(kIndexName) + ", which does not name it" +
                   (merged ? ", and whose files are not there" : ""),
          .advice = merged ? "the files were merged: remove " + std::string(kIndexName) : "move one of the two away"};
    }
  }
  MORACLE_ASSIGN(Listing listing, list_folder(folder));
  auto& files = listing.safetensors;
  if (found.index) {
    std::copy_if(files.begin(), files.end(), std::back_inserter(found.unread), [&](const std::string& file) {
      return std::find(found.files.begin(), found.files.end(), file) == found.files.end();
    });
    return found;
  }
  if (files.empty()) return no_weights(listing, folder);
  if (const auto single = std::find(files.begin(), files.end(), kSingleName); single != files.end()) {
    files.erase(single);
    found.files.emplace_back(kSingleName);
    found.unread = std::move(files);
    return found;
  }
  found.unread = take(files, has_other_purpose);
  if (files.empty()) files.swap(found.unread);
  MORACLE_TRY(check_complete(files, folder));
  found.files = take(files, [](const std::string& file) { return file.starts_with("model-"); });
  found.more = std::move(files);
  if (found.files.empty()) found.files.swap(found.more);
  return found;
}

}  // namespace moracle
