// Metrics in Prometheus' text form, under the names that vLLM's dashboards ask for.
#pragma once

#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "serve/engine/token_engine.h"

namespace moracle::serve {

class Histogram {
 public:
  explicit Histogram(std::span<const double> bounds) : bounds_(bounds), counts_(bounds.size() + 1) {}
  void observe(double value);

  [[nodiscard]] std::span<const double> bounds() const { return bounds_; }
  [[nodiscard]] const std::vector<std::uint64_t>& counts() const { return counts_; }  // the last: above all bounds
  [[nodiscard]] double sum() const { return sum_; }

 private:
  std::span<const double> bounds_;
  std::vector<std::uint64_t> counts_;
  double sum_ = 0;
};

// One request that ended well, in seconds and tokens.
struct RequestFigures {
  double queue_s = 0, prefill_s = 0, decode_s = 0, whole_s = 0, first_token_s = 0;
  std::int64_t prompt = 0, cached = 0, completion = 0;
};

// Counted on the I/O thread alone.
class Metrics {
 public:
  Metrics();

  void count_http(std::string_view handler, std::string_view method, int status);
  void count_rejection(std::string_view reason) { ++rejections_[std::string(reason)]; }
  void count_cancel(std::string_view cause) { ++cancels_[std::string(cause)]; }
  void count_ignored(std::size_t fields) { ignored_ += fields; }
  void count_success(std::string_view finish) { ++successes_[std::string(finish)]; }
  void observe_params(std::int64_t n, std::int64_t max_tokens);
  void observe_token_gap(double seconds) { token_gap_.observe(seconds); }
  void observe_first_token(double seconds) { first_token_.observe(seconds); }
  void observe_request(const RequestFigures& figures);
  void count_tokens(std::int64_t prompt, std::int64_t cached, std::int64_t completion);
  void observe_steps(std::span<const StepFigures> steps);

  // `decisions`: layer kind and backend. Ends with a line break.
  [[nodiscard]] std::string text(const std::string& model, const EngineStatus& engine,
                                 std::span<const std::pair<std::string, std::string>> decisions) const;

  [[nodiscard]] std::uint64_t prompt_tokens() const { return prompt_tokens_; }
  [[nodiscard]] std::uint64_t generated_tokens() const { return generated_tokens_; }

 private:
  using Counters = std::map<std::string, std::uint64_t>;

  std::map<std::string, std::uint64_t> http_;  // by rendered labels
  Counters rejections_, cancels_, successes_;
  std::uint64_t ignored_ = 0, prompt_tokens_ = 0, cached_tokens_ = 0, generated_tokens_ = 0;
  Histogram first_token_, token_gap_, per_token_, whole_, queue_, prefill_, decode_, inference_, prompt_, completion_,
      iteration_, params_n_, params_max_, prefill_step_, decode_step_, mixed_step_;
};

// How many tokens each expert of each layer took, as metrics; layers without experts have none. Ends with a line break.
[[nodiscard]] std::string expert_metrics(const std::string& model, const RoutingSnapshot& routing,
                                         std::int64_t experts);

// Bytes of memory that this process holds; 0 where the system does not say.
[[nodiscard]] std::uint64_t resident_bytes();

}  // namespace moracle::serve
