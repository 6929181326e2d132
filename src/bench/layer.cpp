#include "bench/layer.h"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "base/clock.h"
#include "base/random/random.h"
#include "bench/baseline.h"
#include "bench/median.h"
#include "bench/ref_error.h"
#include "kernels/pack_memory.h"
#include "moe/layer_runner.h"
#include "synth/synthetic_experts.h"

namespace moracle {

namespace {

constexpr std::uint64_t kLeastRotation = 600'000'000;
constexpr std::size_t kCalibrationBytes = std::size_t{1} << 30;
constexpr double kLeastSeconds = 1.0;
constexpr std::int64_t kLeastIterations = 5;
constexpr std::int64_t kMostIterations = 100'000;
constexpr std::int64_t kWarmUp = 2;

LayerInput random_input(const LayerShape& shape, std::int64_t tokens, Random& random) {
  LayerInput input{.tokens = tokens, .hidden = shape.hidden, .top_k = shape.top_k, .x = {}, .ids = {}, .weights = {}};
  input.x.resize(static_cast<std::size_t>(tokens * shape.hidden));
  for (float& value : input.x) value = random.normal();
  input.ids.resize(static_cast<std::size_t>(tokens * shape.top_k));
  input.weights.assign(input.ids.size(), 1.0F / static_cast<float>(shape.top_k));
  return input;
}

// Uniform, without repetition within a token. Returns the number of active experts.
std::int64_t draw_routing(const LayerShape& shape, LayerInput& input, Random& random,
                          std::vector<std::int64_t>& tokens_of_expert) {
  tokens_of_expert.assign(static_cast<std::size_t>(shape.experts), 0);
  std::vector<std::int32_t> order(static_cast<std::size_t>(shape.experts));
  std::iota(order.begin(), order.end(), 0);
  for (std::int64_t token = 0; token < input.tokens; ++token) {
    for (std::size_t j = 0; j < static_cast<std::size_t>(shape.top_k); ++j) {
      const auto pick = j + random.below(static_cast<std::uint32_t>(order.size() - j));
      std::swap(order[j], order[pick]);
      input.ids[static_cast<std::size_t>(token * shape.top_k) + j] = order[j];
      ++tokens_of_expert[static_cast<std::size_t>(order[j])];
    }
  }
  return shape.experts - std::count(tokens_of_expert.begin(), tokens_of_expert.end(), 0);
}

// Microseconds that no kernel on this machine can go below; none where its limits are unknown.
std::optional<double> floor_us(const BenchLayerRow& row) {
  if (!row.before || !row.after) return std::nullopt;
  const double bandwidth = std::max(row.before->read_gb_s, row.after->read_gb_s) * 1e9;
  const double peak = std::max(row.before->gflop_s, row.after->gflop_s) * 1e9;
  const double operations = row.gflop_s * 1e9 * row.median_us / 1e6;
  return std::max(static_cast<double>(row.weight_bytes) / bandwidth, operations / peak) * 1e6;
}

class LayerBench {
 public:
  LayerBench(const BenchLayerOptions& options, ThreadPool& pool) : options_(options), pool_(pool) {}

  Result<BenchLayerResult> run();

 private:
  // Packing is one step, and each row another.
  void report(const std::string& what, double steps) const {
    const auto all = static_cast<double>(1 + options_.tokens.size());
    if (options_.on_progress) options_.on_progress(what, steps / all);
  }
  [[nodiscard]] bool interrupted() const { return options_.interrupted && options_.interrupted(); }
  [[nodiscard]] Factors factors() const;  // of the kernel's products
  Result<> pack_copies();
  Result<BenchLayerRow> time_row(std::int64_t tokens);
  Result<double> time_baseline(std::int64_t tokens);
  [[nodiscard]] std::optional<Calibration> calibrate() const {
    return calibrator_ ? std::optional(calibrator_->measure()) : std::nullopt;
  }

