// What one forward call brings back from the device, in one copy.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "base/memory.h"
#include "kernels/args/rank.h"
#include "kernels/args/sample.h"
#include "kernels/kernel.h"
#include "model/forward/memory.h"

namespace moracle {

struct ResultSize {
  std::int64_t counts = 0;  // numbers of ExpertCounts
  bool counted = false;     // whether they are read
  std::int64_t tokens = 0;
  std::int64_t head_rows = 0;
  std::int64_t ranked = 0;   // outputs of all ranks
  std::int64_t samples = 0;  // rows
  std::int64_t tops = 0;     // of all samples
};

class ForwardResult {
 public:
  // Those up to bad_rows have addresses that follow from counts, tokens and head_rows alone.
  struct Arrays {
    std::uint32_t* counts = nullptr;       // [counts]
    std::int32_t* failed_layer = nullptr;  // [tokens], as of DeviceStatus
    std::uint8_t* bad_tokens = nullptr;    // [tokens]: whether a hidden state behind the last layer is not finite
    std::uint8_t* bad_rows = nullptr;      // [head_rows]: whether a logit is not finite
    RankedOutput* ranked = nullptr;        // [ranked]
    std::int32_t* ids = nullptr;           // [samples], as of SampleArgs
    double* logprobs = nullptr;            // [samples]
    TokenLogprob* tops = nullptr;          // [tops]
  };

  explicit ForwardResult(const Device& device) : device_(device) {}

  // Room for calls of a size. True: addresses have changed. Errors: those of MirroredMemory::reserve.
  Result<bool> reserve(const ResultSize& size);
  // Whether there is that room.
  [[nodiscard]] bool has_room(const ResultSize& size) const { return bytes(size) <= memory_.image().size(); }
  // What reserve() makes sure of.
  [[nodiscard]] static std::size_t bytes(const ResultSize& size);
  // Lays out the next call, for which there is room.
  void lay_out(const ResultSize& size);
  void download(Stream& stream) const { memory_.download(stream, first_read_, used_); }
  [[nodiscard]] const Arrays& on_device() const { return on_device_; }
  // What download() has brought, once its stream was waited for.
  [[nodiscard]] const Arrays& read() const { return images_; }

 private:
  static Arrays take(BumpArena& arena, const ResultSize& size);

  const Device& device_;
  MirroredMemory memory_;
  std::size_t first_read_ = 0;  // bytes before it stay on the device
  std::size_t used_ = 0;
  Arrays images_;
  Arrays on_device_;
};

}  // namespace moracle
