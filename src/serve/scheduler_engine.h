// The scheduler on a thread of its own.
#pragma once

#include <memory>
#include <vector>

#include "base/fair_mutex.h"
#include "base/thread_pool.h"
#include "generate/scheduler.h"
#include "model/model.h"
#include "serve/token_engine.h"

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
  class Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace moracle::serve
