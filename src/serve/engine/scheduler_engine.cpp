#include "serve/engine/scheduler_engine.h"

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <deque>
#include <map>
#include <mutex>
#include <optional>
#include <thread>
#include <utility>
#include <vector>

#include "base/guarded.h"

namespace moracle::serve {

namespace {

using Clock = std::chrono::steady_clock;

OwnedToken owned(const ScoredToken& token) {
  return {.id = token.id, .logprob = token.logprob, .top = {token.top.begin(), token.top.end()}};
}

EngineStatus shown(const SchedulerStatus& now) {
  return {.running = now.running,
          .waiting = now.waiting,
          .deferred = now.deferred,
          .waiting_tokens = now.waiting_tokens,
          .kv_bytes = now.kv_bytes,
          .kv_prefix_bytes = now.kv_prefix_bytes,
          .kv_budget = now.kv_budget,
          .experts = now.experts,
          .steps = now.steps,
          .prefix_queries = now.prefix_queries,
          .prefix_hits = now.cached_tokens,
          .preemptions = now.preemptions,
          .prefill_rate = now.prefill_rate,
          .request_seconds = now.request_seconds};
}

}  // namespace

// Gathers what a step says of one request.
class SchedulerEngine::Sink final : public RequestSink {
 public:
  Sink(const Scheduler& scheduler, TokenEngine::Listener listener)
      : scheduler_(scheduler), listener_(std::move(listener)) {}

  void on_start(RequestId /*id*/, std::int64_t cached) override {
    event_.started = Clock::now();
    event_.cached = cached;
    reported_ = false;
  }
  void on_prompt(RequestId /*id*/, std::span<const ScoredToken> tokens) override {
    for (const ScoredToken& token : tokens) event_.prompt.push_back(owned(token));
    reported_ = false;
  }
  void on_token(RequestId /*id*/, const ScoredToken& token) override {
    event_.tokens.push_back(owned(token));
    reported_ = false;
  }
  void on_end(RequestId id, const RequestOutcome& outcome) override {
    // Without memory the counts are missing; the end is reported all the same.
    static_cast<void>(guarded("count a reply's experts", [&]() -> Result<> {
      const auto counts = scheduler_.routing_of(id);
      event_.routing.assign(counts.begin(), counts.end());
      return Ok{};
    }));
    end(outcome);
  }

  void end(RequestOutcome outcome) {
    event_.outcome = std::move(outcome);
    reported_ = false;
  }
  void accept() {
    event_.accepted = true;
    reported_ = false;
  }
  [[nodiscard]] bool ended() const { return ended_; }
  // On an error, as where memory runs out, what there was to report is lost: the request has to end.
  Result<> report() {
    if (std::exchange(reported_, true)) return Ok{};
    const bool last = event_.outcome.has_value();
    const auto done = guarded("tell of a token", [&]() -> Result<> {
      listener_(std::exchange(event_, {}));
      return Ok{};
    });
    ended_ = done.ok() && last;
    return done;
  }

