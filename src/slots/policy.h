// Which expert gives way to another.
#pragma once

#include <cmath>
#include <cstdint>
#include <span>
#include <vector>

namespace moracle {

// By frequency with ageing: a use counts 1, and half of that `half_life` uses of any expert later. A score is kept as
// log2(count) + now / half_life, whose order does not change with time.
class AgeingFrequency {
 public:
  AgeingFrequency(std::size_t experts, double half_life) : scores_(experts, -kNever), half_life_(half_life) {}

  // Tells of a use.
  void use(std::size_t expert) {
    const double now = static_cast<double>(uses_++) / half_life_;
    const double held = std::exp2(scores_[expert] - now);
    scores_[expert] = std::log2(held + 1.0) + now;
  }
  // The one of least score; of equal ones the first. `experts` is not empty.
  [[nodiscard]] std::size_t least(std::span<const std::size_t> experts) const {
    std::size_t least = experts.front();
    for (const std::size_t expert : experts) {
      if (scores_[expert] < scores_[least]) least = expert;
    }
    return least;
  }

 private:
  static constexpr double kNever = 1e300;
  std::vector<double> scores_;
  double half_life_;
  std::uint64_t uses_ = 0;
};

}  // namespace moracle
