// What vLLM would choose: the parts of `explain` that ask its tables.
#pragma once

#include <string>
#include <vector>

#include "cli/console.h"
#include "model/model.h"

namespace moracle::cli {

struct VllmOptions {
  std::string model;                     // as it is shown
  std::vector<std::string> environment;  // NAME=VALUE
  bool static_order = false;             // of integer weights: no look at zero points, bias and source
  bool all = false;
  bool json = false;
};

// The experts of a plan, by vLLM's tables. `policy` pins one of vLLM's backend names.
Result<> explain_vllm(const LoadPlan& plan, const Machine& machine, const Policy& policy, const VllmOptions& options,
                      Console& console);

// One answer for each line {id, oracle, platform, request} of the file. A line that cannot be read is told of, and the
// rest is answered.
Result<> answer_vllm_requests(const std::string& path, Console& console);

}  // namespace moracle::cli
