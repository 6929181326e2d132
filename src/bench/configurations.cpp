#include "bench/configurations.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <numeric>
#include <optional>
#include <set>
#include <sstream>

#include "base/checked.h"
#include "base/clock.h"
#include "base/memory.h"
#include "bench/ref_error.h"
#include "bench/spec_routing.h"
#include "kernels/kernel.h"
#include "kernels/pack_memory.h"
#include "synth/synthetic_experts.h"

namespace moracle {

namespace {

constexpr std::int64_t kRotation = 1'300'000'000;  // published bytes of all copies, at least
constexpr std::int64_t kMostCopies = 4;
constexpr int kWarmReplays = 2;
constexpr int kLeastReplays = 5;
constexpr int kMostReplays = 15;
constexpr double kMostSeconds = 0.35;

Error line_error(std::size_t line, std::string wanted, std::string found) {
  return {.code = "cells.line",
          .where = "line " + std::to_string(line),
          .wanted = std::move(wanted),
          .found = std::move(found)};
}

std::string long_name(const std::string& name) {
  if (name == "Q") return "qwen3-30b-a3b";
  if (name == "G") return "gpt-oss-20b";
  if (name == "G120") return "gpt-oss-120b";
  if (name == "D") return "deepseek-v3";
  return name;
}

// All calls of one measurement, ready to be made again and again.
class Replay {
 public:
  virtual ~Replay() = default;
  // Seconds of all calls.
  virtual Result<double> run() = 0;
  // Output of the first call.
  virtual Result<std::vector<float>> first_output() = 0;
};

using Copies = std::vector<std::unique_ptr<PackedExperts>>;

class HostReplay final : public Replay {
 public:
  static Result<std::unique_ptr<Replay>> make(ThreadPool& pool, const Copies& copies,
                                              const std::vector<LayerInput>& inputs) {
    const LayerInput& largest = inputs.front();  // all are as large
    const std::size_t bytes = copies.front()->workspace_bytes(largest.tokens, largest.top_k, pool.threads());
    MORACLE_ASSIGN(PageBuffer workspace, PageBuffer::allocate(bytes));
    return std::unique_ptr<Replay>(new HostReplay(pool, copies, inputs, std::move(workspace)));
  }
  Result<double> run() override {
    const Stopwatch watch;
    for (std::size_t call = 0; call < inputs_.size(); ++call) {
      copies_[call % copies_.size()]->run({.stream = stream_, .workspace = {workspace_.data(), workspace_.size()}},
                                          inputs_[call].view(), outs_[call].data());
    }
    return watch.seconds();
  }
  Result<std::vector<float>> first_output() override { return outs_.front(); }

 private:
  HostReplay(ThreadPool& pool, const Copies& copies, const std::vector<LayerInput>& inputs, PageBuffer workspace)
      : stream_(pool), copies_(copies), inputs_(inputs), workspace_(std::move(workspace)) {
    for (const LayerInput& input : inputs) outs_.emplace_back(input.x.size());
  }

  Stream stream_;
  const Copies& copies_;
  const std::vector<LayerInput>& inputs_;
  PageBuffer workspace_;
  std::vector<std::vector<float>> outs_;
};

// Inputs and outputs of every call lie on the device; all calls are one graph.
class DeviceReplay final : public Replay {
 public:
  static Result<std::unique_ptr<Replay>> make(const GpuDevice& device, const Copies& copies,
                                              const std::vector<LayerInput>& inputs) {
    auto replay = std::unique_ptr<DeviceReplay>(new DeviceReplay(device));
    MORACLE_ASSIGN(replay->stream_, device.make_stream());
    MORACLE_ASSIGN(replay->begin_, device.make_event());
    MORACLE_ASSIGN(replay->end_, device.make_event());
    MORACLE_TRY(replay->capture(copies, inputs));
    return std::unique_ptr<Replay>(std::move(replay));
  }
  Result<double> run() override {
    stream_.record(begin_);
    stream_.launch(*graph_);
    stream_.record(end_);
    MORACLE_TRY(stream_.wait());
    return device_.seconds_between(begin_, end_);
  }
  Result<std::vector<float>> first_output() override {
    std::vector<float> out(out_size_);
    stream_.to_host(out.data(), first_out_, out.size() * sizeof(float));
    MORACLE_TRY(stream_.wait());
    return out;
  }

 private:
  explicit DeviceReplay(const GpuDevice& device) : device_(device) {}