  const BenchLayerOptions& options_;
  ThreadPool& pool_;
  const KernelCard* card_ = nullptr;
  std::vector<LayerRunner> copies_;
  std::optional<Calibrator> calibrator_;
  std::optional<DequantizeBaseline> baseline_;
  BenchLayerResult result_;
};

Result<> LayerBench::pack_copies() {
  const LayerShape& shape = options_.shape;
  const std::int64_t published =
      3 * shape.experts * published_bytes(options_.scheme.scheme.weight, shape.intermediate, shape.hidden);
  const auto most = static_cast<std::uint64_t>(0.7 * static_cast<double>(options_.machine.memory_bytes));
  if (static_cast<std::uint64_t>(published) > most) {
    return Error{.code = "memory.plan",
                 .where = shape.name,
                 .wanted = "a layer of at most " + std::to_string(most) + " bytes",
                 .found = std::to_string(published) + " bytes",
                 .advice = "choose a smaller shape or a narrower scheme"};
  }
  const std::uint64_t enough = std::max(kLeastRotation, 2 * options_.machine.l3_bytes);
  std::vector<std::int32_t> all(static_cast<std::size_t>(shape.experts));
  std::iota(all.begin(), all.end(), 0);
  const std::int64_t most_tokens = *std::max_element(options_.tokens.begin(), options_.tokens.end());
  // The weights of every copy are the same: what matters is that they lie elsewhere.
  MORACLE_ASSIGN(const CanonicalExperts experts, synthetic_experts(shape, options_.scheme, 1, all));
  const auto scratch = std::make_shared<PersistentScratch>(options_.device);
  const auto workspace = std::make_shared<DeviceWorkspace>(options_.device);
  do {
    if (interrupted()) return Error{.code = "interrupted", .found = "benchmark stopped"};
    report("packing", static_cast<double>(result_.packed_bytes) / static_cast<double>(enough));
    MORACLE_ASSIGN(LayerRunner copy, LayerRunner::pack(*card_, experts,
                                                       {.pool = pool_,
                                                        .activation = shape.activation,
                                                        .batch_invariant = options_.policy.batch_invariant,
                                                        .device = options_.device,
                                                        .scratch = scratch},
                                                       workspace));
    result_.packed_bytes += copy.packed().bytes();
    copies_.push_back(std::move(copy));
  } while (result_.packed_bytes <= enough &&
           result_.packed_bytes / copies_.size() * (copies_.size() + 1) + (std::uint64_t{2} << 30U) < most);
  for (LayerRunner& copy : copies_) MORACLE_TRY(copy.reserve(most_tokens, shape.top_k));
  result_.copies = static_cast<std::int64_t>(copies_.size());
  return Ok{};
}

Result<BenchLayerRow> LayerBench::time_row(std::int64_t tokens) {
  const LayerShape& shape = options_.shape;
  report("timing " + std::to_string(tokens) + " tokens", 1 + static_cast<double>(result_.rows.size()));
  Random random(static_cast<std::uint64_t>(tokens));
  LayerInput input = random_input(shape, tokens, random);
  std::vector<float> out(static_cast<std::size_t>(tokens * shape.hidden));
  std::vector<std::int64_t> tokens_of_expert;
  std::vector<double> times;
  double active = 0;
  const auto before = calibrate();
  const Stopwatch row_watch;
  for (std::int64_t i = -kWarmUp; i < kMostIterations; ++i) {
    if (i >= kLeastIterations && row_watch.seconds() >= kLeastSeconds) break;
    const std::int64_t experts = draw_routing(shape, input, random, tokens_of_expert);
    LayerRunner& copy = copies_[static_cast<std::size_t>(i + kWarmUp) % copies_.size()];
    const Stopwatch watch;
    copy.run(input.view(), out.data());
    const double whole = watch.seconds();
    MORACLE_TRY(copy.status());
    MORACLE_ASSIGN(const std::optional<double> on_device, copy.device_seconds());
    const double seconds = on_device.value_or(whole);
    if (i < 0) continue;
    times.push_back(seconds);
    active += static_cast<double>(experts);
  }
  BenchLayerRow row{.tokens = tokens, .iterations = static_cast<std::int64_t>(times.size())};
  row.before = before;
  row.after = calibrate();
  const double median = median_of(times);
  row.median_us = median * 1e6;
  row.min_us = *std::min_element(times.begin(), times.end()) * 1e6;
  row.experts = std::llround(active / static_cast<double>(times.size()));
  const QuantKey& key = options_.scheme.scheme.weight;
  row.weight_bytes = row.experts * (2 * published_bytes(key, shape.intermediate, shape.hidden) +
                                    published_bytes(key, shape.hidden, shape.intermediate));
  row.weight_gb_s = static_cast<double>(row.weight_bytes) / median / 1e9;
  row.gflop_s = 6.0 * static_cast<double>(tokens * shape.top_k) * static_cast<double>(shape.hidden) *
                static_cast<double>(shape.intermediate) / median / 1e9;
  row.floor_us = floor_us(row);
  MORACLE_ASSIGN(row.rel_err, ref_error(shape, options_.scheme, pool_, input, out));
  if (baseline_) {
    MORACLE_ASSIGN(row.dequantize_to_bf16_us, time_baseline(tokens));
  }
  return row;
}

Result<double> LayerBench::time_baseline(std::int64_t tokens) {
  report("timing the bf16 detour", 1.5 + static_cast<double>(result_.rows.size()));
  Random random(static_cast<std::uint64_t>(tokens) + 1);
  LayerInput input = random_input(options_.shape, tokens, random);
  std::vector<std::int64_t> tokens_of_expert;
  std::vector<double> times;
  const Stopwatch watch;
  for (std::int64_t i = -kWarmUp; i < kMostIterations; ++i) {
    if (i >= kLeastIterations && watch.seconds() >= kLeastSeconds) break;
    draw_routing(options_.shape, input, random, tokens_of_expert);
    const double seconds = baseline_->run(tokens_of_expert);
    if (i >= 0) times.push_back(seconds);
  }
  return median_of(times) * 1e6;
}

Factors LayerBench::factors() const {
  const Scheme& scheme = options_.scheme.scheme;
  const int weight_bits = bits_of(scheme.weight.element);
  if (scheme.activation) return {weight_bits, scheme.activation->element == Element::int8 ? 8 : 0};
  // Tiles of bf16, whose sums depend on the run, take only short ones as integers.
  if (has(card_->cpu_features, CpuFeature::amx_tile) && !card_->batch_invariant) return {};
  if (card_->inputs == InputRounding::eight_bits) return {weight_bits, 8};
  return {weight_bits, card_->inputs == InputRounding::sixteen_bits ? 16 : 0};
}

Result<BenchLayerResult> LayerBench::run() {
  const NamedScheme& scheme = options_.scheme;
  const Problem problem = layer_problem(options_.shape, scheme);
  MORACLE_ASSIGN(const Table* table, table_for(scheme.scheme));
  const Decision decision = decide(problem, options_.machine, options_.policy, *table);
  MORACLE_ASSIGN(card_, winner_of(decision, problem));
  result_.backend = card_->backend;
  result_.device = options_.machine.name;
  result_.threads = pool_.threads();
  // A kernel is measured against the peak of the instructions it uses, not of those the machine has besides.
  const cpu::CalibrationOps* ops = calibration_ops(options_.machine, card_->cpu_features, factors());
  if (ops != nullptr) {
    MORACLE_ASSIGN(Calibrator calibrator, Calibrator::make(*ops, pool_, kCalibrationBytes));
    calibrator_.emplace(std::move(calibrator));
  }
  MORACLE_TRY(pack_copies());
  if (options_.baseline && ops != nullptr && scheme.scheme.weight.quantized()) {
    const std::int64_t most = *std::max_element(options_.tokens.begin(), options_.tokens.end());
    auto baseline = DequantizeBaseline::make(options_.shape, scheme, options_.machine, *ops, most, pool_);
    if (baseline.ok()) baseline_.emplace(std::move(baseline).value());
  }
  for (const std::int64_t tokens : options_.tokens) {
    if (interrupted()) return Error{.code = "interrupted", .found = "benchmark stopped"};
    MORACLE_ASSIGN(BenchLayerRow row, time_row(tokens));
    result_.rows.push_back(row);
  }
  return std::move(result_);
}

}  // namespace

Result<BenchLayerResult> bench_layer(const BenchLayerOptions& options) {
  if (options.tokens.empty() || *std::min_element(options.tokens.begin(), options.tokens.end()) < 1) {
    return Error{.code = "bench.tokens", .wanted = "token counts of at least 1", .found = "none, or a smaller one"};
  }
  const int cores = options.device == nullptr ? options.machine.cores : probe_machine().cores;
  ThreadPool pool(options.threads > 0 ? options.threads : cores);
  if (const std::string fewer = pool.shortfall(); !fewer.empty() && options.on_warning) options.on_warning(fewer);
  LayerBench bench(options, pool);
  return bench.run();
}

}  // namespace moracle
