#include "checkpoint/checkpoint.h"

#include <algorithm>
#include <mutex>
#include <set>
#include <system_error>
#include <utility>

#include "base/checked.h"
#include "base/files/config_file.h"
#include "base/files/file_error.h"
#include "base/files/folder.h"
#include "base/guarded.h"
#include "base/printable.h"
#include "checkpoint/folder_hints.h"
#include "checkpoint/hub_cache.h"
#include "checkpoint/mapped_file.h"
#include "checkpoint/safetensors_file.h"
#include "checkpoint/safetensors_header.h"
#include "checkpoint/shard_index.h"

namespace moracle {

namespace {

namespace fs = std::filesystem;

constexpr const char* kFolderAdvice =
    "name a folder with config.json, model.safetensors (or shards and model.safetensors.index.json) and tokenizer.json";

constexpr const char* kDownloadAll = "download index and files of one revision";

class FolderCheckpoint final : public Checkpoint {
 public:
  FolderCheckpoint(fs::path folder, Json config) : folder_(std::move(folder)), config_(std::move(config)) {}

  // Opens the files and checks them against each other and the index.
  Result<> open_files(const WeightFiles& found);

  const fs::path& folder() const override { return folder_; }
  const Json& config() const override { return config_; }
  const std::map<std::string, TensorView, std::less<>>& tensors() const override { return tensors_; }
  std::uint64_t total_bytes() const override { return total_bytes_; }
  Result<> verify_unchanged() const override;
  std::vector<std::string> unread_files() const override { return {unread_.begin(), unread_.end()}; }
  void copy(std::span<const std::byte> bytes, std::byte* to) const override;
  void release(std::span<const std::byte> bytes) const override;
  Result<std::span<const std::byte>> read(std::span<const std::byte> bytes, std::span<std::byte> room) const override;
  bool in_one_file(std::span<const std::byte> bytes) const override { return mapping_of(bytes) != nullptr; }

 private:
  fs::path folder_;
  Json config_;
  // From the first to the last byte of small parts that wait for their neighbours; what others still read between them
  // is read again.
  struct Pending {
    const MappedFile* mapping = nullptr;
    std::size_t begin = 0;
    std::size_t end = 0;
  };

  // Opens one file and takes its tensors. Errors: "tensor.duplicate" across files.
  Result<> add(const std::string& file);
  // The same for a file that may hold nothing but copies; such a file is not read.
  Result<> add_unless_copy(const std::string& file);
  Result<> take(SafetensorsFile opened);
  // Whether tensors and index agree, both ways.
  Result<> check_index(const ShardIndex& index) const;
  Result<> sum_bytes();

  // Null where none holds all the bytes.
  const MappedFile* mapping_of(std::span<const std::byte> bytes) const;

