#include "generate/scheduler.h"

#include <algorithm>
#include <map>
#include <utility>
#include <vector>

#include "base/clock.h"
#include "base/guarded.h"
#include "generate/batch/prefix_reuse.h"
#include "generate/batch/request_queue.h"
#include "generate/batch/sequence.h"
#include "generate/batch/step_planner.h"
#include "generate/batch/step_runner.h"

namespace moracle {

namespace {

// What the measured rate follows: a quarter of each new measurement.
constexpr double kRateShare = 0.25;
// Of the seconds and the requests so far, what a request that ends leaves: about the last fifty count.
constexpr double kEndedShare = 0.98;

Error queue_error(std::string wanted, std::string found) {
  return Error{
      .code = "scheduler.queue", .wanted = std::move(wanted), .found = std::move(found), .advice = "try again later"};
}

std::int64_t held_among(const std::vector<ScheduledSequence*>& sequences) {
  return std::count_if(sequences.begin(), sequences.end(), [](const ScheduledSequence* each) { return each->held; });
}

// With the bounds that are the model's.
SchedulerOptions settled(SchedulerOptions options, const Model& model) {
  if (options.max_running == 0) options.max_running = model.decode_sequences();
  if (options.max_prefill == 0) options.max_prefill = std::max(model.prefill_chunk(), options.min_prefill);
  return options;
}

}  // namespace

class Scheduler::Impl {
 public:
  Impl(Model& model, ThreadPool& pool, const SchedulerOptions& options)
      : model_(model),
        options_(settled(options, model)),
        prefixes_(model, options_),
        planner_(options_, prefixes_),
        runner_(model, pool) {
    const std::int64_t most = model.info().max_context;
    context_ = options.context > 0 ? std::min(options.context, most) : most;
    const StateMemory memory = model.state_memory();
    held_ = memory.budget > 0 ? memory.positions : context_;
    routing_.resize(static_cast<std::size_t>(model.info().layers * model.info().experts));
  }
  Impl(const Impl&) = delete;
  Impl& operator=(const Impl&) = delete;
  ~Impl() = default;

  Result<RequestId> submit(Request request, RequestSink& sink);
  bool cancel(RequestId id);
  void hold(RequestId id, bool held);
  bool step();
  [[nodiscard]] bool busy() const;
  [[nodiscard]] SchedulerStatus status() const;
  [[nodiscard]] std::vector<std::uint64_t> routing() const;
  [[nodiscard]] std::span<const std::uint32_t> routing_of(RequestId id) const;
  void drop_prefixes() const { prefixes_.clear(); }

 private:
  void take_step();
  [[nodiscard]] bool may_run(const std::string& key) const;
  void end(ScheduledSequence& sequence, RequestEnd end, std::optional<Error> error = {},
           std::optional<std::int32_t> stop = {});
  void end_cancelled();
  void forget_ended();
  void admit();
  [[nodiscard]] std::int64_t active() const;
  bool start_in_room(ScheduledSequence& sequence);
  bool preempt_held();
  void put_back(ScheduledSequence& sequence);
  [[nodiscard]] bool has_room(std::int64_t length) const;
  bool start(ScheduledSequence& sequence);
  [[nodiscard]] Result<std::shared_ptr<SequenceState>> state_of(const ScheduledSequence& sequence) const;
  void tell_start(ScheduledSequence& sequence);
  void take_memory();
  bool take_memory(StepPart& part);
  bool free_memory(const ScheduledSequence& wanting);
  void preempt(ScheduledSequence& sequence);
  void deliver();
  void tell_prompt(const StepPart& part);
  void tell_token(const StepPart& part);
  void measure(double seconds);

