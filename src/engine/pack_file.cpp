#include "engine/pack_file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <unistd.h>
#include <xxhash.h>
#if defined(__x86_64__)
#include <xxh_x86dispatch.h>
#endif

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <memory>

#include "base/checked.h"
#include "base/first_error.h"
#include "checkpoint/atomic_file.h"

namespace moracle {

namespace {

constexpr std::string_view kMagic = "moracle\n";
constexpr std::uint64_t kHeadBytes = 24;
constexpr std::uint64_t kPage = 4096;
constexpr std::uint64_t kMaxTable = std::uint64_t{64} << 20;
constexpr std::size_t kBlock = std::size_t{1} << 20;
// Of a block: checked while it is still in the second-level cache.
constexpr std::size_t kPiece = std::size_t{128} << 10;
// A huge page: two threads that meet in one would both clear one, and one of them in vain.
constexpr std::size_t kBlocksPerTask = 2;
// How far the system is asked to read ahead of what it had to fetch: a disk answers several requests at once. Of a file
// in the page cache nothing is asked: that costs a tenth of a read.
constexpr std::uint64_t kAhead = 32 * kBlock;

std::uint64_t checksum(std::span<const std::byte> bytes) {
  return XXH3_64bits(bytes.data(), bytes.size());
}

std::uint64_t page_ceil(std::uint64_t bytes) {
  return (bytes + kPage - 1) / kPage * kPage;
}

std::uint64_t blocks_of(std::uint64_t bytes) {
  return bytes / kBlock + (bytes % kBlock == 0 ? 0 : 1);
}

template <class Byte>
std::span<Byte> block_of(std::span<Byte> memory, std::size_t block) {
  return memory.subspan(block * kBlock, std::min(kBlock, memory.size() - block * kBlock));
}

template <class T>
void put(std::string& out, T value) {
  char bytes[sizeof value];
  std::memcpy(bytes, &value, sizeof value);
  out.append(bytes, sizeof value);
}

void put_text(std::string& out, std::string_view text) {
  put(out, narrow<std::uint32_t>(text.size()));
  out += text;
}

// Where the packs lie, and the table as it is in the end: only the checksums are missing.
struct Layout {
  std::uint64_t table = 0;
  std::vector<std::uint64_t> offsets;
  std::uint64_t size = 0;
};

Layout lay_out(std::string_view key, std::span<const KeptPack> packs) {
  Layout layout;
  layout.table = 4 + key.size() + 4;
  for (const KeptPack& pack : packs) layout.table += 4 + pack.name.size() + 16 + 8 * blocks_of(pack.memory.size());
  layout.size = kHeadBytes + layout.table;
  for (const KeptPack& pack : packs) {
    layout.offsets.push_back(page_ceil(layout.size));
    layout.size = layout.offsets.back() + pack.memory.size();
  }
  return layout;
}

bool read_all(const FileDescriptor& file, std::uint64_t offset, std::span<std::byte> bytes) {
  return file.read_at(offset, bytes) == bytes.size();
}

}  // namespace

// A cursor on the table; after the first thing that is missing everything else is, too.
class TableReader {
 public:
  explicit TableReader(std::span<const std::byte> bytes) : rest_(bytes) {}
  template <class T>
  T number() {
    T value = 0;
    const auto bytes = take(sizeof value);
    if (!bytes.empty()) std::memcpy(&value, bytes.data(), sizeof value);
    return value;
  }
  std::string_view text() {
    const auto bytes = take(number<std::uint32_t>());
    return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
  }
  // A pack that lies wholly inside a file of `size` bytes.
  PackFile::Entry entry(std::uint64_t size) {
    PackFile::Entry entry;
    entry.name = text();
    entry.offset = number<std::uint64_t>();
    entry.bytes = number<std::uint64_t>();
    const std::uint64_t blocks = blocks_of(entry.bytes);
    good_ = good_ && entry.offset <= size && entry.bytes <= size - entry.offset && blocks <= rest_.size() / 8;
    for (std::uint64_t i = 0; good_ && i < blocks; ++i) entry.sums.push_back(number<std::uint64_t>());
    return entry;
  }
  [[nodiscard]] bool good() const { return good_; }
  [[nodiscard]] bool done() const { return good_ && rest_.empty(); }

 private:
  std::span<const std::byte> take(std::size_t count) {
    good_ = good_ && count <= rest_.size();
    if (!good_) return {};
    const auto taken = rest_.first(count);
    rest_ = rest_.subspan(count);
    return taken;
  }
  std::span<const std::byte> rest_;
  bool good_ = true;
};

Error PackFile::broken(std::string found) const {
  return Error{.code = "cache.broken", .file = path_, .wanted = "packed layers", .found = std::move(found)};
}

Result<PackFile> PackFile::open(const std::filesystem::path& path, std::string_view key) {
  PackFile file;
  file.path_ = path.string();
  file.fd_ = FileDescriptor(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK));
  if (file.fd_.get() < 0) {
    const bool absent = errno == ENOENT || errno == ENOTDIR;
    Error error = file.broken(std::strerror(errno));
    if (absent) error.code = "cache.absent";
    return error;
  }
  struct stat status{};
  if (fstat(file.fd_.get(), &status) != 0) return file.broken(std::strerror(errno));
  if (!S_ISREG(status.st_mode) || status.st_uid != geteuid() || (status.st_mode & S_IWOTH) != 0)
    return file.broken("not a file of this user, or one that everybody can write");
  file.size_ = static_cast<std::uint64_t>(status.st_size);

