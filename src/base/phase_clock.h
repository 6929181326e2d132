// Where the time of a forward pass goes.
#pragma once

#include <array>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <string_view>

namespace moracle {

enum class Phase : std::uint8_t {
  embedding,
  norms,           // of layers and before the head, with the residual sums
  projections,     // linears of the mixers
  attention,       // norms of heads, rope, scores, softmax, values; recurrences
  routing,         // router, choice
  experts,         // routed experts, weighted sum
  shared_experts,  // those that see every token
  dense,           // feed-forwards of layers without experts
  head,
  other,  // checks of the logits, choice of the token
};
inline constexpr std::size_t kPhases = 10;
[[nodiscard]] std::string_view to_string(Phase phase);  // the enumerator's name

// Time belongs to one phase at a time: the one entered last. For one thread.
class PhaseClock {
 public:
  using Seconds = std::array<double, kPhases>;  // by Phase

  void enter(Phase phase) {
    const auto now = std::chrono::steady_clock::now();
    seconds_[static_cast<std::size_t>(phase_)] += std::chrono::duration<double>(now - since_).count();
    since_ = now;
    phase_ = phase;
  }
  // Up to the last enter(). Starts anew from zero.
  Seconds take() {
    const Seconds taken = seconds_;
    seconds_ = {};
    return taken;
  }

 private:
  Seconds seconds_{};
  std::chrono::steady_clock::time_point since_ = std::chrono::steady_clock::now();
  Phase phase_ = Phase::other;
};

}  // namespace moracle
