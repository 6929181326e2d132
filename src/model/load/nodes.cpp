#include "model/load/nodes.h"

#include <algorithm>
#include <array>
#include <bit>
#include <charconv>
#include <cmath>
#include <optional>

#include "base/checked.h"

namespace moracle {

namespace {

struct NamedLink {
  std::string_view name;
  double latency_us;
  double gb_s;
};
// Of sums over TCP what gloo takes, of rdma what NCCL and UCX take.
constexpr std::array kLinks = {NamedLink{"shm", 8, 10},       NamedLink{"rdma", 15, 12.5},
                               NamedLink{"100gbe", 60, 12.5}, NamedLink{"25gbe", 100, 3.1},
                               NamedLink{"10gbe", 130, 1.2},  NamedLink{"1gbe", 200, 0.12}};

// A number above 0 at the beginning of `text`, which then begins behind it.
std::optional<double> take_number(std::string_view& text) {
  double value = 0;
  const auto [end, wrong] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (wrong != std::errc{} || !std::isfinite(value) || value <= 0) return std::nullopt;
  text.remove_prefix(narrow<std::size_t>(end - text.data()));
  return value;
}

std::optional<Link> measured_link(std::string_view text) {
  constexpr double kBitsOfByte = 8;
  const std::string name(text);
  const auto latency = take_number(text);
  if (!latency || !text.starts_with(':')) return std::nullopt;
  text.remove_prefix(1);
  const auto gbit = take_number(text);
  if (!gbit || !text.empty()) return std::nullopt;
  return Link{.name = name, .latency_us = *latency, .gb_s = *gbit / kBitsOfByte};
}

}  // namespace

Result<Link> find_link(std::string_view text) {
  for (const NamedLink& link : kLinks) {
    if (link.name == text)
      return Link{.name = std::string(link.name), .latency_us = link.latency_us, .gb_s = link.gb_s};
  }
  if (const auto link = measured_link(text)) return *link;
  std::string names;
  for (const NamedLink& link : kLinks) names += std::string(link.name) + ", ";
  return Error{.code = "plan.link",
               .where = "--link",
               .wanted = names + "or MICROSECONDS:GBIT",
               .found = "'" + std::string(text.substr(0, 80)) + "'"};
}

std::vector<NodesStep> nodes_steps(const MemoryPlan& whole, const ModelInfo& info, const NodesQuestion& question) {
  constexpr std::array<std::int64_t, 4> kSequences = {1, 8, 32, 128};
  constexpr double kBytes = 2;  // of a sum's number
  double experts = 0;
  double rest = static_cast<double>(whole.head + whole.final_norm);
  for (const LayerMemory& layer : whole.layers) {
    experts += static_cast<double>(layer.experts.bytes);
    rest += static_cast<double>(layer.rest());
  }
  const double chosen =
      info.experts > 0 ? static_cast<double>(info.experts_per_token) / static_cast<double>(info.experts) : 0;
  const auto rounds = narrow<int>(std::bit_width(narrow<unsigned>(question.nodes - 1)));
  std::vector<NodesStep> steps;
  for (const std::int64_t sequences : kSequences) {
    const double reached = 1 - std::pow(1 - chosen, static_cast<double>(sequences));
    const double row = static_cast<double>(sequences * info.hidden_size) * kBytes / (question.link.gb_s * 1e6);
    const double hop = question.link.latency_us / 1e3 + row;
    NodesStep step{.sequences = sequences, .one_ms = (rest + experts * reached) / (question.read_gb_s * 1e6)};
    step.tp_link_ms = 2 * static_cast<double>(whole.layers.size()) * rounds * hop;
    step.tp_ms = step.one_ms / question.nodes + step.tp_link_ms;
    step.pp_ms = step.one_ms + (question.nodes - 1) * hop;
    steps.push_back(step);
  }
  return steps;
}

}  // namespace moracle
