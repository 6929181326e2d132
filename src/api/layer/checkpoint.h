// A checkpoint of the C interface: opened from its headers, with the machine and the policy that decide.
#pragma once

#include <moracle/moracle.h>

#include <memory>
#include <mutex>
#include <string>

#include "api/edge/handles.h"
#include "api/edge/pool.h"
#include "model/load/plan.h"

namespace moracle::api {

class OpenCheckpoint {
 public:
  static constexpr Kind kKind = Kind::checkpoint;
  static Result<std::shared_ptr<OpenCheckpoint>> open(const std::string& folder, const Policy& policy);

  [[nodiscard]] const LoadPlan& load_plan() const { return *plan_; }
  [[nodiscard]] const Plan& plan() const { return plan_->opened(); }
  // The caller's, or, of null, one of this machine's cores, made once. Error: a handle that is none.
  Result<std::shared_ptr<Pool>> pool_or(moracle_pool* given);

 private:
  OpenCheckpoint() = default;

  std::unique_ptr<LoadPlan> plan_;
  std::mutex mutex_;
  std::shared_ptr<Pool> pool_;
};

}  // namespace moracle::api
