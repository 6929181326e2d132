// What the server asks of whatever makes tokens: the scheduler, or a test's stand-in.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <vector>

#include "generate/request.h"
#include "model/model.h"

namespace moracle::serve {

// ScoredToken, which owns its alternatives.
struct OwnedToken {
  std::int32_t id = 0;
  std::optional<double> logprob{};
  std::vector<TokenLogprob> top{};
};

// What happened to one request since the event before.
struct EngineEvent {
  bool accepted = false;                                           // it is in the queue
  std::optional<std::chrono::steady_clock::time_point> started{};  // it left the queue
  std::int64_t cached = 0;  // with `started`: tokens of the prompt that were there already
  std::vector<OwnedToken> prompt{};
  std::vector<OwnedToken> tokens{};
  std::optional<RequestOutcome> outcome{};  // the last event
  std::vector<std::uint32_t> routing{};     // with `outcome`: [layers, experts], tokens that each expert took
};

struct EngineStatus {
  std::int64_t running = 0;
  std::int64_t waiting = 0;
  std::int64_t deferred = 0;  // of these, that are held, or whose key has as many running as it may
  std::int64_t waiting_tokens = 0;
  std::int64_t kv_bytes = 0;
  std::int64_t kv_prefix_bytes = 0;  // of these, that stored prefixes alone hold
  std::int64_t kv_budget = 0;
  std::optional<ExpertSlots> experts{};  // of the model; empty: all are in memory
  std::uint64_t steps = 0;
  std::uint64_t prefix_queries = 0;
  std::uint64_t prefix_hits = 0;
  std::uint64_t preemptions = 0;
  double prefill_rate = 0;     // tokens a second
  double request_seconds = 0;  // of steps, between two requests that end
  double stalled_s = 0;        // since a step ended, while there is work; 0: none is pending
};

// One step of the engine.
struct StepFigures {
  std::int64_t prompt_tokens = 0;
  std::int64_t decodes = 0;  // requests that got one token more
  double seconds = 0;
};

// Tokens that each expert took, [layers, experts], as of a step.
struct RoutingSnapshot {
  std::uint64_t steps = 0;
  std::vector<std::uint64_t> all{};                               // of all requests
  std::map<std::uint64_t, std::vector<std::uint32_t>> running{};  // by ticket
};

class TokenEngine {
 public:
  using Ticket = std::uint64_t;
  using Listener = std::function<void(EngineEvent&&)>;

  virtual ~TokenEngine() = default;
  // Callable from any thread; errors come as an outcome. The listener is called on the engine's thread, in order, and
  // never after an outcome.
  virtual Ticket submit(Request request, Listener listener) = 0;
  // Ends the request by the end of the step that is running. An outcome follows unless one came before.
  virtual void cancel(Ticket ticket) = 0;
  // Leaves the request out of steps until it is let go; what is cancelled ends all the same.
  virtual void hold(Ticket ticket, bool held) = 0;
  [[nodiscard]] virtual EngineStatus status() const = 0;
  // The steps that ended since it was last asked; the latest kMostSteps, where there were more.
  static constexpr std::size_t kMostSteps = 16384;
  virtual std::vector<StepFigures> take_steps() { return {}; }
  // The snapshot that was last asked for, and asks for the next: it is taken when a step ends, at once where none runs.
  // Null: there is none yet.
  virtual std::shared_ptr<const RoutingSnapshot> routing() { return nullptr; }
};

}  // namespace moracle::serve
