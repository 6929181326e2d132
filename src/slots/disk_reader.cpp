#include "slots/disk_reader.h"

#include <system_error>

#include "base/guarded.h"

namespace moracle {

DiskReader::DiskReader(const Checkpoint& checkpoint, int threads) : checkpoint_(checkpoint) {
  try {
    for (int i = 0; i < threads; ++i) threads_.emplace_back([this] { work(); });
  } catch (const std::system_error&) {  // those that were started are enough
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
  job.done = false;
  if (threads_.empty()) return finish(job);
  {
    const std::scoped_lock lock(mutex_);
    jobs_.push_back(&job);
  }
  submitted_.notify_one();
}

void DiskReader::wait(FunctionRef<bool()> enough) {
  std::unique_lock lock(mutex_);
  finished_.wait(lock, [&] { return enough(); });
}

void DiskReader::finish(ReadJob& job) {
  job.result = guarded("read an expert", [&] { return job.extents.read(checkpoint_, job.room); });
  {
    const std::scoped_lock lock(mutex_);
    job.done = true;
  }
  finished_.notify_all();
}

void DiskReader::work() {
  for (;;) {
    ReadJob* job = nullptr;
    {
      std::unique_lock lock(mutex_);
      submitted_.wait(lock, [&] { return stop_ || !jobs_.empty(); });
      if (stop_) return;
      job = jobs_.front();
      jobs_.pop_front();
    }
    finish(*job);
  }
}

}  // namespace moracle
