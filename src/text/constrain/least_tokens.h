// A reply of so many tokens at least.
#pragma once

#include <cstdint>
#include <span>
#include <utility>
#include <vector>

#include "text/constrain/constraint.h"

namespace moracle {

// No token of `ends` comes before `least` others.
class LeastTokens final : public Constraint {
 public:
  LeastTokens(std::vector<std::int32_t> ends, std::int64_t least) : ends_(std::move(ends)), left_(least) {}

  [[nodiscard]] bool allows_all() const override { return left_ <= 0 || ends_.empty(); }
  void narrow(std::span<std::uint32_t> mask) const override;
  void advance(std::int32_t /*id*/) override { --left_; }

 private:
  std::vector<std::int32_t> ends_;
  std::int64_t left_;  // tokens until an end may come
};

}  // namespace moracle
