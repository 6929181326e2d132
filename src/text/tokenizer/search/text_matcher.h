// Finds the members of a set of texts wherever they occur in a text.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string_view>
#include <vector>

#include "base/budget.h"
#include "base/generic/flat_map.h"

namespace moracle {

// One automaton (Aho and Corasick's) over the reversed texts, fed with a text from its end: where it stands at a place,
// it knows the longest member that begins there. So every match is found in one pass, whatever the texts share.
class TextMatcher {
 public:
  struct Match {
    std::size_t begin, end;
    std::int32_t value;
  };

  // Not empty; of equal texts the smallest value (>= 0) stays. False: the budget is spent.
  [[nodiscard]] bool add(std::string_view text, std::int32_t value, Budget& budget);
  // After the last text.
  [[nodiscard]] bool finish(Budget& budget);

  // The longest member at the leftmost place, and so on behind it. False: the budget is spent.
  [[nodiscard]] bool find_all(std::string_view text, Budget& budget, std::vector<Match>& matches) const;
  // The longest member at every place, also inside of others. False: the budget is spent.
  [[nodiscard]] bool find_everywhere(std::string_view text, Budget& budget, std::vector<Match>& matches) const;

 private:
  struct Node {
    std::uint32_t parent = 0;
    std::uint32_t suffix = 0;  // the longest proper suffix that is a node
    std::uint32_t member = 0;  // the node itself, or the longest suffix, that is a whole text; 0: none
    std::int32_t value = -1;
    std::uint32_t depth = 0;
    unsigned char byte = 0;
  };
  [[nodiscard]] std::uint32_t child(std::uint32_t node, unsigned char byte) const {
    if (node == 0) return roots_[byte];
    const std::uint32_t* const found = children_.find(std::uint64_t{node} << 8U | byte);
    return found == nullptr ? 0 : *found;
  }
  [[nodiscard]] std::uint32_t next(std::uint32_t node, unsigned char byte) const {
    for (;;) {
      const std::uint32_t found = child(node, byte);
      if (found != 0 || node == 0) return found;
      node = nodes_[node].suffix;
    }
  }

  std::vector<Node> nodes_ = std::vector<Node>(1);  // the root is 0
  std::array<std::uint32_t, 256> roots_{};
  FlatMap<std::uint32_t> children_;  // node << 8 | byte, but for the root's
};

}  // namespace moracle
