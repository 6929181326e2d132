#include "text/tokenizer/search/text_matcher.h"

#include <algorithm>

namespace moracle {
namespace {

// A node, and its slots in the table of children.
constexpr std::size_t kNodeBytes = 64;

}  // namespace

bool TextMatcher::add(std::string_view text, std::int32_t value, Budget& budget) {
  if (!budget.steps(1 + text.size())) return false;
  std::uint32_t node = 0;
  for (std::size_t at = text.size(); at > 0; --at) {
    const auto byte = static_cast<unsigned char>(text[at - 1]);
    std::uint32_t below = child(node, byte);
    if (below == 0) {
      if (!budget.bytes(kNodeBytes)) return false;
      below = static_cast<std::uint32_t>(nodes_.size());
      nodes_.push_back({.parent = node, .depth = nodes_[node].depth + 1, .byte = byte});
      (node == 0 ? roots_[byte] : children_[std::uint64_t{node} << 8U | byte]) = below;
    }
    node = below;
  }
  auto& place = nodes_[node].value;
  if (place < 0 || value < place) place = value;
  return true;
}

bool TextMatcher::finish(Budget& budget) {
  if (!budget.steps(nodes_.size()) || !budget.bytes(nodes_.size() * sizeof(std::uint32_t))) return false;
  // A suffix is shorter, so nodes are finished by depth.
  std::vector<std::uint32_t> order;
  for (std::uint32_t node = 1; node < nodes_.size(); ++node) order.push_back(node);
  std::sort(order.begin(), order.end(),
            [&](std::uint32_t a, std::uint32_t b) { return nodes_[a].depth < nodes_[b].depth; });
  for (const std::uint32_t at : order) {
    Node& node = nodes_[at];
    if (node.depth > 1) node.suffix = next(nodes_[node.parent].suffix, node.byte);
    node.member = node.value >= 0 ? at : nodes_[node.suffix].member;
  }
  return true;
}

bool TextMatcher::find_everywhere(std::string_view text, Budget& budget, std::vector<Match>& matches) const {
  matches.clear();
  if (nodes_.size() == 1) return true;
  if (!budget.steps(1 + text.size() / 16)) return false;
  std::uint32_t node = 0;
  for (std::size_t at = text.size(); at > 0; --at) {
    node = next(node, static_cast<unsigned char>(text[at - 1]));
    const std::uint32_t member = nodes_[node].member;
    if (member == 0) continue;
    if (!budget.matches(1) || !budget.bytes(sizeof(Match))) return false;
    matches.push_back({at - 1, at - 1 + nodes_[member].depth, nodes_[member].value});
  }
  std::reverse(matches.begin(), matches.end());
  return true;
}

bool TextMatcher::find_all(std::string_view text, Budget& budget, std::vector<Match>& matches) const {
  if (!find_everywhere(text, budget, matches)) return false;
  // What begins inside the match before is none.
  std::size_t covered = 0;
  std::erase_if(matches, [&](const Match& match) {
    if (match.begin < covered) return true;
    covered = match.end;
    return false;
  });
  return true;
}

}  // namespace moracle
