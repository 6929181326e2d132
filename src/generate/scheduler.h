// Continuous batching: many requests share a model, each step one forward pass.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "base/result.h"
#include "base/thread_pool.h"
#include "generate/request.h"
#include "model/model.h"

namespace moracle {

struct SchedulerOptions {
  std::int64_t context = 0;              // most tokens of prompt and answer; 0: what the model can hold
  std::int64_t max_running = 0;          // requests; 0: Model::decode_sequences()
  std::int64_t max_running_per_key = 0;  // requests; 0: no bound of its own
  std::int64_t max_queue = 1024;         // waiting requests
  std::int64_t max_queue_tokens = 0;     // prompt tokens of waiting requests; 0: no bound
  double step_ms = 200;                  // of prompts in a step, by their measured rate; tenfold where nobody decodes
  std::int64_t min_prefill = 32;         // prompt tokens of a step, where there are any to take
  std::int64_t max_prefill = 0;          // 0: Model::prefill_chunk()
  bool reuse_prefixes = true;
  bool share_prefixes = false;  // among keys, too: who asks can tell by the time what others asked
};

struct SchedulerStatus {
  std::int64_t running = 0;
  std::int64_t waiting = 0;
  std::int64_t deferred = 0;             // of these, that are held, or whose key has as many running as it may
  std::int64_t waiting_tokens = 0;       // of their prompts
  std::int64_t kv_bytes = 0;             // taken: by running requests and by stored prefixes
  std::int64_t kv_prefix_bytes = 0;      // of those, held by stored prefixes alone: given up when they are needed
  std::int64_t kv_budget = 0;            // bytes
  std::optional<ExpertSlots> experts{};  // of the model; empty: all are in memory
  // Since the scheduler was made.
  std::uint64_t steps = 0;
  std::uint64_t prompt_tokens = 0;   // computed, again after a preemption
  std::uint64_t cached_tokens = 0;   // taken from stored prefixes
  std::uint64_t prefix_queries = 0;  // prompt tokens that were looked up
  std::uint64_t generated_tokens = 0;
  std::uint64_t preemptions = 0;
  std::uint64_t ended[4] = {};  // by RequestEnd
  // Of the last step.
  std::int64_t step_prompt_tokens = 0;
  std::int64_t step_decodes = 0;  // requests that got one token more
  double step_seconds = 0;
  double prefill_rate = 0;     // tokens a second, smoothed; 0: not measured yet
  double request_seconds = 0;  // of steps, between two requests that end, smoothed; 0: none has ended
};

// Memory is that of the model's pool (LoadOptions::kv_memory). Where it runs out, stored prefixes are given up, the
// least recently used first; then the youngest requests are put back and computed again later, each at most
// kPreemptions times, the oldest never.
//
// No thread of its own beside the model's pool: all calls come from one thread, the one that drives step(). The model,
// its pool and the sinks outlive the scheduler.
//
// The same request gives the same tokens and log-probabilities whatever else runs, as far as the model's kernels are
// batch-invariant (Policy::batch_invariant).
class Scheduler {
 public:
  static constexpr std::int64_t kPreemptions = 3;

  Scheduler(Model& model, ThreadPool& pool, const SchedulerOptions& options);
  ~Scheduler();
  Scheduler(const Scheduler&) = delete;
  Scheduler& operator=(const Scheduler&) = delete;

  // Queues a request. Errors, before anything is allocated for it:
  //   "prompt.empty"         no prompt, or one that the caller's state holds whole
  //   "model.token"          an id of prompt, end_ids, stop_ids or logit_bias that the vocabulary lacks
  //   "model.context"        prompt + max_tokens above the context; wanted and found name both numbers
  //   "scheduler.kv"         prompt + max_tokens above what the whole KV budget holds; never with a caller's state
  //   "sampling.range"       sampling, logprobs, min_tokens, max_tokens, logit_bias; `where` names the member
  //   "scheduler.queue"      max_queue requests wait, or max_queue_tokens would be exceeded: try again later
  Result<RequestId> submit(Request request, RequestSink& sink);
  // Ends a request and frees what it holds: at once, or at the end of the step that is running where a sink calls it.
  // False: no such request.
  bool cancel(RequestId id);
  // Leaves a request out of steps, or takes it in again, as where nobody reads what it makes. It takes no place of
  // those that run, and its memory goes to others first: it is computed again then.
  void hold(RequestId id, bool held);
  // One step: admit, decode for all that run, prompt chunks within the time budget, sample, tell the sinks. Returns
  // whether there is more to do. What fails ends the requests it belongs to; the scheduler stays usable.
  bool step();
  // Whether a step has anything to do.
  [[nodiscard]] bool busy() const;
  [[nodiscard]] SchedulerStatus status() const;
  // [layers, experts] of the model: how many computed tokens each expert took, of all requests with count_routing, and
  // of one. A request has none before it starts and after its sink's on_end.
  [[nodiscard]] std::vector<std::uint64_t> routing() const;
  [[nodiscard]] std::span<const std::uint32_t> routing_of(RequestId id) const;
  // Gives up all stored prefixes.
  void drop_prefixes();

 private:
  class Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace moracle
