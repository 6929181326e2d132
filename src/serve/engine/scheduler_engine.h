// The scheduler on a thread of its own.
#pragma once

#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <thread>
#include <vector>

#include "base/fair_mutex.h"
#include "base/thread_pool.h"
#include "generate/scheduler.h"
#include "model/model.h"
#include "serve/engine/token_engine.h"

namespace moracle::serve {

class SchedulerEngine final : public TokenEngine {
 public:
  // Model and pool outlive it, and are its own to use while it lives; where others use them, too, all hold `turn`.
  SchedulerEngine(Model& model, ThreadPool& pool, const SchedulerOptions& options, FairMutex* turn = nullptr);
  ~SchedulerEngine() override;
  SchedulerEngine(const SchedulerEngine&) = delete;
  SchedulerEngine& operator=(const SchedulerEngine&) = delete;

  Ticket submit(Request request, Listener listener) override;
  void cancel(Ticket ticket) override;
  void hold(Ticket ticket, bool held) override;
  [[nodiscard]] EngineStatus status() const override;
  std::vector<StepFigures> take_steps() override;
  std::shared_ptr<const RoutingSnapshot> routing() override;
  // Ends what is left, and the thread.
  void stop();

 private:
  class Sink;
  struct Command {
    Ticket ticket = 0;
    std::optional<Request> request{};
    std::unique_ptr<Sink> sink{};
    std::optional<bool> held{};  // neither a request nor this: cancel
  };
  struct Running {
    RequestId id = 0;
    std::unique_ptr<Sink> sink;
  };
  // A scheduler gives its memory back to the model.
  struct InTurn {
    FairMutex* turn;
    void operator()(Scheduler* scheduler) const;
  };

  // Held while the model is used, where others use it, too.
  static std::unique_lock<FairMutex> hold_turn(FairMutex* turn);
  void add_command(Command command);  // with the mutex
  // On the thread.
  void run();
  void obey(Command& command);
  void steer(const Command& command);
  void end_all(const RequestOutcome& outcome);
  void report_all();
  void note_routing(std::uint64_t steps);
  void note_status();

  FairMutex* turn_;
  std::unique_ptr<Scheduler, InTurn> scheduler_;  // the thread's
  std::map<Ticket, Running> running_;             // the thread's
  mutable std::mutex mutex_;
  std::condition_variable wake_;
  std::vector<Command> commands_;
  EngineStatus status_;
  std::deque<StepFigures> steps_;  // not taken yet
  std::shared_ptr<const RoutingSnapshot> routing_;
  bool routing_wanted_ = false;
  std::chrono::steady_clock::time_point moved_ = std::chrono::steady_clock::now();  // a step ended, or work came
  bool working_ = false;
  bool stopping_ = false;
  Ticket tickets_ = 0;
  std::thread thread_;
};

}  // namespace moracle::serve
