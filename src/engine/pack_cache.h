// Packed layers kept on disk from one load to the next: a file for each model and choice of kernels. See docs/cache.md.
#pragma once

#include <atomic>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "engine/pack_file.h"
#include "kernels/kernel.h"
#include "machine/machine.h"
#include "model/model.h"

namespace moracle {

inline constexpr std::uint64_t kDefaultCacheLimit = std::uint64_t{64} << 30;

// $MORACLE_CACHE; unset: $XDG_CACHE_HOME/moracle, else ~/.cache/moracle. Empty, also where MORACLE_CACHE is set to
// nothing: there is no cache.
[[nodiscard]] std::filesystem::path default_cache_folder();

// Makes it where it is not there yet, for this user alone.
void make_cache_folder(const std::filesystem::path& folder);

// What tells this build of the kernels from every other; empty where the linker left no build ID.
[[nodiscard]] std::string program_identity();

// 16 hexadecimal digits for a text of any length.
[[nodiscard]] std::string file_name_for(const std::string& text);

struct PackCacheOptions {
  std::filesystem::path folder;                    // empty: no cache
  std::uint64_t limit = kDefaultCacheLimit;        // of all files together; the least recently used go first
  std::function<void(const std::string&)> note{};  // gets a line for people, also from another thread; may be empty
  std::function<bool()> stop{};                    // asked while a file is written; true gives it up. May be empty
};

// The store of one load. A file that is absent, of another key, cut, changed or unreadable means packing as without a
// cache; the packs are then written, in the background, while the model serves.
class PackCache final : public PackStore {
 public:
  // Null without a folder, and where files or program have nothing that tells them from others. `identity` is the
  // checkpoint's.
  static std::unique_ptr<PackCache> open(const PackCacheOptions& options, const std::string& identity,
                                         const Machine& machine, const LoadPlan& plan);
  ~PackCache() override;
  PackCache(const PackCache&) = delete;
  PackCache& operator=(const PackCache&) = delete;

  [[nodiscard]] bool restore(std::string_view pack, std::span<std::byte> memory, ThreadPool& pool) override;
  void keep(std::string_view pack, std::span<const std::byte> memory) override;

  // The load has succeeded: begins to write what had to be packed. All memory that went through the store must outlive
  // this object.
  void finish();
  // Until all is written, or given up.
  void wait();

  [[nodiscard]] const std::filesystem::path& path() const { return path_; }
  // Whether there is a file for this model, machine and program.
  [[nodiscard]] bool found() const { return file_.has_value(); }
  [[nodiscard]] std::uint64_t bytes() const;  // of all packs of this load
  // Whether nothing had to be packed.
  [[nodiscard]] bool used() const { return !packs_.empty() && packed_ == 0; }

 private:
  PackCache(PackCacheOptions options, std::filesystem::path path, std::string key)
      : options_(std::move(options)), path_(std::move(path)), key_(std::move(key)) {}
  void note(const std::string& text) const;
  Result<> write() const;

  PackCacheOptions options_;
  std::filesystem::path path_;
  std::string key_;
  std::optional<PackFile> file_;
  std::vector<KeptPack> packs_;  // all of this load, in its order
  std::size_t packed_ = 0;       // of those, the ones that had to be packed
  std::jthread writer_;
};

}  // namespace moracle
