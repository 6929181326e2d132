// How settings of a layer are chosen: the rule, on times that are made up, and what is asked of the store.
#include <gtest/gtest.h>

#include <chrono>
#include <cmath>
#include <optional>
#include <thread>

#include "kernels/cpu/tuning.h"

namespace moracle::cpu {
namespace {

using namespace std::chrono_literals;

// Pairs whose gains are 1 + `gain` with a spread of `noise` to either side, in turn.
std::vector<TimedPair> pairs_of(double gain, double noise, std::size_t count) {
  std::vector<TimedPair> pairs;
  for (std::size_t i = 0; i < count; ++i) {
    const double step = static_cast<double>(i % 5) - 2;  // -2 .. 2
    pairs.push_back({.in_force = (1 + gain + noise * step) * 1e-3, .candidate = 1e-3});
  }
  return pairs;
}

TEST(TuningRule, TakesWhatIsFasterByMoreThanNoise) {
  const TuningVerdict clear = judge(pairs_of(0.5, 0.02, 15));
  EXPECT_TRUE(clear.taken);
  EXPECT_NEAR(clear.gain, 1.5, 1e-12);
  EXPECT_NEAR(clear.noise, 3 * 1.2533 / 0.6745 * 0.02 / std::sqrt(15.0), 1e-9);
}

TEST(TuningRule, DropsWhatNoiseCouldExplain) {
  EXPECT_FALSE(judge(pairs_of(0.1, 0.1, 15)).taken) << "three standard errors are 14 %";
  EXPECT_TRUE(judge(pairs_of(0.1, 0.1, 40)).taken) << "more pairs tell more";
}

TEST(TuningRule, DropsGainsThatAreNotWorthIt) {
  EXPECT_FALSE(judge(pairs_of(0.02, 0.0, 15)).taken);
  EXPECT_TRUE(judge(pairs_of(0.04, 0.0, 15)).taken);
}

TEST(TuningRule, DropsWhatIsSlower) {
  EXPECT_FALSE(judge(pairs_of(-0.3, 0.01, 15)).taken);
}

TEST(TuningRule, OneInterruptionDecidesNothing) {
  std::vector<TimedPair> pairs = pairs_of(0.0, 0.01, 15);
  pairs[3].in_force = 1.0;
  pairs[8].in_force = 1.0;
  EXPECT_FALSE(judge(pairs).taken);
}

TEST(TuningRule, TimesThatAreNoneAreLeftOut) {
  EXPECT_FALSE(judge({}).taken);
  const std::vector<TimedPair> stopped(9, TimedPair{.in_force = 1e-3, .candidate = 0});
  EXPECT_FALSE(judge(stopped).taken);
}

class Store : public TuningStore {
 public:
  const TuningTrials* recall(std::string_view) override { return kept ? &*kept : nullptr; }
  void keep(std::string_view kind, TuningTrials trials, double taken) override {
    seconds = taken;
    name = kind;
    kept = std::move(trials);
    ++writes;
  }
  std::optional<TuningTrials> kept;
  double seconds = 0;
  std::string name;
  int writes = 0;
};

class Layer : public PackedExperts {
 public:
  explicit Layer(std::size_t bytes) : bytes_(bytes) {}
  [[nodiscard]] std::size_t bytes() const override { return bytes_; }
  [[nodiscard]] std::size_t workspace_bytes(std::int64_t, std::int64_t, int) const override { return 64; }
  void run(const RunContext&, const ExpertsInput&, float*) const override {}

 private:
  std::size_t bytes_;
};

struct Outcome {
  Tuning tuning;
  int calls = 0;
};

// A layer that takes 16 ms, and 1 ms where several panels are read at a time.
Outcome tune_layer(std::size_t bytes, TuningStore* store) {
  Outcome outcome;
  ThreadPool pool(1);
  const Layer layer(bytes);
  const auto run = [&](const Tuning& tuning, const RunContext&, const ExpertsInput& input, float*) {
    ++outcome.calls;
    EXPECT_EQ(input.top_k, 2);
    for (std::int64_t i = 0; i < input.tokens * input.top_k; ++i) EXPECT_LT(input.ids[i], 5);
    std::this_thread::sleep_for(tuning.streams ? 1ms : 16ms);
  };
  outcome.tuning = tune({.packed = layer, .experts = 5, .hidden = 8, .run_from = 0, .run = run},
                        {.pool = pool, .tunings = store, .kind = "a kind", .top_k = 2});
  return outcome;
}

TEST(Tune, MeasuresOnceAndRemembers) {
  Store store;
  const Outcome measured = tune_layer(kLeastTunedBytes, &store);
  EXPECT_TRUE(measured.tuning.streams);
  EXPECT_GT(measured.calls, 0);
  EXPECT_EQ(store.writes, 1);
  EXPECT_GT(store.seconds, 0);
  EXPECT_EQ(store.name, "a kind");
  ASSERT_FALSE(store.kept->empty());
  EXPECT_EQ(store.kept->front().setting, "streams");
  EXPECT_GT(store.kept->front().gain, 2);
  for (const TuningTrial& trial : *store.kept) EXPECT_NE(trial.setting, "run_from") << "runs of another order";
  const Outcome remembered = tune_layer(kLeastTunedBytes, &store);
  EXPECT_EQ(remembered.tuning, measured.tuning);
  EXPECT_EQ(remembered.calls, 0);
  EXPECT_EQ(store.writes, 1);
}

TEST(Tune, SmallLayersAndThoseWithoutAStoreHaveTheDefaults) {
  Store store;
  const Outcome small = tune_layer(kLeastTunedBytes - 1, &store);
  EXPECT_EQ(small.tuning, Tuning{});
  EXPECT_EQ(small.calls, 0);
  EXPECT_EQ(store.writes, 0);
  EXPECT_EQ(tune_layer(kLeastTunedBytes, nullptr).calls, 0);
}

TEST(Tune, WordsThatMeanNothingHereAreMeasuredAgain) {
  for (const TuningTrial& trial : {TuningTrial{.setting = "streams", .value = "seven", .taken = true},
                                   TuningTrial{.setting = "colour", .value = "many", .taken = true},
                                   TuningTrial{.setting = "run_from", .value = "48", .taken = true}}) {
    Store store;
    store.kept = TuningTrials{trial};
    EXPECT_GT(tune_layer(kLeastTunedBytes, &store).calls, 0) << trial.setting;
    EXPECT_EQ(store.writes, 1);
  }
}

}  // namespace
}  // namespace moracle::cpu
