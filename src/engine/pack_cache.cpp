#include "engine/pack_cache.h"

#include <elf.h>
#include <link.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <xxhash.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <ctime>

#include "base/checked.h"
#include "base/folder.h"
#include "base/guarded.h"

namespace moracle {

namespace {

namespace fs = std::filesystem;

constexpr const char* kSuffix = ".pack";
constexpr const char* kTemporary = ".partial-";  // as AtomicFile names what it has not finished
constexpr std::chrono::hours kForgotten{1};      // such a file grows while somebody writes it
constexpr std::uint64_t kFreeShare = 20;         // a twentieth of the disk stays free

// The notes of one loaded object: its build ID in hexadecimal, which the linker makes of the contents.
std::string build_id_in(const std::byte* notes, std::size_t size) {
  const auto aligned = [](std::size_t bytes) { return (bytes + 3) / 4 * 4; };
  while (size >= sizeof(ElfW(Nhdr))) {
    ElfW(Nhdr) head;
    std::memcpy(&head, notes, sizeof head);
    const std::size_t name = sizeof head;
    const std::size_t text = name + aligned(head.n_namesz);
    const std::size_t next = text + aligned(head.n_descsz);
    if (next > size) break;
    if (head.n_type == NT_GNU_BUILD_ID && head.n_namesz == 4 && std::memcmp(notes + name, "GNU", 4) == 0) {
      constexpr const char* kDigits = "0123456789abcdef";
      std::string id;
      for (std::size_t i = 0; i < head.n_descsz; ++i) {
        const auto byte = std::to_integer<unsigned>(notes[text + i]);
        id += {kDigits[byte >> 4U], kDigits[byte & 15U]};
      }
      return id;
    }
    notes += next;
    size -= next;
  }
  return {};
}

struct Searched {
  std::uintptr_t address = 0;
  std::string id;
};

int search_object(dl_phdr_info* object, std::size_t, void* data) {
  auto& searched = *static_cast<Searched*>(data);
  bool inside = false;
  std::string id;
  for (int i = 0; i < object->dlpi_phnum; ++i) {
    const ElfW(Phdr)& part = object->dlpi_phdr[i];
    const std::uintptr_t begin = object->dlpi_addr + part.p_vaddr;
    if (part.p_type == PT_LOAD && searched.address - begin < part.p_memsz) inside = true;
    // NOLINTNEXTLINE(performance-no-int-to-ptr): the loader gives addresses as numbers
    if (part.p_type == PT_NOTE && id.empty()) id = build_id_in(reinterpret_cast<const std::byte*>(begin), part.p_memsz);
  }
  if (inside) searched.id = id;
  return inside ? 1 : 0;
}

struct Kept {
  fs::file_time_type used;
  std::uint64_t bytes = 0;
  fs::path path;
};

// Other files of the folder, the least recently used first. Removes what a killed process has left half-written.
std::vector<Kept> other_files(const fs::path& folder, const fs::path& own) {
  std::vector<Kept> files;
  const auto names = names_in(folder);
  if (!names.ok()) return files;
  for (const std::string& name : *names) {
    std::error_code code;
    const fs::path path = folder / name;
    if (!fs::is_regular_file(path, code) || path == own) continue;
    const auto used = fs::last_write_time(path, code);
    if (name.find(kTemporary) != std::string::npos) {
      if (fs::file_time_type::clock::now() - used > kForgotten) fs::remove(path, code);
    } else if (path.extension() == kSuffix) {
      files.push_back({.used = used, .bytes = fs::file_size(path, code), .path = path});
    }
  }
  std::sort(files.begin(), files.end(), [](const Kept& a, const Kept& b) { return a.used < b.used; });
  return files;
}

// Removes files until `needed` bytes more are within the limit. Errors: "cache.full".
Result<> make_room(const fs::path& own, std::uint64_t needed, std::uint64_t limit) {
  const auto full = [&](std::string wanted, std::uint64_t found) {
    return Error{.code = "cache.full",
                 .file = own.parent_path().string(),
                 .wanted = std::move(wanted),
                 .found = std::to_string(found) + " bytes"};
  };
  if (needed > limit) return full("at most " + std::to_string(limit) + " bytes (the limit of the cache)", needed);
  const std::vector<Kept> files = other_files(own.parent_path(), own);
  std::uint64_t total = needed;
  for (const Kept& file : files) total += file.bytes;
  for (auto file = files.begin(); total > limit && file != files.end(); ++file) {
    std::error_code code;
    fs::remove(file->path, code);
    total -= file->bytes;
  }
  struct statvfs disk{};
  if (statvfs(own.parent_path().c_str(), &disk) != 0) return Ok{};
  const std::uint64_t spare = disk.f_blocks / kFreeShare * disk.f_frsize;
  const std::uint64_t available = disk.f_bavail * disk.f_frsize;
  if (needed > available || available - needed < spare)
    return full(std::to_string(needed) + " bytes, and a twentieth of the disk left free", available);
  return Ok{};
}

}  // namespace

std::string program_identity() {
  Searched searched{.address = reinterpret_cast<std::uintptr_t>(&default_cache_folder), .id = {}};
  dl_iterate_phdr(search_object, &searched);
  return searched.id;
}

std::string file_name_for(const std::string& text) {
  const std::uint64_t value = XXH3_64bits(text.data(), text.size());
  std::string name(16, '0');
  for (std::size_t i = 0; i < name.size(); ++i) name[i] = "0123456789abcdef"[value >> (60 - 4 * i) & 15U];
  return name;
}

void make_cache_folder(const fs::path& folder) {
  std::error_code code;
  if (fs::create_directories(folder, code)) fs::permissions(folder, fs::perms::owner_all, code);
}

fs::path default_cache_folder() {
  // NOLINTBEGIN(concurrency-mt-unsafe): nothing here changes the environment
  if (const char* own = std::getenv("MORACLE_CACHE")) return own;
  const char* const shared = std::getenv("XDG_CACHE_HOME");
  if (shared != nullptr && *shared == '/') return fs::path(shared) / "moracle";
  const char* const home = std::getenv("HOME");
  // NOLINTEND(concurrency-mt-unsafe)
  return home != nullptr && *home == '/' ? fs::path(home) / ".cache" / "moracle" : fs::path();
}

std::unique_ptr<PackCache> PackCache::open(const PackCacheOptions& options, const std::string& identity,
                                           const Machine& machine, const LoadPlan& plan) {
  const std::string program = program_identity();
  if (options.folder.empty() || identity.empty() || program.empty()) return nullptr;
  // One file for each choice of kernels; a model or program that changes replaces its own.
  std::string choice = "machine " + feature_list(machine.cpu_features) + "\n";
  for (const ModuleReport& module : plan.modules()) {
    if (!module.decision || module.decision->winner == nullptr) continue;
    choice += module.name + " " + std::string(module.decision->winner->id) + "\n";
  }
  const std::string model = identity.substr(0, identity.find(' '));
  const std::string named = model + "\n" + choice;
  const fs::path path = options.folder / (file_name_for(named) + kSuffix);
  std::unique_ptr<PackCache> cache(
      new PackCache(options, path, "program " + program + "\n" + choice + "files\n" + identity));
  auto file = PackFile::open(path, cache->key_);
  if (file.ok()) {
    cache->file_ = std::move(*file);
  } else if (file.error().code == "cache.broken") {
    cache->note("not used: " + file.error().found);
  }
  return cache;
}

PackCache::~PackCache() {
  wait();
}

void PackCache::note(const std::string& text) const {
  if (options_.note) options_.note("pack cache " + path_.string() + ": " + text);
}

bool PackCache::restore(std::string_view pack, std::span<std::byte> memory, ThreadPool& pool) {
  if (!file_ || !file_->has(pack, memory.size())) return false;
  const Result<> read = file_->read(pack, memory, pool);
  if (read.ok()) {
    packs_.push_back({.name = std::string(pack), .memory = memory});
    return true;
  }
  note("not used from here on: " + read.error().found);
  file_.reset();
  std::memset(memory.data(), 0, memory.size());
  return false;
}

void PackCache::keep(std::string_view pack, std::span<const std::byte> memory) {
  packs_.push_back({.name = std::string(pack), .memory = memory});
  ++packed_;
}

std::uint64_t PackCache::bytes() const {
  std::uint64_t bytes = 0;
  for (const KeptPack& pack : packs_) bytes += pack.memory.size();
  return bytes;
}

Result<> PackCache::write() const {
  make_cache_folder(path_.parent_path());
  MORACLE_TRY(make_room(path_, pack_file_bytes(key_, packs_), options_.limit));
  return write_pack_file(path_, key_, packs_, options_.stop);
}

void PackCache::finish() {
  if (packs_.empty()) return;
  if (packed_ == 0) return file_->touch();
  file_.reset();
  const auto write_and_tell = [this] {
    const Result<> written = guarded("write the cache", [this] { return write(); });
    if (!written.ok() && written.error().code != "cache.stopped") note("not written: " + written.error().message());
  };
  // Behind the first tokens where there may be one more thread, before them where not.
  const Result<> started = guarded("write the cache", [&]() -> Result<> {
    writer_ = std::jthread(write_and_tell);
    return Ok{};
  });
  if (!started.ok()) write_and_tell();
}

void PackCache::wait() {
  if (writer_.joinable()) writer_.join();
}

}  // namespace moracle
