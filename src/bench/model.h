// Times a whole model: load, prefill and decode.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <vector>

#include "base/phase_clock.h"
#include "base/random/random.h"
#include "base/result.h"
#include "bench/routing_trace.h"
#include "generate/session.h"

namespace moracle {

struct BenchModelOptions {
  std::int64_t prompt = 512;
  std::int64_t generate = 64;
  double temperature = 0;               // 0: greedy; else tokens are drawn
  std::int64_t top_k = 0;               // among so many; 0: among all
  std::function<bool()> interrupted{};  // may be empty
  RoutingTrace* trace = nullptr;        // what timed calls choose goes there; null: nobody asks
};

struct BenchModelResult {
  LoadTime load;
  GenerationTiming timing;
  std::size_t peak_rss_bytes = 0;
  PhaseClock::Seconds prefill{};  // up to the choice of the first token
  PhaseClock::Seconds decode{};
  DecodeGraphs graphs{};                     // of the model; replayed in what was timed
  std::optional<ExpertSlots> prefill_slots;  // of a model that has slots: counts of what was timed
  std::optional<ExpertSlots> decode_slots;
  bool interrupted = false;
};

// So many ids below `vocabulary`, all as likely as each other.
std::vector<std::int32_t> random_prompt(Random& random, std::int64_t tokens, std::int64_t vocabulary);

// Feeds pseudo-random token ids and decodes whatever tokens come. The prompt goes once before, untimed, so that no page
// is touched for the first time while the clock runs. Errors: "model.context" when prompt, generate and the
// token that the prompt gives exceed the model's context, those of generate.
Result<BenchModelResult> bench_model(Session& session, const BenchModelOptions& options);

}  // namespace moracle
