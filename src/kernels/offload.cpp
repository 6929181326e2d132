#include "kernels/offload.h"

#include <algorithm>
#include <limits>
#include <utility>

#include "base/generic/bisect.h"
#include "base/generic/count.h"
#include "base/memory.h"
#include "kernels/pack_memory.h"

namespace moracle {

namespace {

// What comes out is no answer, whoever may read it before the error.
void fail(Stream& stream, std::span<float> out, Error error) {
  std::fill(out.begin(), out.end(), std::numeric_limits<float>::quiet_NaN());
  stream.fail(std::move(error));
}

// Where a call of experts finds what passes; on the host and on the device the offsets are the same.
struct ExpertsPassage {
  std::span<float> x;
  std::span<std::int32_t> ids;
  std::span<float> weights;
  std::span<float> out;
  std::size_t input_bytes = 0;

  ExpertsPassage(BumpArena& arena, std::int64_t tokens, std::int64_t top_k, std::int64_t hidden)
      : x(arena.take<float>(count(tokens * hidden))),
        ids(arena.take<std::int32_t>(count(tokens * top_k))),
        weights(arena.take<float>(count(tokens * top_k))),
        input_bytes(arena.used()) {
    out = arena.take<float>(count(tokens * hidden));
  }
};

class OffloadedExperts final : public PackedExperts {
 public:
  OffloadedExperts(std::unique_ptr<PackedExperts> experts, std::int64_t hidden, std::shared_ptr<GpuDevice> device)
      : device_(std::move(device)), experts_(std::move(experts)), hidden_(hidden) {}

  [[nodiscard]] std::size_t bytes() const override { return experts_->bytes(); }
  [[nodiscard]] std::span<const std::byte> expert(std::int64_t index) const override { return experts_->expert(index); }
  [[nodiscard]] std::size_t workspace_bytes(std::int64_t, std::int64_t, int) const override { return 0; }

  [[nodiscard]] StageBytes stage_bytes(std::int64_t tokens, std::int64_t top_k) const override {
    BumpArena counting = BumpArena::counting();
    const ExpertsPassage passage(counting, tokens, top_k, hidden_);
    const std::size_t ends = counting.used();
    return {.device = ends + experts_->workspace_bytes(tokens, top_k, 0) + BumpArena::kAlignment,
            .pinned = ends,
            .kept = experts_->kept_bytes()};
  }

  Result<> reserve(std::int64_t tokens, std::int64_t top_k) const override {
    if (tokens * std::max<std::int64_t>(top_k, 1) > std::numeric_limits<std::int32_t>::max() / 2) {
      return Error{.code = "device.batch",
                   .where = device_->name(),
                   .wanted = "a batch whose pairs 30 bits can count",
                   .found = std::to_string(tokens) + " tokens"};
    }
    const StageBytes bytes = stage_bytes(tokens, top_k);
    Result<> reserved = device_->reserve_stage(bytes.pinned, bytes.device);
    if (reserved.ok() || reserved.error().code != "device.memory") return reserved;
    return with_smaller_call(std::move(reserved).error(), tokens, top_k);
  }

  void run(const RunContext& context, const ExpertsInput& input, const Activations& out) const override {
    if (input.tokens == 0) return;
    const std::span<float> answer(out.f32(), count(input.tokens * hidden_));
    Stage& stage = device_->stage();
    BumpArena pinned(stage.pinned());
    const ExpertsPassage host(pinned, input.tokens, input.top_k, hidden_);
    BumpArena scratch(stage.scratch());
    const ExpertsPassage there(scratch, input.tokens, input.top_k, hidden_);
    const auto workspace = scratch.take<std::byte>(experts_->workspace_bytes(input.tokens, input.top_k, 0));
    if (host.out.empty() || there.out.empty() || workspace.empty()) {
      return fail(context.stream, answer, unreserved_batch(*device_, input.tokens));
    }
    std::copy_n(input.x.f32(), host.x.size(), host.x.begin());
    std::copy_n(input.ids, host.ids.size(), host.ids.begin());
    std::copy_n(input.weights, host.weights.size(), host.weights.begin());
    Stream& stream = stage.stream();
    stream.to_device(there.x.data(), host.x.data(), host.input_bytes);
    stage.begin();
    experts_->run({.stream = stream, .workspace = workspace},
                  {.tokens = input.tokens,
                   .top_k = input.top_k,
                   .x = there.x.data(),
                   .ids = there.ids.data(),
                   .weights = there.weights.data()},
                  there.out.data());
    stage.end();
    stream.to_host(host.out.data(), there.out.data(), host.out.size_bytes());
    if (auto done = stream.wait(); !done.ok()) return fail(context.stream, answer, std::move(done).error());
    std::copy(host.out.begin(), host.out.end(), answer.begin());
  }

