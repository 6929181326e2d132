#include "api/layer/experts_layer.h"

#include <fmt/format.h>

#include <algorithm>
#include <numeric>

#include "api/edge/call.h"
#include "base/checked.h"
#include "base/first_error.h"
#include "base/generic/count.h"
#include "model/load/parallel_cut.h"
#include "scheme/slice.h"

namespace moracle::api {

namespace {

constexpr std::int64_t kMaxTokens = std::int64_t{1} << 22;
constexpr std::int64_t kMaxPairs = std::int64_t{1} << 26;  // of a token and an expert
constexpr std::int64_t kTokenTile = 16;

Result<const MoeSpec*> find_layer(const Plan& plan, std::int64_t layer) {
  const auto& layers = plan.spec().layers;
  const auto wrong = [&](std::string found) {
    return Error{.code = "experts.layer",
                 .file = plan.checkpoint().folder().string(),
                 .wanted = fmt::format("a layer with experts, from 0 to {}", layers.size() - 1),
                 .found = std::move(found)};
  };
  if (layer < 0 || layer >= narrow<std::int64_t>(layers.size())) return wrong(std::to_string(layer));
  const auto* const moe = std::get_if<MoeSpec>(&layers[count(layer)].feed_forward);
  if (moe == nullptr) return wrong(fmt::format("layer {}, which is dense", layer));
  return moe;
}

// By number in the layer: number in the slice, or -1.
Result<std::vector<std::int32_t>> local_numbers(const std::vector<std::int64_t>& chosen, std::int64_t experts) {
  std::vector<std::int32_t> local(count(experts), -1);
  for (std::size_t i = 0; i < chosen.size(); ++i) {
    const std::int64_t expert = chosen[i];
    const bool known = expert >= 0 && expert < experts;
    if (!known || local[count(expert)] >= 0) {
      return Error{.code = "experts.list",
                   .wanted = fmt::format("numbers from 0 to {}, each once", experts - 1),
                   .found = known ? fmt::format("{} twice", expert) : std::to_string(expert)};
    }
    local[count(expert)] = narrow<std::int32_t>(i);
  }
  return local;
}

// Columns whose order only their group index tells are known now.
Result<> check_order(const CanonicalExperts& whole, const KernelCard& winner, int tp) {
  if (whole.act_order && !winner.act_order) {
    return Error{.code = "config.contradiction",
                 .where = whole.name,
                 .wanted = "columns in the order of their groups, as the config says",
                 .found = "a group index of another order",
                 .advice = "desc_act or actorder in quantization_config tells of it"};
  }
  const bool ordered = std::all_of(whole.experts.begin(), whole.experts.end(),
                                   [](const auto& expert) { return expert.down.weight->spec().g_idx.empty(); });
  if (tp == 1 || ordered) return Ok{};
  return Error{.code = "plan.tp",
               .where = whole.name,
               .wanted = "input columns in the order of their groups",
               .found = fmt::format("tp {} gives a rank columns of every group (act-order)", tp)};
}

}  // namespace

Result<std::shared_ptr<ExpertsLayer>> ExpertsLayer::open(const Plan& plan, LayerRequest request,
                                                         std::shared_ptr<Pool> pool) {
  MORACLE_ASSIGN(const MoeSpec* const spec, find_layer(plan, request.layer));
  const std::size_t module = plan.index_of(spec->experts.name);
  const StoredExperts& stored = plan.opened(module).experts;
  MORACLE_TRY(check_experts_cut(stored, {.tp = request.tp}));
  std::shared_ptr<ExpertsLayer> layer(new ExpertsLayer);
  if (request.experts.empty()) {
    request.experts.resize(stored.experts.size());
    std::iota(request.experts.begin(), request.experts.end(), 0);
  }
  MORACLE_ASSIGN(layer->local_, local_numbers(request.experts, narrow<std::int64_t>(stored.experts.size())));
  layer->held_ = narrow<std::int64_t>(request.experts.size());
  layer->name_ = spec->experts.name;
  layer->problem_ = *plan.modules()[module].problem;
  layer->problem_.intermediate = stored.intermediate / request.tp;
  MORACLE_ASSIGN(layer->decision_,
                 decide_module(layer->name_, layer->problem_, plan.placement().host(), request.policy));
  MORACLE_ASSIGN(const KernelCard* const winner, winner_of(layer->decision_, layer->problem_));
  const KernelImplementation* const kernel = find_implementation(winner->id);
  if (kernel == nullptr || kernel->pack_experts == nullptr) {
    return Error{.code = "oracle.not_built",
                 .where = layer->name_,
                 .wanted = "a kernel that this build has",
                 .found = std::string(winner->id)};
  }
  MORACLE_ASSIGN(const CanonicalExperts whole, plan.read_experts(module));
  MORACLE_TRY(check_order(whole, *winner, request.tp));
  const std::int64_t width = layer->problem_.intermediate;
  const CanonicalExperts share =
      slice_experts(whole, {.experts = request.experts, .begin = width * request.tp_rank, .width = width});
  MORACLE_ASSIGN(const auto turn, pool->lock().acquire());
  auto packed = kernel->pack_experts(share, {.pool = pool->threads(), .activation = spec->activation});
  MORACLE_ASSIGN(layer->packed_, unless_changed(plan.checkpoint(), std::move(packed)));
  MORACLE_TRY(plan.checkpoint().verify_unchanged());
  layer->request_ = std::move(request);
  layer->pool_ = std::move(pool);
  return layer;
}

// What a call needs beside the kernel's own workspace.
struct ExpertsLayer::Scratch {
  std::span<std::int32_t> ids;
  std::span<float> weights, x, out;
};

ExpertsLayer::Scratch ExpertsLayer::lay_out(BumpArena& arena, std::int64_t tokens, std::int64_t top_k) const {
  const std::size_t pairs = count(tokens * top_k);
  const std::size_t values = count(tokens * problem_.hidden);
  return {.ids = arena.take<std::int32_t>(pairs),
          .weights = arena.take<float>(pairs),
          .x = arena.take<float>(values),
          .out = arena.take<float>(values)};
}

Result<std::size_t> ExpertsLayer::workspace_bytes(std::int64_t tokens, std::int64_t top_k) const {
  if (tokens < 0 || tokens > kMaxTokens)
    return wrong_argument("range", "tokens", fmt::format("0 to {}", kMaxTokens), std::to_string(tokens));
  if (top_k < 1 || top_k > experts())
    return wrong_argument("range", "top_k", fmt::format("1 to {}", experts()), std::to_string(top_k));
  if (tokens * top_k > kMaxPairs)
    return wrong_argument("range", "tokens", fmt::format("at most {} times an expert", kMaxPairs),
                          fmt::format("{} tokens, {} experts each", tokens, top_k));
  BumpArena arena = BumpArena::counting();
  static_cast<void>(lay_out(arena, tokens, top_k));
  return arena.used() + 2 * BumpArena::kAlignment + packed_->workspace_bytes(tokens, top_k, threads());
}

Result<> ExpertsLayer::run(const LayerCall& call) {
  MORACLE_ASSIGN(const std::size_t bytes, workspace_bytes(call.tokens, call.top_k));
  if (call.tokens == 0) return Ok{};
  MORACLE_ASSIGN(const auto turn, pool_->lock().acquire());
  std::span<std::byte> workspace = call.workspace;
  if (workspace.empty()) {
    MORACLE_ASSIGN(workspace, pool_->workspace(bytes));
  }
  const bool aligned = reinterpret_cast<std::uintptr_t>(workspace.data()) % BumpArena::kAlignment == 0;
  if (workspace.size() < bytes || !aligned) {
    return wrong_argument("workspace", "workspace",
                          fmt::format("{} bytes, aligned to {}", bytes, BumpArena::kAlignment),
                          aligned ? fmt::format("{} bytes", workspace.size()) : "another alignment");
  }
  return run_in(call, workspace);
}

Result<> ExpertsLayer::run_in(const LayerCall& call, std::span<std::byte> workspace) {
  ThreadPool& threads = pool_->threads();
  BumpArena arena(workspace);
  const Scratch scratch = lay_out(arena, call.tokens, call.top_k);
  const auto rest = workspace.subspan(static_cast<std::size_t>(
      round_up(narrow<std::int64_t>(arena.used()), narrow<std::int64_t>(BumpArena::kAlignment))));
  const std::int64_t hidden = problem_.hidden;
  // Rows that are written while others are still read are read first.
  const std::byte* const from = call.x.data;
  const std::byte* const to = call.out.data;
  const bool apart = from + call.x.extent() <= to || to + call.out.extent() <= from;
  const bool plain_x = call.x.plain() && apart;
  const bool plain_out = call.out.plain();
  const auto each_token = [&](auto body) {
    threads.parallel_for(ceil_div(call.tokens, kTokenTile), [&](std::int64_t tile, int) {
      for (std::int64_t t = tile * kTokenTile; t < std::min((tile + 1) * kTokenTile, call.tokens); ++t) body(t);
    });
  };
  std::atomic<std::int64_t> wrong{0};  // an id that is none
  each_token([&](std::int64_t t) {
    for (std::int64_t k = 0; k < call.top_k; ++k) {
      const std::int64_t id = integer_at(call.ids, t, k);
      const bool known = id >= -1 && id < experts();
      if (!known) wrong.store(id, std::memory_order_relaxed);
      scratch.ids[count(t * call.top_k + k)] = known && id >= 0 ? local_[count(id)] : -1;
    }
    read_row(call.weights, t, scratch.weights.data() + t * call.top_k);
    if (!plain_x) read_row(call.x, t, scratch.x.data() + t * hidden);
  });
  if (wrong != 0) return wrong_argument("id", "ids", fmt::format("-1 to {}", experts() - 1), std::to_string(wrong));
  float* const out = plain_out ? reinterpret_cast<float*>(const_cast<std::byte*>(to)) : scratch.out.data();
  Stream stream(threads);
  packed_->run({.stream = stream, .workspace = rest},
               {.tokens = call.tokens,
                .top_k = call.top_k,
                .x = plain_x ? reinterpret_cast<const float*>(from) : scratch.x.data(),
                .ids = scratch.ids.data(),
                .weights = scratch.weights.data()},
               out);
  if (!plain_out) each_token([&](std::int64_t t) { write_row(out + t * hidden, call.out, t); });
  return Ok{};
}

}  // namespace moracle::api
