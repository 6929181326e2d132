#include "model/forward/result.h"

#include "base/generic/count.h"

namespace moracle {

ForwardResult::Arrays ForwardResult::take(BumpArena& arena, const ResultSize& size) {
  Arrays arrays;
  arrays.failed_layer = arena.take<std::int32_t>(count(size.tokens)).data();
  arrays.bad_tokens = arena.take<std::uint8_t>(count(size.tokens)).data();
  arrays.bad_rows = arena.take<std::uint8_t>(count(size.head_rows)).data();
  arrays.ranked = arena.take<RankedOutput>(count(size.ranked)).data();
  arrays.counts = arena.take<std::uint32_t>(count(size.counts)).data();
  arrays.ids = arena.take<std::int32_t>(count(size.samples)).data();
  arrays.logprobs = arena.take<double>(count(size.samples)).data();
  arrays.tops = arena.take<TokenLogprob>(count(size.tops)).data();
  return arrays;
}

Result<bool> ForwardResult::reserve(const ResultSize& size) {
  BumpArena counting = BumpArena::counting();
  static_cast<void>(take(counting, size));
  return memory_.reserve(device_, counting.used() + BumpArena::kAlignment, "results of a call");
}

void ForwardResult::lay_out(const ResultSize& size) {
  BumpArena arena(memory_.image());
  images_ = take(arena, size);
  used_ = arena.used();
  on_device_ = {.failed_layer = memory_.on_device(images_.failed_layer),
                .bad_tokens = memory_.on_device(images_.bad_tokens),
                .bad_rows = memory_.on_device(images_.bad_rows),
                .ranked = memory_.on_device(images_.ranked),
                .counts = memory_.on_device(images_.counts),
                .ids = memory_.on_device(images_.ids),
                .logprobs = memory_.on_device(images_.logprobs),
                .tops = memory_.on_device(images_.tops)};
}

}  // namespace moracle
