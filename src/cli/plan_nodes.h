// What `plan --nodes` adds: whether a cut over several machines pays.
#pragma once

#include <optional>
#include <string>

#include "api/documents.h"
#include "cli/screen.h"
#include "model/load/nodes.h"

namespace moracle::cli {

struct NodesAnswer {
  NodesQuestion question{};
  bool measured = false;  // the bandwidth, on this machine
  std::vector<NodesStep> steps{};
  std::uint64_t alone = 0;              // bytes of the whole model's weights
  std::optional<std::uint64_t> rank{};  // of a rank's of tp = nodes; empty: that is forbidden
  std::string forbidden{};              // by what rule
  bool fits = false;                    // the whole model, on one node
};

[[nodiscard]] std::string nodes_text(const NodesAnswer& answer, std::size_t width, const Paint& paint);
[[nodiscard]] Json nodes_json(const NodesAnswer& answer);

}  // namespace moracle::cli