  std::vector<std::unique_ptr<MappedFile>> mappings_;
  mutable std::mutex pending_mutex_;
  mutable Pending pending_;
  std::map<std::string, TensorView, std::less<>> tensors_;
  std::set<std::string> unread_;
  std::uint64_t total_bytes_ = 0;
};

Result<> FolderCheckpoint::add(const std::string& file) {
  MORACLE_ASSIGN(SafetensorsFile opened, SafetensorsFile::open(folder_ / file));
  return take(std::move(opened));
}

Result<> FolderCheckpoint::add_unless_copy(const std::string& file) {
  MORACLE_ASSIGN(SafetensorsFile opened, SafetensorsFile::open(folder_ / file));
  const SafetensorsFile::Tensors& tensors = opened.tensors();
  const bool copy = !tensors.empty() && std::all_of(tensors.begin(), tensors.end(), [&](const auto& tensor) {
    return tensors_.contains(tensor.first);
  });
  if (!copy) return take(std::move(opened));
  unread_.insert(file);
  return Ok{};
}

Result<> FolderCheckpoint::take(SafetensorsFile opened) {
  mappings_.push_back(opened.take_mapping());
  SafetensorsFile::Tensors incoming = opened.take_tensors();
  if (tensors_.size() + incoming.size() > kMaxHeaderEntries) {
    return Error{.code = "header.entries",
                 .file = mappings_.back()->path(),
                 .wanted = "at most " + std::to_string(kMaxHeaderEntries) + " tensors in all files",
                 .found = "more",
                 .advice = "keep the files of one checkpoint in a folder"};
  }
  if (tensors_.empty()) tensors_.swap(incoming);
  tensors_.merge(incoming);  // leaves behind what is there already
  if (incoming.empty()) return Ok{};
  const auto& [name, view] = *incoming.begin();
  return Error{.code = "tensor.duplicate",
               .file = view.file,
               .where = in_quotes(name),
               .wanted = "each tensor in one file",
               .found = "one of the same name in " + tensors_.find(name)->second.file,
               .advice = "remove the file that does not belong to the checkpoint"};
}

Result<> FolderCheckpoint::check_index(const ShardIndex& index) const {
  const auto mismatch = [&](const std::string& name, std::string wanted, std::string found) {
    return Error{.code = "shard.missing",
                 .file = index.path,
                 .where = in_quotes(name),
                 .wanted = std::move(wanted),
                 .found = std::move(found),
                 .advice = "index and shards are of different builds; " + download_advice(folder_, kDownloadAll)};
  };
  for (const auto& [name, number] : index.tensors) {
    const std::string& shard = index.files[number];
    const TensorView* view = find(name);
    if (view == nullptr) return mismatch(name, "the tensor in " + in_quotes(shard), "it is in no shard");
    if (view->file != (folder_ / shard).string()) {
      return mismatch(name, "the tensor in " + in_quotes(shard), "it is in " + view->file);
    }
  }
  if (tensors_.size() == index.tensors.size()) return Ok{};
  for (const auto& [name, view] : tensors_) {
    if (!index.tensors.contains(name))
      return mismatch(name, "every tensor of " + view.file + " listed", "not this one");
  }
  return Ok{};
}

Result<> FolderCheckpoint::sum_bytes() {
  for (const auto& [name, view] : tensors_) {
    const auto sum = checked_add<std::uint64_t>(total_bytes_, view.bytes.size());
    if (!sum) return Error{.code = "shape.overflow", .file = view.file, .where = in_quotes(name), .found = "a sum"};
    total_bytes_ = *sum;
  }
  return Ok{};
}

Result<> FolderCheckpoint::verify_unchanged() const {
  for (const auto& mapping : mappings_) MORACLE_TRY(mapping->verify_unchanged());
  return Ok{};
}

const MappedFile* FolderCheckpoint::mapping_of(std::span<const std::byte> bytes) const {
  const auto held = std::find_if(mappings_.begin(), mappings_.end(), [&](const auto& m) { return m->holds(bytes); });
  return held == mappings_.end() ? nullptr : held->get();
}

void FolderCheckpoint::copy(std::span<const std::byte> bytes, std::byte* to) const {
  const MappedFile* const mapping = mapping_of(bytes);
  if (mapping == nullptr) return Checkpoint::copy(bytes, to);
  mapping->copy(bytes, to);
}

Result<std::span<const std::byte>> FolderCheckpoint::read(std::span<const std::byte> bytes,
                                                          std::span<std::byte> room) const {
  const MappedFile* const mapping = mapping_of(bytes);
  return mapping == nullptr ? Checkpoint::read(bytes, room) : mapping->read(bytes, room);
}

// Every core is told of pages that go, which takes longer than to read a matrix of an expert: small parts go together.
void FolderCheckpoint::release(std::span<const std::byte> bytes) const {
  constexpr std::size_t kSmall = std::size_t{1} << 20;
  constexpr std::size_t kTogether = std::size_t{8} << 20;
  const MappedFile* const mapping = mapping_of(bytes);
  if (mapping == nullptr) return;
  if (bytes.size() >= kSmall) return mapping->release(bytes);
  const auto begin = static_cast<std::size_t>(bytes.data() - mapping->bytes().data());
  const std::size_t end = begin + bytes.size();
  Pending done{mapping, begin, end};
  {
    const std::scoped_lock lock(pending_mutex_);
    const Pending both{mapping, std::min(begin, pending_.begin), std::max(end, pending_.end)};
    if (pending_.mapping == mapping && both.end - both.begin <= kTogether) {
      pending_ = both;
      return;
    }
    std::swap(pending_, done);
  }
  if (done.mapping != nullptr) done.mapping->release(done.mapping->bytes().subspan(done.begin, done.end - done.begin));
}

// A shard that the index names must be there before any other is opened: a cut download is told at once.
Result<> check_shards_exist(const fs::path& folder, const WeightFiles& found) {
  for (const std::string& file : found.index->files) {
    MORACLE_ASSIGN(const bool exists, file_exists(folder / file));
    if (exists) continue;
    Error error{.code = "shard.missing",
                .file = (folder / file).string(),
                .wanted = "the file that " + found.index->path + " names",
                .found = "no such file",
                .advice = download_advice(folder, "download the missing shard")};
    const auto other = std::find_if(found.unread.begin(), found.unread.end(),
                                    [](const std::string& name) { return name.starts_with("model"); });
    if (other == found.unread.end()) {
      const std::string cut = unfinished_download(folder);
      if (!cut.empty()) error.found += "; a download is not finished: " + in_quotes(cut);
      return error;
    }
    error.found += "; the folder has " + in_quotes(*other) + ", which the index does not list";
    error.advice = "the index is of another build than the files; " + download_advice(folder, kDownloadAll);
    return error;
  }
  return Ok{};
}

Result<> FolderCheckpoint::open_files(const WeightFiles& found) {
  if (found.index) MORACLE_TRY(check_shards_exist(folder_, found));
  for (const std::string& file : found.files) MORACLE_TRY(add(file));
  for (const std::string& file : found.more) MORACLE_TRY(add_unless_copy(file));
  unread_.insert(found.unread.begin(), found.unread.end());
  if (tensors_.empty()) {
    return Error{.code = "checkpoint.missing",
                 .file = folder_.string(),
                 .wanted = "weights",
                 .found = "safetensors files without a single tensor"};
  }
  if (found.index) MORACLE_TRY(check_index(*found.index));
  return sum_bytes();
}

}  // namespace

std::int64_t TensorView::elements() const {
  return checked_product(std::span<const std::int64_t>(shape)).value_or(0);  // never overflows: checked at open
}

Result<std::span<const std::byte>> Checkpoint::read(std::span<const std::byte> bytes, std::span<std::byte> room) const {
  const std::span<std::byte> to =
      room.subspan(reinterpret_cast<std::uintptr_t>(bytes.data()) % kDiskBlock, bytes.size());
  copy(bytes, to.data());
  return std::span<const std::byte>(to);
}

const TensorView* Checkpoint::find(std::string_view name) const {
  const auto it = tensors().find(name);
  return it == tensors().end() ? nullptr : &it->second;
}

Result<Json> Checkpoint::read_config(const fs::path& folder) {
  const auto no_folder = [&](std::string found, FolderHint hint) {
    return Error{.code = "file.open",
                 .file = folder.string(),
                 .wanted = "a model folder",
                 .found = std::move(found) + hint.found,
                 .advice = hint.advice.empty() ? kFolderAdvice : std::move(hint.advice)};
  };
  MORACLE_ASSIGN(const bool named, file_exists(folder));
  if (!named) return no_folder("no such folder", {});
  std::error_code code;
  if (!fs::is_directory(folder, code)) return no_folder("a file", hint_of_file(folder));
  const fs::path path = folder / "config.json";
  MORACLE_ASSIGN(const bool has_config, file_exists(path));
  if (!has_config) return no_folder("a folder without config.json", hint_without_config(folder));
  MORACLE_ASSIGN(Json config, read_config_file(path));
  if (!config.is_object()) {
    return Error{.code = "config.type", .file = path.string(), .wanted = "an object", .found = config.type_name()};
  }
  return config;
}

Result<std::shared_ptr<const Checkpoint>> Checkpoint::open(const fs::path& path) {
  return guarded("open the checkpoint", [&]() -> Result<std::shared_ptr<const Checkpoint>> {
    MORACLE_ASSIGN(const fs::path folder, resolve_model_folder(path));
    MORACLE_ASSIGN(Json config, read_config(folder));
    MORACLE_ASSIGN(const WeightFiles found, find_weight_files(folder));
    auto checkpoint = std::make_shared<FolderCheckpoint>(folder, std::move(config));
    MORACLE_TRY(unless_changed(*checkpoint, checkpoint->open_files(found)));
    return std::shared_ptr<const Checkpoint>(std::move(checkpoint));
  });
}

void name_unread_file(const Checkpoint& checkpoint, Error& error) {
  for (const std::string& file : checkpoint.unread_files()) {
    const Result<SafetensorsFile> opened = SafetensorsFile::open(checkpoint.folder() / file);
    if (!opened.ok()) continue;
    const std::string_view name = std::string_view(error.where).substr(0, error.where.find('{'));  // of any expert
    const auto at = opened->tensors().lower_bound(name);
    if (at == opened->tensors().end() || !at->first.starts_with(name)) continue;
    error.found += "; " + in_quotes(file) + " has it, and was not read";
    std::error_code code;
    error.advice = fs::exists(checkpoint.folder() / kIndexName, code)
                       ? std::string(kIndexName) + " does not list this file: the index is of another build"
                       : "move the files that do not belong to the checkpoint away";
    return;
  }
}

}  // namespace moracle
