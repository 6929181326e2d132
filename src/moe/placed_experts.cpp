#include "moe/placed_experts.h"

#include <algorithm>
#include <functional>
#include <limits>
#include <optional>
#include <string>
#include <utility>

#include "base/generic/bisect.h"
#include "base/generic/count.h"
#include "base/memory.h"
#include "kernels/pack_memory.h"

namespace moracle {

namespace {

// Where a call finds what crosses; on the host and on the device the offsets are the same.
struct CrossingArrays {
  std::span<float> x;
  std::span<std::int32_t> ids;
  std::span<float> weights;
  std::span<float> out;
  std::size_t input_bytes = 0;

  CrossingArrays(BumpArena& arena, std::int64_t tokens, std::int64_t top_k, std::int64_t hidden)
      : x(arena.take<float>(count(tokens * hidden))),
        ids(arena.take<std::int32_t>(count(tokens * top_k))),
        weights(arena.take<float>(count(tokens * top_k))),
        input_bytes(arena.used()) {
    out = arena.take<float>(count(tokens * hidden));
  }
};

// One call in a device's workspace.
struct Crossing {
  CrossingArrays host;
  CrossingArrays device;
  std::span<std::byte> workspace;  // of the pack

  [[nodiscard]] bool reserved() const { return !host.out.empty() && !device.out.empty() && !workspace.empty(); }
};

Crossing lay_out(const PlacedExperts::Part& part, std::int64_t tokens, std::int64_t top_k, std::int64_t hidden) {
  BumpArena staging(part.elsewhere->staging());
  BumpArena memory(part.elsewhere->memory());
  Crossing crossing{
      .host = {staging, tokens, top_k, hidden}, .device = {memory, tokens, top_k, hidden}, .workspace = {}};
  crossing.workspace = memory.take<std::byte>(part.pack->workspace_bytes(tokens, top_k, part.elsewhere->threads()));
  return crossing;
}

// Makes numbers of the layer those of the pack.
void renumber(const PlacedExperts::Part& part, std::span<std::int32_t> ids) {
  if (part.numbers.empty()) return;
  for (std::int32_t& id : ids) id = id >= 0 && id < std::ssize(part.numbers) ? part.numbers[count(id)] : -1;
}

// Brings a call's inputs to the host.
void fetch(const RunContext& context, const ExpertsInput& input, const CrossingArrays& to) {
  context.stream.to_host(to.x.data(), input.x.f32(), to.x.size_bytes());
  context.stream.to_host(to.ids.data(), input.ids, to.ids.size_bytes());
  context.stream.to_host(to.weights.data(), input.weights, to.weights.size_bytes());
}

void enqueue(const PlacedExperts::Part& part, const Crossing& crossing, std::int64_t tokens, std::int64_t top_k) {
  const CrossingArrays& host = crossing.host;
  const CrossingArrays& there = crossing.device;
  renumber(part, host.ids);
  Stream& stream = part.elsewhere->stream();
  stream.to_device(there.x.data(), host.x.data(), host.input_bytes);
  part.elsewhere->start_clock();
  part.pack->run(
      {.stream = stream, .workspace = crossing.workspace},
      {.tokens = tokens, .top_k = top_k, .x = there.x.data(), .ids = there.ids.data(), .weights = there.weights.data()},
      there.out.data());
  part.elsewhere->stop_clock();
  stream.to_host(host.out.data(), there.out.data(), host.out.size_bytes());
}

}  // namespace

PlacedExperts::PlacedExperts(std::unique_ptr<PackedExperts> pack) {
  parts_.push_back({.pack = std::move(pack)});
}

PlacedExperts::PlacedExperts(std::unique_ptr<PackedExperts> pack, std::shared_ptr<DeviceWorkspace> elsewhere,
                             std::int64_t hidden)
    : hidden_(hidden) {
  parts_.push_back({.pack = std::move(pack), .elsewhere = std::move(elsewhere)});
}

std::size_t PlacedExperts::bytes() const {
  std::size_t bytes = 0;
  for (const Part& part : parts_) bytes += part.pack->bytes();
  return bytes;
}

std::size_t PlacedExperts::workspace_bytes(std::int64_t tokens, std::int64_t top_k, int threads) const {
  std::size_t bytes = 0;
  for (const Part& part : parts_) {
    if (part.elsewhere != nullptr) continue;
    const std::size_t ids = part.numbers.empty() ? 0 : BumpArena::cost<std::int32_t>(count(tokens * top_k));
    bytes = std::max(bytes, ids + part.pack->workspace_bytes(tokens, top_k, threads));
  }
  return bytes;
}

CallBytes PlacedExperts::call_bytes(const DeviceWorkspace& of, std::int64_t tokens, std::int64_t top_k) const {
  for (const Part& part : parts_) {
    if (part.elsewhere.get() != &of) continue;
    BumpArena counting = BumpArena::counting();
    const CrossingArrays arrays(counting, tokens, top_k, hidden_);
    const std::size_t crossing = counting.used();
    const std::size_t workspace = part.pack->workspace_bytes(tokens, top_k, of.threads());
    return {.device = crossing + workspace + BumpArena::kAlignment,
            .staging = crossing,
            .persistent = part.pack->kept_bytes()};
  }
  return {};
}

void PlacedExperts::begin(const RunContext& context, const ExpertsInput& input, float* out) const {
  if (input.tokens == 0) return;
  begin_elsewhere(context, input);
  const auto own = std::ranges::find_if(parts_, [](const Part& part) { return part.elsewhere == nullptr; });
  if (own == parts_.end()) return;
  if (own->numbers.empty()) return own->pack->run(context, input, out);
  BumpArena arena(context.workspace);
  const auto ids = arena.take<std::int32_t>(count(input.tokens * input.top_k));
  std::copy_n(input.ids, ids.size(), ids.begin());
  renumber(*own, ids);
  ExpertsInput numbered = input;
  numbered.ids = ids.data();
  RunContext rest = context;
  rest.workspace = arena.take<std::byte>(own->pack->workspace_bytes(input.tokens, input.top_k, context.threads()));
  own->pack->run(rest, numbered, out);
}

// Calls for which there is no room are told by finish().
void PlacedExperts::begin_elsewhere(const RunContext& context, const ExpertsInput& input) const {
  bool any = false;
  for (const Part& part : parts_) {
    if (part.elsewhere == nullptr) continue;
    const Crossing crossing = lay_out(part, input.tokens, input.top_k, hidden_);
    if (crossing.reserved()) fetch(context, input, crossing.host);
    any = true;
  }
  if (!any) return;
  if (!context.stream.on_host()) {
    if (Result<> fetched = context.stream.wait(); !fetched.ok()) return context.stream.fail(std::move(fetched).error());
  }
  for (const Part& part : parts_) {
    if (part.elsewhere == nullptr) continue;
    const Crossing crossing = lay_out(part, input.tokens, input.top_k, hidden_);
    if (crossing.reserved()) enqueue(part, crossing, input.tokens, input.top_k);
  }
}

void PlacedExperts::finish(const RunContext& context, std::int64_t tokens, std::int64_t top_k, float* out) const {
  if (tokens == 0) return;
  const std::size_t size = count(tokens * hidden_);
  std::span<float> sums;  // on the host; empty: none yet
  const bool own = std::ranges::any_of(parts_, [](const Part& part) { return part.elsewhere == nullptr; });
  if (own) sums = {out, size};
  std::optional<Error> failed;
  for (const Part& part : parts_) {
    if (part.elsewhere == nullptr) continue;
    const Crossing crossing = lay_out(part, tokens, top_k, hidden_);
    Result<> done = crossing.reserved() ? part.elsewhere->stream().wait()
                                        : Result<>(unreserved_batch(part.elsewhere->device(), tokens));
    if (!done.ok()) {
      failed = std::move(done).error();
    } else if (sums.empty()) {
      sums = crossing.host.out;
    } else {
      std::transform(sums.begin(), sums.end(), crossing.host.out.begin(), sums.begin(), std::plus<>());
    }
  }
  if (failed) {
    context.stream.fill(out, 0xFF, size * sizeof(float));  // NaN: no answer, whoever may read it before the error
    context.stream.fail(*std::move(failed));
  } else if (!own) {
    context.stream.to_device(out, sums.data(), sums.size_bytes());
  }
}

PlacedExperts place(const KernelCard& card, std::unique_ptr<PackedExperts> pack, std::int64_t hidden,
                    std::shared_ptr<DeviceWorkspace> gpu) {
  // An external card's pack is run on the host, for proof.
  const bool elsewhere = card.device != DeviceKind::cpu && card.kind == CardKind::native;
  if (!elsewhere) return {std::move(pack)};
  return {std::move(pack), std::move(gpu), hidden};
}

Result<> reserve_calls(DeviceWorkspace& workspace, std::int64_t tokens, std::int64_t top_k,
                       FunctionRef<CallBytes(std::int64_t)> bytes) {
  if (tokens * std::max<std::int64_t>(top_k, 1) > std::numeric_limits<std::int32_t>::max() / 2) {
    return Error{.code = "device.batch",
                 .where = workspace.device().name(),
                 .wanted = "a batch whose pairs 30 bits can count",
                 .found = std::to_string(tokens) + " tokens"};
  }
  const CallBytes wanted = bytes(tokens);
  Result<> reserved = workspace.reserve(wanted.staging, wanted.device);
  if (reserved.ok() || reserved.error().code != "device.memory") return reserved;
  Error error = std::move(reserved).error();
  error.wanted += " of a call of " + std::to_string(tokens) + " tokens";
  const Result<std::uint64_t> free = workspace.gpu()->room();
  if (!free.ok() || wanted.device <= *free) return error;  // free, but not in one piece
  const std::int64_t fits = largest_that(tokens - 1, [&](std::int64_t fewer) { return bytes(fewer).device <= *free; });
  if (fits > 0) {
    error.advice = "there is room for calls of up to " + std::to_string(fits) + " tokens, as of --context " +
                   std::to_string(fits) + "; else end other programs on this GPU, or use --device cpu";
  }
  return error;
}

}  // namespace moracle
