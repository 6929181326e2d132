#include "device/workspace.h"

namespace moracle {

Result<> DeviceWorkspace::make_stream() {
  if (made_) return Ok{};
  if (gpu_ != nullptr) {
    MORACLE_ASSIGN(begin_, gpu_->make_event());
    MORACLE_ASSIGN(end_, gpu_->make_event());
  }
  MORACLE_ASSIGN(stream_, device_->make_stream());
  made_ = true;
  return Ok{};
}

Result<> DeviceWorkspace::reserve(std::size_t staging, std::size_t memory) {
  MORACLE_TRY(make_stream());
  if (staging > staging_.size()) {
    staging_ = StagingBuffer();
    const Device& copies = caller_ != nullptr ? *caller_ : *device_;
    MORACLE_ASSIGN(staging_, copies.allocate_staging(staging, "inputs and outputs"));
  }
  if (memory > memory_.size()) {
    memory_ = Buffer();
    MORACLE_ASSIGN(memory_, device_->allocate(memory, "intermediate results"));
  }
  return Ok{};
}

}  // namespace moracle