 private:
  const Scheduler& scheduler_;
  TokenEngine::Listener listener_;
  EngineEvent event_;
  bool reported_ = true;
  bool ended_ = false;
};

SchedulerEngine::SchedulerEngine(Model& model, ThreadPool& pool, const SchedulerOptions& options, FairMutex* turn)
    : turn_(turn), scheduler_(nullptr, InTurn{turn}) {
  {
    const auto mine = hold_turn(turn_);
    scheduler_.reset(new Scheduler(model, pool, options));
    status_ = shown(scheduler_->status());
  }
  thread_ = std::thread([this] { run(); });
}

SchedulerEngine::~SchedulerEngine() {
  stop();
}

std::unique_lock<FairMutex> SchedulerEngine::hold_turn(FairMutex* turn) {
  return turn != nullptr ? std::unique_lock(*turn) : std::unique_lock<FairMutex>();
}

void SchedulerEngine::InTurn::operator()(Scheduler* scheduler) const {
  const auto mine = hold_turn(turn);
  delete scheduler;
}

TokenEngine::Ticket SchedulerEngine::submit(Request request, Listener listener) {
  auto sink = std::make_unique<Sink>(*scheduler_, std::move(listener));
  const std::lock_guard lock(mutex_);
  const Ticket ticket = ++tickets_;
  add_command({.ticket = ticket, .request = std::move(request), .sink = std::move(sink)});
  return ticket;
}

void SchedulerEngine::cancel(Ticket ticket) {
  const std::lock_guard lock(mutex_);
  add_command({.ticket = ticket});
}

void SchedulerEngine::hold(Ticket ticket, bool held) {
  const std::lock_guard lock(mutex_);
  add_command({.ticket = ticket, .held = held});
}

void SchedulerEngine::add_command(Command command) {
  commands_.push_back(std::move(command));
  if (!working_) moved_ = Clock::now();
  working_ = true;
  wake_.notify_one();
}

EngineStatus SchedulerEngine::status() const {
  const std::lock_guard lock(mutex_);
  EngineStatus result = status_;
  if (working_) result.stalled_s = std::chrono::duration<double>(Clock::now() - moved_).count();
  return result;
}

std::vector<StepFigures> SchedulerEngine::take_steps() {
  const std::lock_guard lock(mutex_);
  std::vector<StepFigures> taken(steps_.begin(), steps_.end());
  steps_.clear();
  return taken;
}

std::shared_ptr<const RoutingSnapshot> SchedulerEngine::routing() {
  const std::lock_guard lock(mutex_);
  routing_wanted_ = true;
  wake_.notify_one();
  return routing_;
}

void SchedulerEngine::stop() {
  {
    const std::lock_guard lock(mutex_);
    stopping_ = true;
    wake_.notify_one();
  }
  if (thread_.joinable()) thread_.join();
}

void SchedulerEngine::run() {
  for (;;) {
    std::vector<Command> commands;
    {
      std::unique_lock lock(mutex_);
      working_ = scheduler_->busy() || !commands_.empty();
      wake_.wait(lock, [&] { return stopping_ || routing_wanted_ || !commands_.empty() || scheduler_->busy(); });
      if (stopping_) break;
      commands.swap(commands_);
    }
    const auto mine = hold_turn(turn_);
    for (Command& command : commands) obey(command);
    report_all();
    if (scheduler_->busy()) scheduler_->step();
    report_all();
    // Without memory the figures stay as they are.
    static_cast<void>(guarded("note the status", [&]() -> Result<> {
      note_status();
      return Ok{};
    }));
  }
  const auto mine = hold_turn(turn_);
  end_all({.end = RequestEnd::error,
           .error = Error{.code = "server.shutdown", .wanted = "time to finish", .found = "the server is ending"}});
  report_all();
}

// A command that fails, as where memory runs out, ends its request.
void SchedulerEngine::obey(Command& command) {
  const auto done = guarded("take a request", [&]() -> Result<> {
    if (!command.request) {
      steer(command);
      return Ok{};
    }
    Running& running = running_[command.ticket];
    running.sink = std::move(command.sink);
    auto id = scheduler_->submit(*std::move(command.request), *running.sink);
    if (id.ok()) {
      running.id = *id;
      running.sink->accept();
    } else {
      running.sink->end({.end = RequestEnd::error, .error = std::move(id).error()});
    }
    return Ok{};
  });
  if (done.ok()) return;
  const auto found = running_.find(command.ticket);
  const auto& sink = command.sink != nullptr || found == running_.end() ? command.sink : found->second.sink;
  if (sink == nullptr) return;
  sink->end({.end = RequestEnd::error, .error = done.error()});
  static_cast<void>(sink->report());
}

void SchedulerEngine::steer(const Command& command) {
  const auto found = running_.find(command.ticket);
  if (found == running_.end()) return;
  if (command.held) {
    scheduler_->hold(found->second.id, *command.held);
  } else {
    scheduler_->cancel(found->second.id);
  }
}

void SchedulerEngine::end_all(const RequestOutcome& outcome) {
  for (auto& [ticket, running] : running_) {
    if (running.id != 0) scheduler_->cancel(running.id);
    running.sink->end(outcome);
  }
}

void SchedulerEngine::report_all() {
  for (auto& [ticket, running] : running_) {
    const auto reported = running.sink->report();
    if (reported.ok()) continue;
    if (running.id != 0) scheduler_->cancel(running.id);
    running.sink->end({.end = RequestEnd::error, .error = reported.error()});
    static_cast<void>(running.sink->report());
  }
  std::erase_if(running_, [](const auto& entry) { return entry.second.sink->ended(); });
}

void SchedulerEngine::note_routing(std::uint64_t steps) {
  {
    const std::lock_guard lock(mutex_);
    if (!std::exchange(routing_wanted_, false)) return;
  }
  auto snapshot = std::make_shared<RoutingSnapshot>();
  snapshot->steps = steps;
  snapshot->all = scheduler_->routing();
  for (const auto& [ticket, running] : running_) {
    const auto counts = scheduler_->routing_of(running.id);
    if (!counts.empty()) snapshot->running[ticket].assign(counts.begin(), counts.end());
  }
  const std::lock_guard lock(mutex_);
  routing_ = std::move(snapshot);
}

void SchedulerEngine::note_status() {
  const SchedulerStatus now = scheduler_->status();
  note_routing(now.steps);
  const std::lock_guard lock(mutex_);
  moved_ = Clock::now();
  if (now.steps != status_.steps) {
    if (steps_.size() >= kMostSteps) steps_.pop_front();
    steps_.push_back(
        {.prompt_tokens = now.step_prompt_tokens, .decodes = now.step_decodes, .seconds = now.step_seconds});
  }
  status_ = shown(now);
}

}  // namespace moracle::serve
