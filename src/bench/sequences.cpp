#include "bench/sequences.h"

#include <algorithm>
#include <memory>
#include <optional>
#include <string>
#include <utility>

#include "base/clock.h"
#include "base/random/random.h"
#include "bench/median.h"
#include "bench/model.h"
#include "generate/generate.h"
#include "generate/scheduler.h"

namespace moracle {

namespace {

// One step of 1 to a few tokens before the clock runs.
constexpr std::int64_t kWarmUpSteps = 3;

struct Sequence {
  std::vector<std::int32_t> prompt;
  std::unique_ptr<SequenceState> state;
};

class Ends final : public RequestSink {
 public:
  void on_token(RequestId /*id*/, const ScoredToken& /*token*/) override {}
  void on_end(RequestId /*id*/, const RequestOutcome& outcome) override {
    if (outcome.error && !error) error = outcome.error;
  }

  std::optional<Error> error;
};

class SequencesBench {
 public:
  SequencesBench(Session& session, const BenchSequencesOptions& options)
      : model_(session.model()), pool_(session.pool()), options_(options) {}

  [[nodiscard]] bool interrupted() const { return options_.interrupted && options_.interrupted(); }

  // The prompts but their last tokens, which the first decode step takes.
  Result<std::vector<Sequence>> prefill_all(std::int64_t sequences, BenchSequencesRow& row) {
    Random random(1);
    std::vector<Sequence> all(static_cast<std::size_t>(sequences));
    std::vector<double> rates;
    for (Sequence& each : all) {
      each.prompt = random_prompt(random, options_.prompt, model_.info().vocab_size);
      MORACLE_ASSIGN(each.state, model_.new_sequence());
      const std::span<const std::int32_t> all_but_last(each.prompt.data(), each.prompt.size() - 1);
      const Stopwatch watch;
      if (!all_but_last.empty())
        MORACLE_TRY(prefill(model_, pool_, *each.state, all_but_last, [this] { return interrupted(); }));
      rates.push_back(static_cast<double>(all_but_last.size()) / watch.seconds());
    }
    row.prefill_tok_s = median_of(std::move(rates));
    return all;
  }

  Result<> decode(std::vector<Sequence>& all, BenchSequencesRow& row) {
    Scheduler scheduler(model_, pool_,
                        {.max_running = std::ssize(all), .max_queue = std::ssize(all), .reuse_prefixes = false});
    Ends ends;
    for (Sequence& each : all) {
      MORACLE_TRY(scheduler.submit({.prompt = each.prompt,
                                    .max_tokens = kWarmUpSteps + options_.generate * options_.runs + 1,
                                    .state = each.state.get()},
                                   ends));
    }
    for (std::int64_t i = 0; i < kWarmUpSteps; ++i) scheduler.step();
    std::vector<double> rates;
    for (std::int64_t run = 0; run < options_.runs && !interrupted(); ++run) {
      const Stopwatch watch;
      for (std::int64_t i = 0; i < options_.generate; ++i) scheduler.step();
      rates.push_back(static_cast<double>(options_.generate * std::ssize(all)) / watch.seconds());
    }
    if (ends.error) return *std::move(ends.error);
    if (rates.empty()) return Ok{};
    row.least_tok_s = *std::min_element(rates.begin(), rates.end());
    row.most_tok_s = *std::max_element(rates.begin(), rates.end());
    row.decode_tok_s = median_of(std::move(rates));
    return Ok{};
  }

 private:
  Model& model_;
  ThreadPool& pool_;
  const BenchSequencesOptions& options_;
};

}  // namespace

Result<std::vector<BenchSequencesRow>> bench_sequences(Session& session, const BenchSequencesOptions& options) {
  const std::int64_t positions = options.prompt + kWarmUpSteps + options.generate * options.runs + 1;
  if (positions > session.info().max_context) {
    return Error{.code = "model.context",
                 .wanted = "a prompt and " + std::to_string(options.runs) + " runs of at most " +
                           std::to_string(session.info().max_context) + " tokens together",
                 .found = std::to_string(positions)};
  }
  SequencesBench bench(session, options);
  std::vector<BenchSequencesRow> rows;
  for (const std::int64_t sequences : options.sequences) {
    BenchSequencesRow row{.sequences = sequences};
    MORACLE_ASSIGN(auto all, bench.prefill_all(sequences, row));
    if (bench.interrupted()) break;
    MORACLE_TRY(bench.decode(all, row));
    if (bench.interrupted()) break;
    rows.push_back(row);
  }
  return rows;
}

}  // namespace moracle
