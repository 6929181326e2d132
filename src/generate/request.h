// One request to the scheduler, and what its sender is told.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "generate/sampling_fields.h"
#include "kernels/args/sample.h"
#include "text/constrain/constraint.h"

namespace moracle {

class SequenceState;

using RequestId = std::uint64_t;  // 1, 2, ... in order of submission; never used twice

inline constexpr std::int64_t kMostTopLogprobs = 20;
inline constexpr int kMostBias = 100;

struct Request {
  std::vector<std::int32_t> prompt{};  // at least one id
  // Token i of the answer is drawn from (sampling.seed, i): the same request gives the same tokens at any load.
  SamplingOptions sampling{};
  // Tokens of the answer at most; empty: as many as context and KV budget hold. 0 only with `echo` or `state`.
  std::optional<std::int64_t> max_tokens{};
  std::int64_t min_tokens = 0;                       // no end token and no stop token before so many
  std::vector<std::int32_t> end_ids{};               // the model's end tokens, in any order
  bool ignore_eos = false;                           // end_ids are tokens like others
  std::vector<std::int32_t> stop_ids{};              // end the answer beside end_ids, whatever ignore_eos says
  std::vector<LogitBias> logit_bias{};               // from -kMostBias to kMostBias
  std::shared_ptr<const ConstraintSource> output{};  // holds the answer to a form; null: any answer
  // Log-probabilities of the answer's tokens are wanted, each with so many alternatives (0 to kMostTopLogprobs).
  std::optional<std::int64_t> logprobs{};
  bool echo = false;           // the prompt's tokens are told first, with `logprobs` where those are wanted
  std::string key{};           // requests of one key share that key's turns
  std::string salt{};          // a prefix is reused among requests of the same key and salt
  std::int64_t priority = 0;   // among the waiting requests of one key: lower first, then in order of submission
  bool reuse_prefix = true;    // false: neither reads nor fills the store of prefixes
  bool count_routing = false;  // Scheduler::routing() and routing_of() count its tokens
  // The caller's, which holds the first tokens of the prompt and receives all others but the last one of the answer;
  // null: one of the scheduler's. It outlives the request. With it max_tokens may be 0: the prompt alone is computed.
  SequenceState* state = nullptr;
};

// "prompt.empty".
[[nodiscard]] Error no_prompt();
// Whether a model of this vocabulary can serve it. Errors: "prompt.empty", "model.token", "sampling.range".
[[nodiscard]] Result<> check(const Request& request, std::int64_t vocabulary);

// Which tokens end an answer; the one that does is no part of its text.
class StopRule {
 public:
  explicit StopRule(const Request& request);

  [[nodiscard]] std::span<const std::int32_t> ids() const { return ids_; }
  // Whether the answer may end behind `before` tokens.
  [[nodiscard]] bool allowed(std::int64_t before) const { return before >= min_tokens_; }
  // Whether the token behind `before` others ends it.
  [[nodiscard]] bool at(std::int32_t id, std::int64_t before) const;

 private:
  std::vector<std::int32_t> ids_;  // sorted
  std::int64_t min_tokens_;
};

// Log-probabilities are those of raw logits, before penalties, bias, masks and temperature.
struct ScoredToken {
  std::int32_t id = 0;
  std::optional<double> logprob{};      // empty: not asked for, or the first token of a prompt
  std::span<const TokenLogprob> top{};  // best first, of equal ones the lower id first; valid during the call
};

enum class RequestEnd : std::uint8_t {
  stop,       // an end token or a stop token
  length,     // max_tokens
  cancelled,  // by cancel()
  error,      // RequestOutcome::error says why
};
[[nodiscard]] std::string_view to_string(RequestEnd end);  // "stop", "length", "cancelled", "error"

// Tokens. A preemption counts nothing twice.
struct RequestUsage {
  std::int64_t prompt = 0;
  std::int64_t completion = 0;  // with the token that ended the answer
  std::int64_t cached = 0;      // of the prompt, taken from the store of prefixes
};

struct RequestOutcome {
  RequestEnd end = RequestEnd::stop;
  std::optional<std::int32_t> stop_id{};  // with RequestEnd::stop
  std::optional<Error> error{};           // with RequestEnd::error
  RequestUsage usage{};
};

// What happens to one request, in this order: start, prompt (echo), tokens, end. Called by the thread that calls
// Scheduler::step() or cancel(), during that call. A sink may call submit() and cancel(), and outlives its request.
class RequestSink {
 public:
  virtual ~RequestSink() = default;
  // The request has left the queue; `cached` tokens of its prompt are there already. Once, preempted or not.
  virtual void on_start(RequestId /*id*/, std::int64_t /*cached*/) {}
  // With `echo`: the next tokens of the prompt; the calls follow each other over the whole prompt.
  virtual void on_prompt(RequestId /*id*/, std::span<const ScoredToken> /*tokens*/) {}
  // The next token of the answer, the one that ends it included.
  virtual void on_token(RequestId id, const ScoredToken& token) = 0;
  // The last call for `id`; also without on_start(), where the request was cancelled or failed in the queue.
  virtual void on_end(RequestId id, const RequestOutcome& outcome) = 0;
};

}  // namespace moracle