  std::byte head[kHeadBytes];
  std::uint64_t table_bytes = 0;
  std::uint64_t table_sum = 0;
  if (file.size_ < kHeadBytes || !read_all(file.fd_, 0, head)) return file.broken("too few bytes");
  std::memcpy(&table_bytes, head + 8, 8);
  std::memcpy(&table_sum, head + 16, 8);
  if (std::memcmp(head, kMagic.data(), kMagic.size()) != 0) return file.broken("another kind of file");
  if (table_bytes > kMaxTable || table_bytes > file.size_ - kHeadBytes) return file.broken("a table beyond its end");
  std::vector<std::byte> table(table_bytes);
  if (!read_all(file.fd_, kHeadBytes, table) || checksum(table) != table_sum)
    return file.broken("a table whose checksum differs");

  TableReader reader(table);
  if (reader.text() != key) {
    Error error = file.broken("those of another model, machine or program");
    error.code = "cache.other";
    return error;
  }
  const auto count = reader.number<std::uint32_t>();
  for (std::uint32_t i = 0; reader.good() && i < count; ++i) file.entries_.push_back(reader.entry(file.size_));
  if (!reader.done()) return file.broken("a table that does not fit its file");
  return file;
}

const PackFile::Entry* PackFile::find(std::string_view pack) const {
  const auto it =
      std::find_if(entries_.begin(), entries_.end(), [&](const Entry& entry) { return entry.name == pack; });
  return it == entries_.end() ? nullptr : &*it;
}

bool PackFile::has(std::string_view pack, std::size_t bytes) const {
  const Entry* const entry = find(pack);
  return entry != nullptr && entry->bytes == bytes;
}

// What the page cache has of `bytes` from its start on, without waiting for a disk.
std::size_t PackFile::read_cached(std::uint64_t offset, std::span<std::byte> bytes) const {
  const iovec part{bytes.data(), bytes.size()};
  const ssize_t got = preadv2(fd_.get(), &part, 1, static_cast<off_t>(offset), RWF_NOWAIT);
  return got < 0 ? 0 : static_cast<std::size_t>(got);
}

bool PackFile::read_block(const Entry& entry, std::size_t block, std::span<std::byte> memory) const {
  std::uint64_t at = entry.offset + block * kBlock;
  const std::unique_ptr<XXH3_state_t, decltype(&XXH3_freeState)> sum(XXH3_createState(), &XXH3_freeState);
  if (sum == nullptr) return false;
  XXH3_64bits_reset(sum.get());
  for (std::span<std::byte> rest = block_of(memory, block); !rest.empty();) {
    const std::span<std::byte> piece = rest.first(std::min(kPiece, rest.size()));
    const std::size_t cached = read_cached(at, piece);
    if (cached < piece.size()) {
      if (at + kAhead < size_) readahead(fd_.get(), static_cast<off64_t>(at + kAhead), kPiece);
      if (!read_all(fd_, at + cached, piece.subspan(cached))) return false;
    }
    XXH3_64bits_update(sum.get(), piece.data(), piece.size());
    at += piece.size();
    rest = rest.subspan(piece.size());
  }
  return XXH3_64bits_digest(sum.get()) == entry.sums[block];
}

Result<> PackFile::read(std::string_view pack, std::span<std::byte> memory, ThreadPool& pool) const {
  const Entry* const entry = find(pack);
  if (entry == nullptr || entry->bytes != memory.size()) return broken("no such pack");
  FirstError failed;
  const std::size_t blocks = entry->sums.size();
  pool.parallel_for(narrow<std::int64_t>((blocks + kBlocksPerTask - 1) / kBlocksPerTask), [&](std::int64_t task, int) {
    const std::size_t first = static_cast<std::size_t>(task) * kBlocksPerTask;
    for (std::size_t block = first; block < std::min(first + kBlocksPerTask, blocks); ++block) {
      if (failed.failed()) return;
      if (read_block(*entry, block, memory)) continue;
      failed.keep(task, broken("block " + std::to_string(block) + " of " + entry->name + " differs"));
    }
  });
  return failed.take();
}

void PackFile::touch() const {
  futimens(fd_.get(), nullptr);
}

std::uint64_t pack_file_bytes(std::string_view key, std::span<const KeptPack> packs) {
  return lay_out(key, packs).size;
}

Result<> write_pack_file(const std::filesystem::path& path, std::string_view key, std::span<const KeptPack> packs,
                         const std::function<bool()>& stop) {
  const Layout layout = lay_out(key, packs);
  MORACLE_ASSIGN(AtomicFile file, AtomicFile::create(path, layout.size));
  std::string table;
  put_text(table, key);
  put(table, narrow<std::uint32_t>(packs.size()));
  for (std::size_t i = 0; i < packs.size(); ++i) {
    const std::span<const std::byte> memory = packs[i].memory;
    put_text(table, packs[i].name);
    put(table, layout.offsets[i]);
    put(table, std::uint64_t{memory.size()});
    for (std::size_t block = 0; block < blocks_of(memory.size()); ++block) {
      if (stop && stop()) return Error{.code = "cache.stopped", .file = path.string()};
      const auto bytes = block_of(memory, block);
      put(table, checksum(bytes));
      MORACLE_TRY(file.write_at(layout.offsets[i] + block * kBlock, bytes));
    }
  }
  std::string head(kMagic);
  put(head, std::uint64_t{table.size()});
  put(head, checksum(std::as_bytes(std::span(table))));
  MORACLE_TRY(file.write_at(0, std::as_bytes(std::span(head))));
  MORACLE_TRY(file.write_at(kHeadBytes, std::as_bytes(std::span(table))));
  return file.commit();
}

}  // namespace moracle