  Model& model_;
  SchedulerOptions options_;
  std::int64_t context_ = 0;
  std::int64_t held_ = 0;  // positions that one sequence can have within the KV budget
  RequestId last_id_ = 0;
  std::map<RequestId, std::unique_ptr<ScheduledSequence>> sequences_;  // all that have not ended
  std::vector<ScheduledSequence*> running_;                            // in the order of their start
  RequestQueue queue_;
  std::vector<ScheduledSequence*> preempted_;  // in the order of submission; they come before the queue
  const ScheduledSequence* alone_ = nullptr;   // while it runs, nobody else starts
  std::vector<RequestId> ended_;               // in this step
  bool stepping_ = false;
  SchedulerStatus status_;
  double worked_s_ = 0, ended_requests_ = 0;  // of steps and of what they ended, the older the less
  std::vector<std::uint64_t> routing_;        // of requests that have ended
  PrefixReuse prefixes_;
  StepPlanner planner_;
  StepRunner runner_;
  std::vector<StepPart> parts_;  // of the step
  std::vector<ScheduledSequence*> taking_part_;
};

Result<RequestId> Scheduler::Impl::submit(Request request, RequestSink& sink) {
  MORACLE_TRY(check(request, model_.info().vocab_size));
  const auto prompt = std::ssize(request.prompt);
  if (request.state != nullptr && request.state->length() >= prompt) return no_prompt();
  const std::int64_t least = request.max_tokens.value_or(1);
  const auto too_long = [&](std::string code, std::string wanted, std::string advice) {
    return Error{.code = std::move(code),
                 .wanted = std::move(wanted),
                 .found = std::to_string(prompt + least) + " tokens (" + std::to_string(prompt) + " of prompt, " +
                          std::to_string(least) + " to come)",
                 .advice = std::move(advice)};
  };
  if (prompt + least > context_) {
    return too_long("model.context", "at most " + std::to_string(context_) + " tokens in all",
                    "shorten the prompt or ask for fewer tokens");
  }
  if (prompt + least > held_ && request.state == nullptr) {  // a caller's state may end where its memory does
    return too_long("scheduler.kv",
                    "at most " + std::to_string(held_) + " tokens, which the memory for keys and values holds",
                    "shorten the prompt, ask for fewer tokens or give more memory to keys and values");
  }
  if (queue_.size() >= options_.max_queue) {
    return queue_error("at most " + std::to_string(options_.max_queue) + " waiting requests",
                       std::to_string(queue_.size()));
  }
  if (options_.max_queue_tokens > 0 && queue_.tokens() + prompt > options_.max_queue_tokens) {
    return queue_error("at most " + std::to_string(options_.max_queue_tokens) + " waiting prompt tokens",
                       std::to_string(queue_.tokens() + prompt));
  }
  const RequestId id = ++last_id_;
  auto sequence = std::make_unique<ScheduledSequence>(id, std::move(request), sink);
  sequence->most = sequence->request.max_tokens.value_or(std::min(context_, held_) - prompt);
  sequence->usage.prompt = prompt;
  const ScheduledSequence& kept = *sequences_.emplace(id, std::move(sequence)).first->second;
  const auto queued = guarded("queue a request", [&]() -> Result<> {
    queue_.push(kept.request.key, {.id = id, .priority = kept.request.priority, .tokens = prompt});
    return Ok{};
  });
  if (queued.ok()) return id;
  sequences_.erase(id);
  return queued.error();
}

bool Scheduler::Impl::cancel(RequestId id) {
  const auto at = sequences_.find(id);
  if (at == sequences_.end() || at->second->cancelled || at->second->ended) return false;
  ScheduledSequence& sequence = *at->second;
  sequence.cancelled = true;
  if (stepping_) return true;
  end(sequence, RequestEnd::cancelled);
  forget_ended();
  return true;
}

void Scheduler::Impl::hold(RequestId id, bool held) {
  const auto at = sequences_.find(id);
  if (at != sequences_.end()) at->second->held = held;
}

bool Scheduler::Impl::busy() const {
  return std::any_of(sequences_.begin(), sequences_.end(), [](const auto& entry) { return !entry.second->held; });
}

// Frees what the sequence holds; it goes away when the step ends.
void Scheduler::Impl::end(ScheduledSequence& sequence, RequestEnd end, std::optional<Error> error,
                          std::optional<std::int32_t> stop) {
  queue_.remove(sequence.id);
  std::erase(running_, &sequence);
  std::erase(preempted_, &sequence);
  sequence.state.reset();
  if (alone_ == &sequence) alone_ = nullptr;
  ended_.push_back(sequence.id);  // while memory lacks it has not ended
  sequence.ended = true;
  ++status_.ended[static_cast<std::size_t>(end)];
  if (end == RequestEnd::stop || end == RequestEnd::length) {
    ended_requests_ += 1;
    status_.request_seconds = worked_s_ / ended_requests_;
    worked_s_ *= kEndedShare;
    ended_requests_ *= kEndedShare;
  }
  for (std::size_t i = 0; i < sequence.routing.size(); ++i) routing_[i] += sequence.routing[i];
  sequence.sink->on_end(sequence.id, {.end = end, .stop_id = stop, .error = std::move(error), .usage = sequence.usage});
}

void Scheduler::Impl::forget_ended() {
  for (const RequestId id : ended_) sequences_.erase(id);
  ended_.clear();
}

// Whether one more request of a key may run, as far as the key's own bound goes.
bool Scheduler::Impl::may_run(const std::string& key) const {
  return options_.max_running_per_key == 0 ||
         std::count_if(running_.begin(), running_.end(), [&](const ScheduledSequence* each) {
           return !each->held && each->request.key == key;
         }) < options_.max_running_per_key;
}

std::int64_t Scheduler::Impl::active() const {
  return std::ssize(running_) - held_among(running_);
}

void Scheduler::Impl::admit() {
  while (active() < options_.max_running) {
    const auto next =
        std::find_if(preempted_.begin(), preempted_.end(), [](const ScheduledSequence* each) { return !each->held; });
    if (next == preempted_.end()) break;
    if (!start_in_room(**next)) return;
  }
  while (active() < options_.max_running) {
    const auto id = queue_.next([this](const std::string& key) { return may_run(key); });
    if (!id) return;
    ScheduledSequence& sequence = *sequences_.at(*id);
    if (!start_in_room(sequence)) return;
  }
}

// Held requests give their memory to whose turn it is.
bool Scheduler::Impl::start_in_room(ScheduledSequence& sequence) {
  while (!start(sequence)) {
    if (!preempt_held()) return false;
  }
  return true;
}

// The youngest. False: none holds any memory.
bool Scheduler::Impl::preempt_held() {
  const auto last =
      std::find_if(running_.rbegin(), running_.rend(), [](const ScheduledSequence* each) { return each->held; });
  if (last == running_.rend()) return false;
  put_back(**last);
  return true;
}

// Whether the memory that is free, or held by stored prefixes alone, takes `length` more positions beside what is to be
// computed of those that run. The first one runs in any case.
bool Scheduler::Impl::has_room(std::int64_t length) const {
  const StateMemory memory = model_.state_memory();
  if (memory.budget == 0 || running_.empty()) return true;
  // Those that run may not yet hold what is to be computed of them.
  std::size_t wanted = model_.state_bytes(length);
  for (const ScheduledSequence* const each : running_) {
    wanted += model_.state_bytes(std::ssize(each->ids) + 1) - model_.state_bytes(each->state->length());
  }
  if (memory.used + wanted <= memory.budget) return true;
  return memory.used + wanted <= memory.budget + prefixes_.bytes();
}

Result<std::shared_ptr<SequenceState>> Scheduler::Impl::state_of(const ScheduledSequence& sequence) const {
  if (SequenceState* const given = sequence.request.state; given != nullptr) {
    return std::shared_ptr<SequenceState>(std::shared_ptr<SequenceState>(), given);
  }
  MORACLE_ASSIGN(std::shared_ptr<SequenceState> state, model_.new_sequence());
  return state;
}

// False: it has to wait for memory.
bool Scheduler::Impl::start(ScheduledSequence& sequence) {
  // Who was put back often enough takes all that it may need, or is the only one that runs.
  const bool whole = sequence.preemptions >= kPreemptions;
  const std::int64_t length = whole ? sequence.longest() : std::ssize(sequence.ids) + 1;
  if (!has_room(length) || (alone_ != nullptr && alone_->state != nullptr)) return false;
  auto state = state_of(sequence);
  if (!state.ok()) {
    end(sequence, RequestEnd::error, std::move(state).error());
    return true;
  }
  const PrefixReuse::Found found = prefixes_.restore(sequence, **state);
  if (whole) {
    bool fits = (*state)->reserve(sequence.longest()).ok();
    while (!fits && prefixes_.evict()) fits = (*state)->reserve(sequence.longest()).ok();
    if (!fits && !running_.empty()) return false;
    if (!fits) alone_ = &sequence;
  }
  status_.prefix_queries += static_cast<std::uint64_t>(found.looked_up);
  status_.cached_tokens += static_cast<std::uint64_t>(found.restored);
  queue_.remove(sequence.id);
  std::erase(preempted_, &sequence);
  sequence.state = *std::move(state);
  sequence.ids.reserve(static_cast<std::size_t>(sequence.longest()));
  if (sequence.request.count_routing) {
    sequence.routing.resize(routing_.size());
    sequence.state->count_routing(sequence.routing.data());
  }
  running_.push_back(&sequence);
  if (sequence.started) return true;
  sequence.started = true;
  sequence.usage.cached = std::min(found.restored, sequence.prompt_size());
  tell_start(sequence);
  return true;
}

void Scheduler::Impl::tell_start(ScheduledSequence& sequence) {
  sequence.sink->on_start(sequence.id, sequence.usage.cached);
  if (!sequence.request.echo || (sequence.scores_prompt() && sequence.prompt_size() > 1)) return;
  std::vector<ScoredToken> tokens;
  for (const std::int32_t id : sequence.request.prompt) tokens.push_back({.id = id, .logprob = {}, .top = {}});
  sequence.told = sequence.prompt_size();
  sequence.sink->on_prompt(sequence.id, tokens);
  if (sequence.most == 0) end(sequence, RequestEnd::length);
}

// The oldest first. What finds no memory waits for a later step.
void Scheduler::Impl::take_memory() {
  std::sort(parts_.begin(), parts_.end(),
            [](const StepPart& a, const StepPart& b) { return a.sequence->id < b.sequence->id; });
  for (StepPart& part : parts_) {
    if (part.sequence->state != nullptr && !take_memory(part)) part.count = 0;
  }
  std::erase_if(parts_, [](const StepPart& part) { return part.sequence->state == nullptr || part.count == 0; });
}

bool Scheduler::Impl::take_memory(StepPart& part) {
  ScheduledSequence& sequence = *part.sequence;
  for (;;) {
    Result<> taken = sequence.state->reserve(part.end);
    if (taken.ok()) return true;
    if (free_memory(sequence)) continue;
    if (sequence.state == nullptr || running_.size() > 1) return false;
    // Nobody else holds anything: less of it may still fit.
    if (part.count == 1) {
      end(sequence, RequestEnd::error, std::move(taken).error());
      return false;
    }
    part = part_of(sequence, part.count / 2);
  }
}

// False: nobody is left to take it from.
bool Scheduler::Impl::free_memory(const ScheduledSequence& wanting) {
  if (prefixes_.evict() || preempt_held()) return true;
  ScheduledSequence* oldest = nullptr;
  ScheduledSequence* youngest = nullptr;
  for (ScheduledSequence* const each : running_) {
    if (oldest == nullptr || each->id < oldest->id) oldest = each;
    if (each->preemptions < kPreemptions && (youngest == nullptr || each->id > youngest->id)) youngest = each;
  }
  if (youngest == nullptr || youngest == oldest) return false;
  preempt(*youngest);
  return wanting.state != nullptr;
}

void Scheduler::Impl::preempt(ScheduledSequence& sequence) {
  ++sequence.preemptions;
  put_back(sequence);
}

void Scheduler::Impl::put_back(ScheduledSequence& sequence) {
  sequence.state.reset();
  ++status_.preemptions;
  std::erase(running_, &sequence);
  preempted_.insert(
      std::upper_bound(preempted_.begin(), preempted_.end(), &sequence,
                       [](const ScheduledSequence* a, const ScheduledSequence* b) { return a->id < b->id; }),
      &sequence);
}

void Scheduler::Impl::deliver() {
  for (StepPart& part : parts_) {
    ScheduledSequence& sequence = *part.sequence;
    if (sequence.cancelled || sequence.ended) continue;
    if (part.error) {
      end(sequence, RequestEnd::error, std::move(part.error));
      continue;
    }
    if (!part.scored.empty()) tell_prompt(part);
    if (!sequence.cancelled && part.end == sequence.target()) {
      if (sequence.most == 0) {
        end(sequence, RequestEnd::length);
      } else {
        tell_token(part);
      }
    }
  }
}

// What sinks cancelled on the way.
void Scheduler::Impl::end_cancelled() {
  for (const auto& [id, sequence] : sequences_) {
    if (sequence->cancelled && !sequence->ended) end(*sequence, RequestEnd::cancelled);
  }
}

void Scheduler::Impl::tell_prompt(const StepPart& part) {
  ScheduledSequence& sequence = *part.sequence;
  std::vector<ScoredToken> tokens;
  if (sequence.told == 0) tokens.push_back({.id = sequence.ids.front(), .logprob = {}, .top = {}});
  for (const ScoredPromptToken& scored : part.scored) {
    tokens.push_back({.id = scored.id, .logprob = scored.logprob, .top = scored.top});
  }
  sequence.told += std::ssize(tokens);
  sequence.sink->on_prompt(sequence.id, tokens);
}

void Scheduler::Impl::tell_token(const StepPart& part) {
  ScheduledSequence& sequence = *part.sequence;
  const std::int32_t id = part.chosen.id;
  sequence.ids.push_back(id);
  ++sequence.usage.completion;
  ++status_.generated_tokens;
  sequence.sink->on_token(sequence.id, part.chosen);
  if (sequence.cancelled) return;
  if (sequence.chooser.ended()) {
    end(sequence, RequestEnd::stop, {}, id);
  } else if (sequence.usage.completion == sequence.most) {
    end(sequence, RequestEnd::length);
  }
}

void Scheduler::Impl::measure(double seconds) {
  std::int64_t decoded = 0;
  std::int64_t prompted = 0;
  for (const StepPart& part : parts_) (part.decodes ? decoded : prompted) += part.count;
  ++status_.steps;
  worked_s_ += seconds;
  status_.step_prompt_tokens = prompted;
  status_.step_decodes = decoded;
  status_.step_seconds = seconds;
  status_.prompt_tokens += static_cast<std::uint64_t>(prompted);
  // Steps with decodes are slower than their prompt alone: the rate that they give errs on the short side.
  if (prompted < options_.min_prefill || seconds <= 0) return;
  const double rate = static_cast<double>(prompted) / seconds;
  status_.prefill_rate += (status_.prefill_rate > 0 ? kRateShare : 1.0) * (rate - status_.prefill_rate);
}

bool Scheduler::Impl::step() {
  stepping_ = true;
  const auto done = guarded("take a step", [&]() -> Result<> {
    take_step();
    return Ok{};
  });
  if (!done.ok()) {  // as where memory runs out: nobody can say whose step it was
    for (const auto& [id, sequence] : sequences_) {
      if (!sequence->ended) end(*sequence, RequestEnd::error, done.error());
    }
  }
  stepping_ = false;
  forget_ended();
  return busy();
}

void Scheduler::Impl::take_step() {
  end_cancelled();
  admit();
  taking_part_.clear();
  for (ScheduledSequence* const each : running_) {
    if (!each->held && std::ssize(taking_part_) < options_.max_running) taking_part_.push_back(each);
  }
  planner_.plan(taking_part_, status_.prefill_rate, parts_);
  take_memory();
  if (!parts_.empty()) {
    const Stopwatch watch;
    runner_.compute(parts_);
    prefixes_.store(parts_);
    runner_.choose(parts_);
    measure(watch.seconds());
  }
  deliver();
  end_cancelled();
}

SchedulerStatus Scheduler::Impl::status() const {
  SchedulerStatus status = status_;
  status.running = active();
  status.waiting = queue_.size() + std::ssize(preempted_) + held_among(running_);
  status.deferred = queue_.size() - queue_.size([this](const std::string& key) { return may_run(key); }) +
                    held_among(running_) + held_among(preempted_);
  status.waiting_tokens = queue_.tokens();
  const StateMemory memory = model_.state_memory();
  status.kv_bytes = static_cast<std::int64_t>(memory.used);
  status.kv_budget = static_cast<std::int64_t>(memory.budget);
  status.kv_prefix_bytes = static_cast<std::int64_t>(prefixes_.bytes());
  status.experts = model_.expert_slots();
  return status;
}

std::vector<std::uint64_t> Scheduler::Impl::routing() const {
  std::vector<std::uint64_t> sum = routing_;
  for (const auto& [id, sequence] : sequences_) {
    if (sequence->ended) continue;  // it is in routing_
    for (std::size_t i = 0; i < sequence->routing.size(); ++i) sum[i] += sequence->routing[i];
  }
  return sum;
}

std::span<const std::uint32_t> Scheduler::Impl::routing_of(RequestId id) const {
  const auto at = sequences_.find(id);
  return at == sequences_.end() ? std::span<const std::uint32_t>() : at->second->routing;
}

Scheduler::Scheduler(Model& model, ThreadPool& pool, const SchedulerOptions& options)
    : impl_(std::make_unique<Impl>(model, pool, options)) {}

Scheduler::~Scheduler() = default;

Result<RequestId> Scheduler::submit(Request request, RequestSink& sink) {
  return impl_->submit(std::move(request), sink);
}

bool Scheduler::cancel(RequestId id) {
  return impl_->cancel(id);
}

void Scheduler::hold(RequestId id, bool held) {
  impl_->hold(id, held);
}

bool Scheduler::step() {
  return impl_->step();
}

bool Scheduler::busy() const {
  return impl_->busy();
}

SchedulerStatus Scheduler::status() const {
  return impl_->status();
}

std::vector<std::uint64_t> Scheduler::routing() const {
  return impl_->routing();
}

std::span<const std::uint32_t> Scheduler::routing_of(RequestId id) const {
  return impl_->routing_of(id);
}

void Scheduler::drop_prefixes() {
  impl_->drop_prefixes();
}

}  // namespace moracle
