// A checkpoint of the C interface: opened from its headers, with the machine and the policy that decide.
#pragma once

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
  // Of this machine's cores; made once.
  std::shared_ptr<Pool> pool();

 private:
  OpenCheckpoint() = default;

  std::unique_ptr<LoadPlan> plan_;
  std::mutex mutex_;
  std::shared_ptr<Pool> pool_;
};

}  // namespace moracle::api
