#include "slots/disk_reader.h"

#include <system_error>

#include "base/guarded.h"

namespace moracle {

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

void DiskReader::submit(ReadJob& job) {
  const std::size_t pieces = job.extents.pieces();
  job.error.emplace();
  job.left = pieces;
  if (threads_.empty()) {
    for (std::size_t i = 0; i < pieces; ++i) read({&job, i});
    return;
  }
  {
    const std::scoped_lock lock(mutex_);
    for (std::size_t i = 0; i < pieces; ++i) pieces_.push_back({&job, i});
  }
  submitted_.notify_all();
}

void DiskReader::wait(FunctionRef<bool()> enough) {
  std::unique_lock lock(mutex_);
  finished_.wait(lock, [&] { return enough(); });
}

void DiskReader::read(const Piece& piece) {
  ReadJob& job = *piece.job;
  job.error->keep(static_cast<std::int64_t>(piece.index),
                  guarded("read an expert", [&] { return job.extents.read(piece.index, checkpoint_, job.room); }));
  {
    const std::scoped_lock lock(mutex_);
    if (--job.left > 0) return;
  }
  finished_.notify_all();
}

void DiskReader::work() {
  for (;;) {
    Piece piece{};
    {
      std::unique_lock lock(mutex_);
      submitted_.wait(lock, [&] { return stop_ || !pieces_.empty(); });
      if (stop_) return;
      piece = pieces_.front();
      pieces_.pop_front();
    }
    read(piece);
  }
}

}  // namespace moracle