 private:
  // The error of a call for which there was no room, with the largest one for which there is.
  [[nodiscard]] Error with_smaller_call(Error error, std::int64_t tokens, std::int64_t top_k) const {
    error.wanted += " of a call of " + std::to_string(tokens) + " tokens";
    const Result<std::uint64_t> free = device_->free_memory();
    if (!free.ok() || stage_bytes(tokens, top_k).device <= *free) return error;  // free, but not in one piece
    const std::int64_t fits =
        largest_that(tokens - 1, [&](std::int64_t fewer) { return stage_bytes(fewer, top_k).device <= *free; });
    if (fits > 0) {
      error.advice = "there is room for calls of up to " + std::to_string(fits) + " tokens, as of --context " +
                     std::to_string(fits) + "; else end other programs on this GPU, or use --device cpu";
    }
    return error;
  }

  std::shared_ptr<GpuDevice> device_;  // outlives the pack
  std::unique_ptr<PackedExperts> experts_;
  std::int64_t hidden_;
};

struct LinearPassage {
  std::span<float> x;
  std::span<float> y;

  LinearPassage(BumpArena& arena, std::int64_t tokens, std::int64_t in, std::int64_t out)
      : x(arena.take<float>(count(tokens * in))), y(arena.take<float>(count(tokens * out))) {}
};

class OffloadedLinear final : public PackedLinear {
 public:
  OffloadedLinear(std::unique_ptr<PackedLinear> linear, const MatrixSpec& matrix, std::shared_ptr<GpuDevice> device)
      : device_(std::move(device)), linear_(std::move(linear)), in_(matrix.cols), out_(matrix.rows) {}

  [[nodiscard]] std::size_t bytes() const override { return linear_->bytes(); }
  [[nodiscard]] std::size_t workspace_bytes(std::int64_t, int) const override { return 0; }

  Result<> reserve(std::int64_t tokens) const override {
    BumpArena counting = BumpArena::counting();
    const LinearPassage passage(counting, tokens, in_, out_);
    const std::size_t ends = counting.used();
    return device_->reserve_stage(ends, ends + linear_->workspace_bytes(tokens, 0) + BumpArena::kAlignment);
  }

  void run(const RunContext& context, std::int64_t tokens, const ConstActivations& x,
           const Activations& y) const override {
    if (tokens == 0) return;
    const std::span<float> answer(y.f32(), count(tokens * out_));
    Stage& stage = device_->stage();
    BumpArena pinned(stage.pinned());
    const LinearPassage host(pinned, tokens, in_, out_);
    BumpArena scratch(stage.scratch());
    const LinearPassage there(scratch, tokens, in_, out_);
    const auto workspace = scratch.take<std::byte>(linear_->workspace_bytes(tokens, 0));
    if (host.y.empty() || there.y.empty() || workspace.empty()) {
      return fail(context.stream, answer, unreserved_batch(*device_, tokens));
    }
    std::copy_n(x.f32(), host.x.size(), host.x.begin());
    Stream& stream = stage.stream();
    stream.to_device(there.x.data(), host.x.data(), host.x.size_bytes());
    linear_->run({.stream = stream, .workspace = workspace}, tokens, there.x.data(), there.y.data());
    stream.to_host(host.y.data(), there.y.data(), host.y.size_bytes());
    if (auto done = stream.wait(); !done.ok()) return fail(context.stream, answer, std::move(done).error());
    std::copy(host.y.begin(), host.y.end(), answer.begin());
  }

 private:
  std::shared_ptr<GpuDevice> device_;  // outlives the pack
  std::unique_ptr<PackedLinear> linear_;
  std::int64_t in_;
  std::int64_t out_;
};

}  // namespace

std::unique_ptr<PackedExperts> offload(std::unique_ptr<PackedExperts> experts, std::int64_t hidden,
                                       std::shared_ptr<GpuDevice> device) {
  return std::make_unique<OffloadedExperts>(std::move(experts), hidden, std::move(device));
}

std::unique_ptr<PackedLinear> offload(std::unique_ptr<PackedLinear> linear, const MatrixSpec& matrix,
                                      std::shared_ptr<GpuDevice> device) {
  return std::make_unique<OffloadedLinear>(std::move(linear), matrix, std::move(device));
}

Result<std::unique_ptr<PackedExperts>> pack_for_host(const KernelImplementation& kernel,
                                                     const CanonicalExperts& experts, const PackOptions& options) {
  MORACLE_ASSIGN(std::unique_ptr<PackedExperts> packed, kernel.pack_experts(experts, options));
  if (kernel.card->device == DeviceKind::cpu || kernel.card->kind != CardKind::own) return packed;
  return offload(std::move(packed), experts.hidden, options.device);
}

Result<std::unique_ptr<PackedLinear>> pack_for_host(const KernelImplementation& kernel, const CanonicalLinear& linear,
                                                    const PackOptions& options) {
  MORACLE_ASSIGN(std::unique_ptr<PackedLinear> packed, kernel.pack_linear(linear, options));
  if (kernel.card->device == DeviceKind::cpu || kernel.card->kind != CardKind::own) return packed;
  return offload(std::move(packed), linear.weight->spec(), options.device);
}

}  // namespace moracle
