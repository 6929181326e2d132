// Reads a streamed completion and notes when its pieces came.
#pragma once

#include <chrono>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/json.h"
#include "base/result.h"

namespace moracle::load {

class StreamedReply {
 public:
  using Time = std::chrono::steady_clock::time_point;

  explicit StreamedReply(Time begun) : begun_(begun) {}

  // A piece of the stream, which came at `now`. Error: "bench.stream".
  Result<> take(std::string_view piece, Time now);
  // The stream has ended. Error: "bench.stream" where it lacks text, usage or its last event.
  Result<> finish() const;

  [[nodiscard]] double first_s() const { return seconds(begun_, first_); }
  [[nodiscard]] double whole_s() const { return seconds(begun_, last_); }
  // Behind the first token, of each.
  [[nodiscard]] double token_s() const { return seconds(first_, last_) / static_cast<double>(completion_ - 1); }
  [[nodiscard]] const std::vector<double>& gaps() const { return gaps_; }
  [[nodiscard]] std::int64_t prompt_tokens() const { return prompt_; }
  [[nodiscard]] std::int64_t cached_tokens() const { return cached_; }
  [[nodiscard]] std::int64_t completion_tokens() const { return completion_; }

 private:
  static double seconds(Time from, Time to) { return std::chrono::duration<double>(to - from).count(); }
  Result<> take_event(std::string_view data, Time now);
  Result<> take_usage(const Json& usage);

  Time begun_, first_{}, last_{};
  std::string held_;  // of an event that is not whole
  std::vector<double> gaps_;
  std::int64_t prompt_ = 0, cached_ = 0, completion_ = 0;
  bool done_ = false;
};

}  // namespace moracle::load
