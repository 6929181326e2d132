// How many experts of a model a bound of memory leaves room for.
#pragma once

#include <cstdint>
#include <optional>

#include "model/load/memory_plan.h"
#include "slots/expert_pool.h"

namespace moracle {

// What a load takes of the host under a bound. Bytes.
struct ExpertRoom {
  std::uint64_t weights = 0;       // all but routed experts, packed
  std::uint64_t experts = 0;       // all routed experts, packed
  std::uint64_t state = 0;         // for all sequences
  std::uint64_t workspace = 0;     // of one call
  std::uint64_t floor = 0;         // least bound: with the chosen experts of two layers, or with all
  std::uint64_t bound = 0;         // on all of it
  PoolSize pool{};                 // no slots: there is room for all
  std::int64_t prefill_chunk = 0;  // tokens of a prompt that a call takes; 0: as many as without a bound
  std::uint64_t chosen = 0;        // experts for a token, of all layers
  std::uint64_t stored = 0;        // bytes of an expert in the files, of several widths the mean

  // Without experts and slots.
  [[nodiscard]] std::uint64_t rest() const { return weights + state + workspace; }
  // That a token reads from the files, where `hits` of a hundred chosen experts are in slots.
  [[nodiscard]] std::uint64_t read_bytes(int hits) const {
    return chosen * stored * static_cast<std::uint64_t>(100 - hits) / 100;
  }
};

// As in LoadOptions.
struct RoomOptions {
  std::uint64_t memory = 0;
  std::size_t kv_memory = 0;
  std::size_t expert_slots = 0;
};

// What a load takes of one sequence of `call.context` and calls of `call.batch_tokens`. Without a number of bytes for
// states they have what is left where all experts fit, else an eighth of the bound, but at least that sequence. Reads
// no weight. Errors: "memory.device" with a GPU, "memory.kernel" where a kernel packs all experts of a layer at once
// and not all fit, "memory.floor" with what the load takes as its details, those of memory_plan.
Result<ExpertRoom> expert_room(const LoadPlan& plan, const RoomOptions& options, const MemoryPlanOptions& call);

// The same where nobody has set a bound and the host has `free` bytes, of which a tenth is left: no slots where all
// experts fit, where there are none, or where no kernel packs them one by one. `options.memory` is not read. Errors: as
// of expert_room.
Result<ExpertRoom> usual_room(const LoadPlan& plan, std::uint64_t free, const RoomOptions& options,
                              const MemoryPlanOptions& call);

// Bytes a second that the plan's experts are read at, measured for half a second. Empty: nothing can be measured, as of
// files that hold headers alone.
[[nodiscard]] std::optional<double> measure_expert_reads(const LoadPlan& plan);

}  // namespace moracle
