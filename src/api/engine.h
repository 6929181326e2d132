// The engine behind the C interface's handles.
#pragma once

#include <memory>
#include <utility>

#include "api/edge/call.h"
#include "api/edge/ticket_lock.h"
#include "base/json.h"
#include "generate/scheduler.h"
#include "generate/session.h"

namespace moracle::api {

class OpenEngine {
 public:
  static constexpr Kind kKind = Kind::engine;
  // `decision`: the document of explain, as the engine was decided.
  OpenEngine(std::unique_ptr<Session> session, Policy policy, Json decision)
      : session_(std::move(session)), policy_(std::move(policy)), decision_(std::move(decision)) {}

  [[nodiscard]] Session& session() { return *session_; }
  [[nodiscard]] const Policy& policy() const { return policy_; }
  [[nodiscard]] const Json& decision() const { return decision_; }
  [[nodiscard]] TicketLock& lock() { return lock_; }  // taken while the model computes

 private:
  std::unique_ptr<Session> session_;
  Policy policy_;
  Json decision_;
  TicketLock lock_{"engine", "the engine's callbacks"};
};

inline constexpr std::uint64_t kMaxIds = std::uint64_t{1} << 31;

// Errors: "argument.range".
Result<SchedulerOptions> read_scheduler_options(const moracle_scheduler_options* options, Session& session);

// Errors: "argument.range", "argument.null", "text.utf8".
Result<GenerationChoice> read_choice(const moracle_generate_options& options);

}  // namespace moracle::api
