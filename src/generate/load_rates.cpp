#include "generate/load_rates.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstring>
#include <utility>
#include <vector>

#include "base/checked.h"
#include "base/clock.h"
#include "base/memory.h"
#include "checkpoint/mapped_file.h"

namespace moracle {

namespace {

constexpr std::uint64_t kPiece = std::uint64_t{4} << 20;  // of one thread at a time
constexpr std::uint64_t kMost = std::uint64_t{1} << 30;

struct Filled {
  double rate = 0;    // bytes a second
  PageBuffer memory;  // to be held for as long as other memory is to be fresh
};

// Fills `pieces` pieces of fresh memory. `fill` returns false where it could not.
template <class Fill>
Filled fill_fresh(std::uint64_t pieces, ThreadPool& pool, Fill fill) {
  const Stopwatch watch;
  auto fresh = PageBuffer::allocate(pieces * kPiece);
  if (!fresh.ok() || pieces == 0) return {};
  std::atomic<bool> good{true};
  pool.parallel_for(narrow<std::int64_t>(pieces), [&](std::int64_t piece, int) {
    const auto p = static_cast<std::uint64_t>(piece);
    if (!fill(p, fresh->data() + p * kPiece)) good = false;
  });
  const double seconds = watch.seconds();
  return {.rate = good ? static_cast<double>(pieces * kPiece) / seconds : 0, .memory = std::move(*fresh)};
}

Filled copy(std::uint64_t pieces, ThreadPool& pool) {
  const std::uint64_t copied = std::max<std::uint64_t>(1, pieces / 4);
  auto source = PageBuffer::allocate(copied * kPiece);
  if (!source.ok()) return {};
  pool.parallel_for(narrow<std::int64_t>(copied), [&](std::int64_t piece, int) {
    std::memset(source->data() + static_cast<std::uint64_t>(piece) * kPiece, 1, kPiece);
  });
  return fill_fresh(pieces, pool, [&](std::uint64_t piece, std::byte* to) {
    std::memcpy(to, source->data() + piece % copied * kPiece, kPiece);
    return true;
  });
}

// Whole pieces of the files, one after the other.
struct Pieces {
  std::vector<FileDescriptor> files;
  std::vector<std::uint64_t> count;
  std::uint64_t all = 0;

  void add(const std::string& path) {
    FileDescriptor file(open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));
    struct stat status{};
    if (file.get() < 0 || fstat(file.get(), &status) != 0 || !S_ISREG(status.st_mode)) return;
    count.push_back(static_cast<std::uint64_t>(status.st_size) / kPiece);
    all += count.back();
    files.push_back(std::move(file));
  }
  // The file of a piece, and the piece's number in it.
  [[nodiscard]] std::pair<const FileDescriptor&, std::uint64_t> find(std::uint64_t piece) const {
    std::size_t file = 0;
    for (; piece >= count[file]; ++file) piece -= count[file];
    return {files[file], piece};
  }
};

// At most so many pieces, spread over the files.
class Sample {
 public:
  Sample(std::span<const std::string> paths, std::uint64_t most) {
    for (const std::string& path : paths) pieces_.add(path);
    size_ = std::min(most, pieces_.all);
  }
  [[nodiscard]] Filled read(ThreadPool& pool) const {
    return fill_fresh(size_, pool, [&](std::uint64_t piece, std::byte* to) {
      const auto [file, number] = find(piece);
      return file.read_at(number * kPiece, {to, kPiece}) == kPiece;
    });
  }
  // From the page cache.
  void drop() const {
    for (std::uint64_t piece = 0; piece < size_; ++piece) {
      const auto [file, number] = find(piece);
      posix_fadvise(file.get(), static_cast<off_t>(number * kPiece), kPiece, POSIX_FADV_DONTNEED);
    }
  }

 private:
  [[nodiscard]] std::pair<const FileDescriptor&, std::uint64_t> find(std::uint64_t piece) const {
    return pieces_.find(piece * pieces_.all / size_);
  }

  Pieces pieces_;
  std::uint64_t size_ = 0;
};

}  // namespace

LoadRates measure_load_rates(std::span<const std::string> files, std::uint64_t bytes, ThreadPool& pool) {
  const auto pieces = [&](std::uint64_t share) {
    return std::max<std::uint64_t>(1, std::min(bytes / share, kMost) / kPiece);
  };
  // Much memory, and none twice: what was just given back is not as fresh as what a load gets.
  const Filled copied = copy(pieces(4), pool);
  const Sample sample(files, pieces(16));
  const Filled some = sample.read(pool);
  if (some.rate > copied.rate / 3) return {.copy = copied.rate, .read = Sample(files, pieces(4)).read(pool).rate};
  sample.drop();
  return {.copy = copied.rate, .read = some.rate};
}

Result<double> measure_copy_rate(const GpuDevice& device) {
  constexpr std::size_t kBytes = std::size_t{64} << 20U;
  constexpr int kRounds = 8;
  MORACLE_ASSIGN(const StagingBuffer from, device.allocate_staging(kBytes, "a measurement of copies"));
  MORACLE_ASSIGN(const Buffer to, device.allocate(kBytes, "a measurement of copies"));
  MORACLE_ASSIGN(const Event begin, device.make_event());
  MORACLE_ASSIGN(const Event end, device.make_event());
  MORACLE_ASSIGN(Stream stream, device.make_stream());
  std::fill_n(from.data(), kBytes, std::byte{1});
  stream.to_device(to.data(), from.data(), kBytes);
  stream.record(begin);
  for (int round = 0; round < kRounds; ++round) stream.to_device(to.data(), from.data(), kBytes);
  stream.record(end);
  MORACLE_TRY(stream.wait());
  MORACLE_ASSIGN(const double seconds, device.seconds_between(begin, end));
  return static_cast<double>(kBytes) * kRounds / seconds;
}

}  // namespace moracle
