// A task takes some channels of one sequence through a call, so the bits depend on no other.
#include <algorithm>

#include "base/checked.h"
#include "base/generic/count.h"
#include "kernels/cpu/ops/cpu_ops.h"

namespace moracle::cpu {

namespace {

// Channels that one task carries through a call.
constexpr std::int64_t kChannelTile = 256;

// Some channels of one sequence.
class ChannelTile {
 public:
  ChannelTile(const ConvolutionArgs& args, const RecurrentSpan& span, std::int64_t first)
      : args_(args),
        span_(span),
        first_(first),
        size_(std::min(kChannelTile, args.shape.channels - first)),
        before_(reinterpret_cast<const float*>(args.states.block(span.before)) + first) {}

  void run(const VectorOps& ops) const {
    for (std::int64_t t = 0; t < span_.count; ++t) convolve(ops, t);
    keep();
  }

 private:
  [[nodiscard]] std::int64_t past() const { return args_.shape.kernel - 1; }
  // Of the call's token t, in x, times or gate.
  [[nodiscard]] const float* row(const float* of, std::int64_t t) const {
    return of + (span_.begin + t) * args_.shape.channels + first_;
  }

  // to += tap * the input of token t, which may lie before the call.
  void add_input(std::int64_t t, const float* tap, float* to) const {
    const float* const from = t < 0 ? before_ + (past() + t) * args_.shape.channels : row(args_.x, t);
    if (t < 0 || args_.times == nullptr) {
      for (std::int64_t c = 0; c < size_; ++c) to[c] += tap[c] * from[c];
      return;
    }
    const float* const times = row(args_.times, t);
    for (std::int64_t c = 0; c < size_; ++c) to[c] += tap[c] * (times[c] * from[c]);
  }

  void convolve(const VectorOps& ops, std::int64_t t) const {
    const std::int64_t channels = args_.shape.channels;
    float* const to = args_.out + (span_.begin + t) * channels + first_;
    if (args_.bias != nullptr) {
      std::copy_n(args_.bias + first_, size_, to);
    } else {
      std::fill_n(to, size_, 0.0F);
    }
    for (std::int64_t j = 0; j < args_.shape.kernel; ++j) {
      add_input(t - past() + j, args_.taps + j * channels + first_, to);
    }
    if (args_.shape.silu) ops.sigmoid_mul(to, to, to, size_);
    if (args_.gate != nullptr) ops.multiply(row(args_.gate, t), to, size_);
  }

  // The last inputs, for the next call.
  void keep() const {
    float* const after = reinterpret_cast<float*>(args_.states.block(span_.after)) + first_;
    for (std::int64_t i = 0; i < past(); ++i) {
      const std::int64_t t = span_.count - past() + i;
      float* const to = after + i * args_.shape.channels;
      std::copy_n(t < 0 ? before_ + (past() + t) * args_.shape.channels : row(args_.x, t), size_, to);
      if (t < 0 || args_.times == nullptr) continue;
      const float* const times = row(args_.times, t);
      for (std::int64_t c = 0; c < size_; ++c) to[c] *= times[c];
    }
  }

  const ConvolutionArgs& args_;
  const RecurrentSpan& span_;
  std::int64_t first_;
  std::int64_t size_;
  const float* before_;
};

}  // namespace

void CpuOps::convolution(const RunContext& context, const ConvolutionArgs& args) const {
  const std::int64_t tiles = ceil_div(args.shape.channels, kChannelTile);
  context.pool().parallel_for(args.span_count * tiles, [&](std::int64_t task, int) {
    const RecurrentSpan& span = args.spans[count(task / tiles)];
    if (span.count > 0) ChannelTile(args, span, task % tiles * kChannelTile).run(vector_);
  });
}

}  // namespace moracle::cpu
