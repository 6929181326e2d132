// How long a decode step takes on several machines, by bytes read and sums sent: whether a cut pays on a link.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "model/load/memory_plan.h"

namespace moracle {

// What two machines, or two sockets, are connected by. Figures are typical ones of one all-reduce between two ranks.
struct Link {
  std::string name{};
  double latency_us = 0;
  double gb_s = 0;  // 10^9 bytes a second, each way
};

// "shm", "rdma", "100gbe", "25gbe", "10gbe", "1gbe"; or "MICROSECONDS:GBIT", as measured: "60:25". Errors: "plan.link",
// which lists the names.
Result<Link> find_link(std::string_view text);

struct NodesQuestion {
  int nodes = 2;
  Link link{};
  double read_gb_s = 0;  // of one node, from memory
};

// One decode step of so many sequences, in milliseconds.
struct NodesStep {
  std::int64_t sequences = 1;
  double one_ms = 0;      // on one node
  double tp_ms = 0;       // tensor parallelism over all nodes: two all-reduces a layer
  double tp_link_ms = 0;  // of that, the all-reduces
  double pp_ms = 0;       // layers spread over the nodes: as one node, and a hop between two
  // What the cut gives: worth it from a quarter faster on.
  [[nodiscard]] bool pays() const { return tp_ms * 1.25 <= one_ms; }
};

// Of 1, 8, 32 and 128 sequences. `whole` is the plan of one rank. A step reads every weight that is no expert's once,
// of experts those that so many tokens are expected to reach, and sends sums of bf16.
[[nodiscard]] std::vector<NodesStep> nodes_steps(const MemoryPlan& whole, const ModelInfo& info,
                                                 const NodesQuestion& question);

}  // namespace moracle
