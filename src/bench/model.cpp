#include "bench/model.h"

#include "base/memory.h"

namespace moracle {

std::vector<std::int32_t> random_prompt(Random& random, std::int64_t tokens, std::int64_t vocabulary) {
  std::vector<std::int32_t> ids(static_cast<std::size_t>(tokens));
  for (std::int32_t& id : ids) id = static_cast<std::int32_t>(random.below(static_cast<std::uint32_t>(vocabulary)));
  return ids;
}

namespace {

// What has happened since `before`.
std::optional<ExpertSlots> since(const std::optional<ExpertSlots>& before, std::optional<ExpertSlots> now) {
  if (!before || !now) return std::nullopt;
  now->uses -= before->uses;
  now->hits -= before->hits;
  now->reads -= before->reads;
  now->read_bytes -= before->read_bytes;
  now->ahead -= before->ahead;
  now->foreseen -= before->foreseen;
  now->failures -= before->failures;
  return now;
}

}  // namespace

Result<BenchModelResult> bench_model(Session& session, const BenchModelOptions& options) {
  const ModelInfo& info = session.info();
  // The prompt gives a token, too.
  if (options.prompt + options.generate >= info.max_context) {
    return Error{.code = "model.context",
                 .wanted = "prompt and generate of fewer than " + std::to_string(info.max_context) + " tokens together",
                 .found = std::to_string(options.prompt + options.generate)};
  }
  Random random(1);
  const std::vector<std::int32_t> prompt = random_prompt(random, options.prompt, info.vocab_size);

  GenerateOptions generation;
  generation.interrupted = options.interrupted;
  generation.sampling.temperature = options.temperature;
  generation.sampling.top_k = options.top_k;
  MORACLE_TRY(session.model().reserve(std::min(options.prompt, session.model().prefill_chunk())));
  {
    generation.max_tokens = 1;
    MORACLE_ASSIGN(const auto warm_up, session.model().new_sequence());
    MORACLE_TRY(generate(session.model(), session.pool(), *warm_up, prompt, generation));
  }
  // The first token comes out of the prefill; the rest are decode steps.
  BenchModelResult result;
  PhaseClock clock;
  bool prefilled = false;
  std::optional<ExpertSlots> slots = session.model().expert_slots();
  generation.on_token = [&](std::int32_t) {
    if (options.trace != nullptr) options.trace->end_call();
    if (prefilled) return;
    prefilled = true;
    clock.enter(Phase::other);
    result.prefill = clock.take();
    result.prefill_slots = since(slots, session.model().expert_slots());
    slots = session.model().expert_slots();
  };
  generation.max_tokens = options.generate + 1;
  MORACLE_ASSIGN(const auto state, session.model().new_sequence());
  if (options.trace != nullptr) state->count_routing(options.trace->counts().data());
  session.model().time_phases(&clock);
  clock.enter(Phase::other);
  clock.take();
  const std::int64_t replayed = session.model().decode_graphs().replayed;
  auto generated = generate(session.model(), session.pool(), *state, prompt, generation);
  session.model().time_phases(nullptr);
  clock.enter(Phase::other);
  result.decode = clock.take();
  if (!generated.ok()) return std::move(generated).error();
  result.decode_slots = since(slots, session.model().expert_slots());
  result.graphs = session.model().decode_graphs();
  result.graphs.replayed -= replayed;
  result.load = session.load_time();
  result.timing = generated->timing;
  result.peak_rss_bytes = peak_resident_bytes();
  result.interrupted = generated->finish == FinishReason::interrupted;
  return result;
}

}  // namespace moracle
