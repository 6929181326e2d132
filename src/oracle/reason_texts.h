// Where the words of a decision's reasons live: one store a decision, so that a reason costs no allocation of its own.
#pragma once

#include <cstddef>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "scheme/quant_key.h"

namespace moracle {

// Views that it hands out stay valid as long as it lives, wherever it is moved.
class ReasonTexts {
 public:
  // A copy of `text`.
  [[nodiscard]] std::string_view keep(std::string_view text);
  // What `write(std::string&)` appends.
  template <class Write>
  [[nodiscard]] std::string_view written(Write&& write) {
    draft_.clear();
    std::forward<Write>(write)(draft_);
    return keep(draft_);
  }
  // scheme_text of it. The reasons of one decision name the same scheme again and again; it is written once.
  [[nodiscard]] std::string_view of(const Scheme& scheme);

 private:
  static constexpr std::size_t kBlock = 8192;
  std::vector<std::unique_ptr<char[]>> blocks_;
  std::size_t left_ = 0;  // free bytes behind `end_`
  char* end_ = nullptr;
  std::string draft_;
  std::optional<std::pair<Scheme, std::string_view>> scheme_;
};

}  // namespace moracle