  Result<std::byte*> room(std::size_t bytes) {
    MORACLE_ASSIGN(Buffer buffer, device_.allocate(bytes, "inputs and outputs"));
    buffers_.push_back(std::move(buffer));
    return buffers_.back().data();
  }
  template <class T>
  Result<T*> upload(const std::vector<T>& values) {
    MORACLE_ASSIGN(std::byte* const to, room(values.size() * sizeof(T)));
    stream_.to_device(to, values.data(), values.size() * sizeof(T));
    return reinterpret_cast<T*>(to);
  }

  struct Call {
    ExpertsInput input{};
    float* out = nullptr;
  };

  Result<> capture(const Copies& copies, const std::vector<LayerInput>& inputs) {
    const std::size_t bytes = copies.front()->workspace_bytes(inputs.front().tokens, inputs.front().top_k, 1);
    MORACLE_ASSIGN(std::byte* const workspace, room(bytes));
    std::vector<Call> calls;
    for (const LayerInput& input : inputs) {
      Call call{.input = {.tokens = input.tokens, .top_k = input.top_k}};
      MORACLE_ASSIGN(call.input.x, upload(input.x));
      MORACLE_ASSIGN(call.input.ids, upload(input.ids));
      MORACLE_ASSIGN(call.input.weights, upload(input.weights));
      MORACLE_ASSIGN(std::byte* const out, room(input.x.size() * sizeof(float)));
      stream_.fill(out, 0xFF, input.x.size() * sizeof(float));
      call.out = reinterpret_cast<float*>(out);
      calls.push_back(call);
    }
    MORACLE_TRY(stream_.wait());
    first_out_ = calls.front().out;
    out_size_ = inputs.front().x.size();
    MORACLE_ASSIGN(graph_, stream_.capture([&] {
      const RunContext context{.stream = stream_, .workspace = {workspace, bytes}};
      for (std::size_t i = 0; i < calls.size(); ++i)
        copies[i % copies.size()]->run(context, calls[i].input, calls[i].out);
    }));
    return Ok{};
  }

  const GpuDevice& device_;
  Stream stream_;
  Event begin_;
  Event end_;
  std::vector<Buffer> buffers_;
  std::optional<Graph> graph_;
  const float* first_out_ = nullptr;
  std::size_t out_size_ = 0;
};

// One line: its copies of the layer, then each token count.
class LineBench {
 public:
  LineBench(const BenchConfigurationsOptions& options, const ConfigurationLine& line, ThreadPool& pool)
      : options_(options), line_(line), pool_(pool) {}

  Result<> pack() {
    const LayerShape& shape = line_.shape;
    const Problem problem = layer_problem(shape, line_.scheme);
    MORACLE_ASSIGN(const Table* table, table_for(line_.scheme.scheme));
    const Decision decision = decide(problem, options_.machine, options_.policy, *table);
    MORACLE_ASSIGN(card_, winner_of(decision, problem));
    const std::int64_t published =
        3 * shape.experts * published_bytes(line_.scheme.scheme.weight, shape.intermediate, shape.hidden);
    const std::int64_t count = std::clamp<std::int64_t>(ceil_div(kRotation, published), 1, kMostCopies);
    std::vector<std::int32_t> all(static_cast<std::size_t>(shape.experts));
    std::iota(all.begin(), all.end(), 0);
    // The weights of every copy are the same: what matters is that they lie elsewhere.
    MORACLE_ASSIGN(const CanonicalExperts experts, synthetic_experts(shape, line_.scheme, 1, all));
    const PackOptions how{.pool = pool_,
                          .activation = shape.activation,
                          .batch_invariant = options_.policy.batch_invariant,
                          .device = options_.device,
                          .scratch = std::make_shared<PersistentScratch>(options_.device)};
    for (std::int64_t i = 0; i < count; ++i) {
      MORACLE_ASSIGN(copies_.emplace_back(), find_implementation(card_->id)->pack_experts(experts, how));
    }
    return Ok{};
  }

