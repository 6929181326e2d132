#include "slots/disk_reader.h"

#include <algorithm>
#include <iterator>
#include <system_error>

#include "base/guarded.h"

namespace moracle {

namespace {

// Threads that read ahead at a time: whoever comes to wait finds the disk busy with so many pieces.
constexpr int kAhead = 2;

}  // namespace

DiskReader::DiskReader(const Checkpoint& checkpoint, int threads) : checkpoint_(checkpoint) {
  for (int i = 0; i < threads; ++i) {
    try {
      threads_.emplace_back([this] { work(); });
    } catch (const std::system_error&) {
      return;  // those that were started are enough
    }
  }
}

DiskReader::~DiskReader() {
  {
    const std::scoped_lock lock(mutex_);
    stop_ = true;
  }
  submitted_.notify_all();
}

void DiskReader::submit(ReadJob& job, ReadWhen when) {
  const std::size_t pieces = job.extents.pieces();
  job.error.emplace();
  job.left = pieces;
  if (threads_.empty()) {
    for (std::size_t i = 0; i < pieces; ++i) read({&job, i});
    return;
  }
  {
    const std::scoped_lock lock(mutex_);
    std::deque<Piece>& queue = when == ReadWhen::now ? pieces_ : ahead_;
    for (std::size_t i = 0; i < pieces; ++i) queue.push_back({&job, i});
  }
  submitted_.notify_all();
}

void DiskReader::hasten(ReadJob& job) {
  {
    const std::scoped_lock lock(mutex_);
    const auto of_job = [&](const Piece& piece) { return piece.job == &job; };
    std::ranges::copy_if(ahead_, std::back_inserter(pieces_), of_job);
    std::erase_if(ahead_, of_job);
  }
  submitted_.notify_all();
}

void DiskReader::drop(ReadJob& job) {
  const std::scoped_lock lock(mutex_);
  job.left -= std::erase_if(ahead_, [&](const Piece& piece) { return piece.job == &job; });
}

void DiskReader::wait(FunctionRef<bool()> enough) {
  std::unique_lock lock(mutex_);
  finished_.wait(lock, [&] { return enough(); });
}

void DiskReader::read(const Piece& piece) {
  ReadJob& job = *piece.job;
  job.error->keep(static_cast<std::int64_t>(piece.index),
                  guarded("read an expert", [&] { return job.extents.read(piece.index, checkpoint_, job.room); }));
  bytes_ += job.extents.bytes(piece.index);
  {
    const std::scoped_lock lock(mutex_);
    if (--job.left > 0) return;
  }
  finished_.notify_all();
}

bool DiskReader::has_piece() const {
  return !pieces_.empty() || (!ahead_.empty() && reading_ahead_ < kAhead);
}

void DiskReader::work() {
  std::unique_lock lock(mutex_);
  for (;;) {
    submitted_.wait(lock, [&] { return stop_ || has_piece(); });
    if (stop_) return;
    const bool ahead = pieces_.empty();
    std::deque<Piece>& queue = ahead ? ahead_ : pieces_;
    const Piece piece = queue.front();
    queue.pop_front();
    if (ahead) ++reading_ahead_;
    lock.unlock();
    read(piece);
    lock.lock();
    if (ahead) --reading_ahead_;
  }
}

}  // namespace moracle
