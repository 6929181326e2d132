// What a LoadPlan holds: a model's spec with every module opened and decided.
#pragma once

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "format/decode/stored_linear.h"
#include "model/model.h"
#include "model/plan/placement.h"
#include "model/spec/spec.h"

namespace moracle {

// What the plan keeps of one module until it is packed. Which members are set depends on the kind.
struct OpenedModule {
  StoredLinear linear{};                     // linear, router, embedding
  StoredExperts experts{};                   // experts
  const TensorView* tensor = nullptr;        // norm, sinks, correction bias
  const KernelCard* winner = nullptr;        // linear, experts: null when nobody can serve
  DeviceId device = DeviceId::host;          // that has it; experts: each of them
  std::vector<const TensorView*> tensors{};  // that are read for it
};

// Asks the table of the problem's scheme. A decision may be without a winner. Errors: "oracle.no_table"; a pinned
// backend that cannot serve.
Result<Decision> decide_module(const std::string& name, const Problem& problem, const Machine& machine,
                               const Policy& policy);

class LoadPlan::Opened final {
 public:
  [[nodiscard]] const std::vector<ModuleReport>& modules() const { return reports_; }
  [[nodiscard]] const std::vector<std::string>& warnings() const { return warnings_; }
  [[nodiscard]] std::uint64_t parameters() const { return parameters_; }
  [[nodiscard]] Result<> verify_unchanged() const { return checkpoint_->verify_unchanged(); }
  [[nodiscard]] Result<CanonicalExperts> read_experts(std::size_t module) const {
    return unless_changed(*checkpoint_, opened_[module].experts.read());
  }
  [[nodiscard]] Result<CanonicalLinear> read_linear(std::size_t module) const {
    return unless_changed(*checkpoint_, opened_[module].linear.read());
  }
  [[nodiscard]] const ModelSpec& spec() const { return spec_; }
  [[nodiscard]] const Checkpoint& checkpoint() const { return *checkpoint_; }
  [[nodiscard]] const std::shared_ptr<const Checkpoint>& shared_checkpoint() const { return checkpoint_; }
  [[nodiscard]] const Placement& placement() const { return placement_; }
  [[nodiscard]] const Policy& policy() const { return policy_; }
  // By the name in its report; every module of the spec has one.
  [[nodiscard]] std::size_t index_of(const std::string& name) const { return indices_.find(name)->second; }
  [[nodiscard]] const OpenedModule& opened(std::size_t module) const { return opened_[module]; }

 private:
  friend class Planner;

  ModelSpec spec_;
  std::shared_ptr<const Checkpoint> checkpoint_;
  Placement placement_;
  Policy policy_;
  std::vector<ModuleReport> reports_;
  std::vector<OpenedModule> opened_;
  std::map<std::string, std::size_t, std::less<>> indices_;
  std::vector<std::string> warnings_;
  std::uint64_t parameters_ = 0;
};

using Plan = LoadPlan::Opened;

}  // namespace moracle
