#include "model/forward/result.h"

#include "base/generic/count.h"

namespace moracle {

ForwardResult::Arrays ForwardResult::take(BumpArena& arena, const ResultSize& size) {
  Arrays arrays;
  arrays.counts = arena.take<std::uint32_t>(count(size.counts)).data();
  arrays.failed_layer = arena.take<std::int32_t>(count(size.tokens)).data();
  arrays.bad_tokens = arena.take<std::uint8_t>(count(size.tokens)).data();
  arrays.bad_rows = arena.take<std::uint8_t>(count(size.head_rows)).data();
  arrays.ranked = arena.take<RankedOutput>(count(size.ranked)).data();
  arrays.ids = arena.take<std::int32_t>(count(size.samples)).data();
  arrays.logprobs = arena.take<double>(count(size.samples)).data();
  arrays.tops = arena.take<TokenLogprob>(count(size.tops)).data();
  return arrays;
}

std::size_t ForwardResult::bytes(const ResultSize& size) {
  BumpArena counting = BumpArena::counting();
  static_cast<void>(take(counting, size));
  return counting.used() + BumpArena::kAlignment;
}

Result<bool> ForwardResult::reserve(const ResultSize& size) {
  return memory_.reserve(device_, bytes(size), "results of a call");
}

void ForwardResult::lay_out(const ResultSize& size) {
  BumpArena arena(memory_.image());
  images_ = take(arena, size);
  used_ = arena.used();
  first_read_ = size.counted ? 0 : count(size.counts) * sizeof *images_.counts;
  BumpArena there(memory_.memory());
  on_device_ = take(there, size);
}

}  // namespace moracle