  Result<ConfigurationRow> time(std::int64_t tokens) {
    ConfigurationRow row{.shape = line_.shape_name,
                         .scheme = line_.scheme.name,
                         .backend = std::string(card_->backend),
                         .tokens = tokens,
                         .calls = spec_calls(tokens),
                         .copies = std::ssize(copies_)};
    std::vector<LayerInput> inputs;
    for (std::int64_t call = 0; call < row.calls; ++call) {
      inputs.push_back(spec_input(line_.shape, tokens, call));
      const std::vector<std::int32_t>& ids = inputs.back().ids;
      row.experts += static_cast<double>(std::set(ids.begin(), ids.end()).size()) / static_cast<double>(row.calls);
    }
    std::unique_ptr<Replay> replay;
    if (options_.device != nullptr) {
      MORACLE_ASSIGN(replay, DeviceReplay::make(*options_.device, copies_, inputs));
    } else {
      MORACLE_ASSIGN(replay, HostReplay::make(pool_, copies_, inputs));
    }
    for (int i = 0; i < kWarmReplays; ++i) MORACLE_TRY(replay->run());
    std::vector<double> times;
    const Stopwatch watch;
    while (std::ssize(times) < kLeastReplays || (std::ssize(times) < kMostReplays && watch.seconds() < kMostSeconds)) {
      MORACLE_ASSIGN(const double seconds, replay->run());
      times.push_back(seconds * 1e6 / static_cast<double>(row.calls));
    }
    std::sort(times.begin(), times.end());
    row.us = times[times.size() / 2];
    row.min_us = times.front();
    row.max_us = times.back();
    MORACLE_ASSIGN(const std::vector<float> out, replay->first_output());
    MORACLE_ASSIGN(row.rel_err, ref_error(line_.shape, line_.scheme, pool_, inputs.front(), out));
    return row;
  }

 private:
  const BenchConfigurationsOptions& options_;
  const ConfigurationLine& line_;
  ThreadPool& pool_;
  const KernelCard* card_ = nullptr;
  Copies copies_{};
};

}  // namespace

Result<std::vector<ConfigurationLine>> parse_configurations(const std::string& text) {
  std::vector<ConfigurationLine> lines;
  std::istringstream stream(text);
  std::string row;
  for (std::size_t number = 1; std::getline(stream, row); ++number) {
    std::istringstream words(row.substr(0, row.find('#')));
    ConfigurationLine line;
    std::string scheme;
    if (!(words >> line.shape_name)) continue;
    if (!(words >> scheme)) return line_error(number, "shape, scheme and token counts", row.substr(0, 80));
    MORACLE_ASSIGN(line.shape, parse_layer_shape(long_name(line.shape_name)));
    MORACLE_ASSIGN(line.scheme, find_scheme(scheme));
    for (std::string word; words >> word;) {
      std::int64_t tokens = 0;
      const auto [end, failed] = std::from_chars(word.data(), word.data() + word.size(), tokens);
      if (failed != std::errc{} || end != word.data() + word.size() || tokens < 1 || tokens > 1 << 20)
        return line_error(number, "token counts from 1 to 1048576", "'" + word.substr(0, 80) + "'");
      line.tokens.push_back(tokens);
    }
    if (line.tokens.empty()) return line_error(number, "token counts behind the scheme", row.substr(0, 80));
    lines.push_back(std::move(line));
  }
  return lines;
}

Result<std::vector<ConfigurationRow>> bench_configurations(const BenchConfigurationsOptions& options) {
  const int cores = options.device == nullptr ? options.machine.cores : probe_machine().cores;
  ThreadPool pool(options.threads > 0 ? options.threads : cores);
  std::vector<ConfigurationRow> rows;
  double done = 0;
  const auto all = static_cast<double>(options.lines.size());
  for (const ConfigurationLine& line : options.lines) {
    const std::string name = line.shape_name + " " + line.scheme.name;
    const auto tell = [&](const Error& error) {
      if (options.on_warning) options.on_warning(name + ": " + error.message());
    };
    const auto stopped = [&] { return options.interrupted && options.interrupted(); };
    if (options.on_progress) options.on_progress("packing " + name, done / all);
    LineBench bench(options, line, pool);
    if (const Result<> packed = bench.pack(); !packed.ok()) {
      tell(packed.error());
      continue;
    }
    for (const std::int64_t tokens : line.tokens) {
      if (stopped()) return Error{.code = "interrupted", .found = "benchmark stopped"};
      if (options.on_progress) options.on_progress(name + ", " + std::to_string(tokens) + " tokens", done / all);
      Result<ConfigurationRow> row = bench.time(tokens);
      if (row.ok()) {
        rows.push_back(*std::move(row));
      } else {
        tell(row.error());
      }
    }
    done += 1;
  }
  if (rows.empty()) return Error{.code = "bench.cells", .wanted = "a configuration that can be timed", .found = "none"};
  return rows;
}

}  // namespace moracle
