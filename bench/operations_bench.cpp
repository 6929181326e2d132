// Operations of a GPU, each by itself: operations_bench [cuda:0 [PART OF A ROW'S NAME]]. A row is the median of 7
// graphs of as many calls as there are layers, over inputs of their own, so that no call finds what it reads in the L2.
#include <fmt/core.h>

#include <algorithm>
#include <functional>
#include <random>
#include <string>
#include <string_view>
#include <tuple>
#include <utility>
#include <vector>

#include "device/gpu_device.h"
#include "kernels/device_ops.h"

namespace {

using namespace moracle;

template <class T>
T must(Result<T> result) {
  if (result.ok()) return std::move(*result);
  fmt::print(stderr, "{}\n", result.error().message());
  std::exit(1);
}

class Bench {
 public:
  Bench(const char* name, std::string_view only)
      : only_(only),
        device_(must(open_device(name))),
        stream_(must(device_->make_stream())),
        begin_(must(device_->make_event())),
        end_(must(device_->make_event())),
        ops_(must(device_ops(*device_))) {
    std::mt19937 rng(1);
    for (std::size_t i = 0; i < random_.size(); ++i) {
      const bool exponent = i % 2 == 1;
      random_[i] = static_cast<std::byte>(exponent ? 0x3C + rng() % 4 + 128 * (rng() % 2) : rng() % 256);
    }
  }

  [[nodiscard]] const Ops& ops() const { return *ops_; }

  // Memory until clear(), of small random numbers, as bf16 and as f32.
  template <class T>
  T* numbers(std::int64_t count) {
    const std::size_t bytes = static_cast<std::size_t>(count) * sizeof(T);
    Buffer buffer = must(device_->allocate(bytes, "a bench"));
    for (std::size_t at = 0; at < bytes; at += random_.size())
      stream_.to_device(buffer.data() + at, random_.data(), std::min(random_.size(), bytes - at));
    must_wait();
    held_.push_back(std::move(buffer));
    return reinterpret_cast<T*>(held_.back().data());
  }
  template <class T>
  T* put(const std::vector<T>& values) {
    Buffer buffer = must(device_->allocate(values.size() * sizeof(T), "a bench"));
    stream_.to_device(buffer.data(), values.data(), values.size() * sizeof(T));
    must_wait();
    held_.push_back(std::move(buffer));
    return reinterpret_cast<T*>(held_.back().data());
  }
  void clear() { held_.clear(); }

  template <class Args>
  RunContext context(const Args& args) {
    const std::size_t bytes = ops_->workspace(args, 1);
    Buffer buffer = must(device_->allocate(std::max<std::size_t>(bytes, 1), "a bench"));
    held_.push_back(std::move(buffer));
    return {.stream = stream_, .workspace = {held_.back().data(), bytes}};
  }

  // Microseconds of a call.
  double time(int layers, const std::function<void(int)>& call) {
    const Graph graph = must(stream_.capture([&] {
      for (int layer = 0; layer < layers; ++layer) call(layer);
    }));
    std::vector<double> times;
    for (int i = 0; i < 9; ++i) {
      stream_.record(begin_);
      stream_.launch(graph);
      stream_.record(end_);
      must_wait();
      if (i >= 2) times.push_back(must(device_->seconds_between(begin_, end_)) * 1e6 / layers);
    }
    std::sort(times.begin(), times.end());
    return times[times.size() / 2];
  }
  Stream& stream() { return stream_; }
  [[nodiscard]] bool wants(const std::string& row) const { return row.find(only_) != std::string::npos; }

 private:
  void must_wait() {
    if (const Result<> done = stream_.wait(); !done.ok()) {
      fmt::print(stderr, "{}\n", done.error().message());
      std::exit(1);
    }
  }

  std::string_view only_;
  std::shared_ptr<GpuDevice> device_;
  Stream stream_;
  Event begin_;
  Event end_;
  std::unique_ptr<Ops> ops_;
  std::vector<std::byte> random_ = std::vector<std::byte>(std::size_t{1} << 22U);
  std::vector<Buffer> held_;
};

// Sequences that stand at `before` and go on with `count` tokens.
struct Spans {
  std::vector<KvSpan> spans;
  std::int64_t blocks = 0;

  Spans(Bench& bench, std::int64_t sequences, std::int64_t before, std::int64_t count) {
    const std::int64_t each = (before + count + kKvBlock - 1) / kKvBlock;
    for (std::int64_t i = 0; i < sequences; ++i) {
      std::vector<std::uint32_t> table;
      for (std::int64_t b = 0; b < each; ++b) table.push_back(static_cast<std::uint32_t>(b * sequences + i));
      spans.push_back({.begin = i * count, .count = count, .start = before, .table = bench.put(table)});
    }
    blocks = sequences * each;
  }
};

// Layers that take the reads of a call past the L2.
int layers_of(std::int64_t bytes) {
  return static_cast<int>(std::clamp<std::int64_t>((std::int64_t{400} << 20) / bytes, 2, 40));
}

void attention(Bench& bench, const char* name, const AttentionShape& shape, std::int64_t sequences, std::int64_t before,
               std::int64_t count) {
  const std::string row = fmt::format("{} | {} x {} + {}", name, sequences, before, count);
  if (!bench.wants(row)) return;
  const Spans spans(bench, sequences, before, count);
  const std::int64_t tokens = sequences * count;
  const std::int64_t share = bench.ops().block_bytes(shape, KvType::bf16);
  const int layers = count > 1 ? 2 : layers_of(share * spans.blocks);
  AttentionArgs args{.shape = shape, .kv = KvType::bf16, .tokens = tokens};
  args.q = bench.numbers<float>(tokens * shape.q_width());
  args.k = bench.numbers<float>(tokens * shape.kv_width());
  args.v = bench.numbers<float>(tokens * shape.kv_width());
  args.out = bench.numbers<float>(tokens * shape.width());
  args.spans = bench.put(spans.spans);
  args.span_count = sequences;
  auto* const memory = bench.numbers<std::byte>(share * layers * spans.blocks);
  const RunContext context = bench.context(args);
  const double us = bench.time(layers, [&](int layer) {
    args.blocks = {.memory = memory + layer * share, .stride = static_cast<std::uint64_t>(share * layers)};
    bench.ops().attention(context, args);
  });
  const double seen = static_cast<double>(sequences) * static_cast<double>(count) *
                      (static_cast<double>(before) + static_cast<double>(count + 1) / 2);
  const double flops = 4 * seen * static_cast<double>(shape.width());
  const double read = static_cast<double>(sequences * (before + count)) * static_cast<double>(2 * shape.kv_width()) * 2;
  fmt::print("| {} | {:.1f} | {:.0f} | {:.1f} |\n", row, us, read / us / 1e3, flops / us / 1e6);
  bench.clear();
}

void latent_attention(Bench& bench, const char* name, const LatentAttentionShape& shape, std::int64_t sequences,
                      std::int64_t before, std::int64_t count) {
  const std::string row = fmt::format("{} | {} x {} + {}", name, sequences, before, count);
  if (!bench.wants(row)) return;
  const Spans spans(bench, sequences, before, count);
  const std::int64_t tokens = sequences * count;
  const std::int64_t share = bench.ops().block_bytes(shape, KvType::bf16);
  const int layers = count > 1 ? 2 : layers_of(share * spans.blocks);
  LatentAttentionArgs args{.shape = shape, .kv = KvType::bf16, .tokens = tokens};
  args.kv_norm = {.weight = bench.numbers<float>(shape.kv_lora_rank), .size = shape.kv_lora_rank, .eps = 1e-6F};
  args.keys = bench.numbers<float>(shape.heads * shape.qk_nope_head_dim * shape.kv_lora_rank);
  args.values = bench.numbers<float>(shape.heads * shape.v_head_dim * shape.kv_lora_rank);
  const std::int64_t half = shape.qk_rope_head_dim / 2;
  args.rope = {.cos = bench.numbers<float>(tokens * half), .sin = bench.numbers<float>(tokens * half), .half = half};
  args.q = bench.numbers<float>(tokens * shape.heads * shape.q_head_dim());
  args.latents = bench.numbers<float>(tokens * shape.latent_width());
  args.out = bench.numbers<float>(tokens * shape.heads * shape.v_head_dim);
  args.spans = bench.put(spans.spans);
  args.span_count = sequences;
  auto* const memory = bench.numbers<std::byte>(share * layers * spans.blocks);
  const RunContext context = bench.context(args);
  const double us = bench.time(layers, [&](int layer) {
    args.blocks = {.memory = memory + layer * share, .stride = static_cast<std::uint64_t>(share * layers)};
    bench.ops().latent_attention(context, args);
  });
  const double read = static_cast<double>(sequences * (before + count)) * static_cast<double>(shape.latent_width()) * 2;
  const double seen = static_cast<double>(sequences) * static_cast<double>(count) *
                      (static_cast<double>(before) + static_cast<double>(count + 1) / 2);
  const double flops = 2 * seen * static_cast<double>(shape.heads * (shape.latent_width() + shape.kv_lora_rank));
  fmt::print("| {} | {:.1f} | {:.0f} | {:.1f} |\n", row, us, read / us / 1e3, flops / us / 1e6);
  bench.clear();
}

void delta_rule(Bench& bench, std::int64_t sequences, std::int64_t count) {
  const std::string row = fmt::format("delta_rule 16/32 x 128 | {} x {}", sequences, count);
  if (!bench.wants(row)) return;
  const DeltaNetShape shape{.key_heads = 16, .value_heads = 32, .key_dim = 128, .value_dim = 128, .kernel = 4};
  const std::int64_t tokens = sequences * count;
  DeltaRuleArgs args{.shape = shape, .tokens = tokens};
  args.taps = bench.numbers<float>(shape.kernel * shape.channels());
  args.rate = bench.put(std::vector<float>(32, 1.0F));
  args.dt_bias = bench.numbers<float>(shape.value_heads);
  args.norm = {.weight = bench.numbers<float>(shape.value_dim), .size = shape.value_dim, .eps = 1e-6F};
  std::vector<RecurrentSpan> spans;
  for (std::int64_t i = 0; i < sequences; ++i) {
    const auto block = static_cast<std::uint32_t>(i);
    spans.push_back({.begin = i * count, .count = count, .before = block, .after = block});
  }
  args.spans = bench.put(spans);
  args.span_count = sequences;
  args.mixed = bench.numbers<float>(tokens * shape.channels());
  args.work = bench.numbers<float>(tokens * shape.channels());
  args.z = bench.numbers<float>(tokens * shape.value_width());
  args.b = bench.numbers<float>(tokens * shape.value_heads);
  args.a = bench.numbers<float>(tokens * shape.value_heads);
  const std::int64_t bytes = shape.state_floats() * 4;
  const int layers = count > 1 ? 2 : layers_of(bytes * sequences);
  auto* const memory = bench.numbers<std::byte>(bytes * sequences * layers);
  const RunContext context = bench.context(args);
  const double us = bench.time(layers, [&](int layer) {
    args.states = {.memory = memory + layer * bytes * sequences, .stride = static_cast<std::uint64_t>(bytes)};
    bench.ops().delta_rule(context, args);
  });
  fmt::print("| {} | {:.1f} | {:.0f} | |\n", row, us, 2 * static_cast<double>(bytes * sequences) / us / 1e3);
  bench.clear();
}

void sample(Bench& bench, const char* name, std::int32_t rows, const SampleParams& params) {
  constexpr std::int32_t kVocab = 151936;
  const std::string row = fmt::format("sample {} of {} | {}", name, kVocab, rows);
  if (!bench.wants(row)) return;
  SampleArgs args{.rows = rows, .vocab = kVocab};
  args.params = bench.put(std::vector<SampleParams>(static_cast<std::size_t>(rows), params));
  std::vector<float> logits(static_cast<std::size_t>(rows) * kVocab);
  std::mt19937 rng(2);
  std::normal_distribution<float> normal(0.0F, 3.0F);
  for (float& logit : logits) logit = normal(rng);
  args.logits = bench.put(logits);
  args.ids = bench.numbers<std::int32_t>(rows);
  args.logprobs = bench.numbers<double>(rows);
  const RunContext context = bench.context(args);
  const double us = bench.time(5, [&](int) { bench.ops().sample(context, args); });
  fmt::print("| {} | {:.1f} | {:.0f} | |\n", row, us, static_cast<double>(rows) * kVocab * 4 / us / 1e3);
  bench.clear();
}

// With the choice of 8 experts.
void route(Bench& bench, std::int32_t tokens) {
  const std::string row = fmt::format("route 128 x 2048 | {}", tokens);
  if (!bench.wants(row)) return;
  RouteArgs args{};
  args.tokens = tokens;
  args.shape = {.experts = 128,
                .top_k = 8,
                .score = RouteScore::softmax,
                .groups_by = RouteGroups::none,
                .weight = RouteWeight::score,
                .renormalize = 1,
                .factor = 1.0F,
                .groups = 1,
                .top_groups = 1};
  args.hidden = 2048;
  args.x = bench.numbers<float>(tokens * args.hidden);
  args.router = bench.numbers<float>(args.shape.experts * args.hidden);
  args.logits = bench.numbers<float>(std::int64_t{tokens} * args.shape.experts);
  args.ids = bench.numbers<std::int32_t>(std::int64_t{tokens} * args.shape.top_k);
  args.weights = bench.numbers<float>(std::int64_t{tokens} * args.shape.top_k);
  const RunContext context{.stream = bench.stream(), .workspace = {}};
  const double us = bench.time(10, [&](int) { bench.ops().route(context, args); });
  fmt::print("| {} | {:.1f} | | {:.1f} |\n", row, us,
             2 * static_cast<double>(tokens * args.shape.experts * args.hidden) / us / 1e6);
  bench.clear();
}

void all_attention(Bench& bench) {
  const AttentionShape qwen3{.heads = 32, .kv_heads = 4, .head_dim = 128};
  const AttentionShape gpt_oss{.heads = 64, .kv_heads = 8, .head_dim = 64};
  const AttentionShape qwen35{.heads = 16, .kv_heads = 2, .head_dim = 256};
  const auto all = [&](std::int64_t sequences, std::int64_t before, std::int64_t count) {
    attention(bench, "attention 32/4 x 128", qwen3, sequences, before, count);
    attention(bench, "attention 64/8 x 64", gpt_oss, sequences, before, count);
    attention(bench, "attention 16/2 x 256", qwen35, sequences, before, count);
  };
  for (const auto& [sequences, before] :
       {std::pair{1, 1023}, std::pair{16, 1023}, std::pair{64, 1023}, std::pair{64, 4095}, std::pair{1, 32767}})
    all(sequences, before, 1);
  for (const std::int64_t count : {512, 2048, 8192}) all(1, 0, count);
}

void all_latent_attention(Bench& bench) {
  const LatentAttentionShape glm{.heads = 20,
                                 .qk_nope_head_dim = 192,
                                 .qk_rope_head_dim = 64,
                                 .v_head_dim = 256,
                                 .kv_lora_rank = 512,
                                 .scale = 0.0625F};
  for (const auto& [sequences, before, count] :
       {std::tuple{1, 1023, 1}, std::tuple{16, 1023, 1}, std::tuple{64, 1023, 1}, std::tuple{1, 32767, 1},
        std::tuple{1, 0, 2048}})
    latent_attention(bench, "latent_attention 20 x 512 + 64", glm, sequences, before, count);
}

}  // namespace

int main(int argc, char** argv) {
  Bench bench(argc > 1 ? argv[1] : "cuda:0", argc > 2 ? argv[2] : "");
  fmt::print("| operation | sequences x before + tokens | us | GB/s | TFLOP/s |\n| --- | --- | --- | --- | --- |\n");
  all_attention(bench);
  all_latent_attention(bench);
  for (const auto& [sequences, count] : {std::pair{1, 1}, std::pair{16, 1}, std::pair{64, 1}, std::pair{1, 2048}})
    delta_rule(bench, sequences, count);
  for (const int rows : {1, 64}) {
    sample(bench, "greedy", rows, {});
    sample(bench, "drawn", rows, {.temperature = 1.0, .seed = 5});
    sample(bench, "top-k, top-p", rows, {.temperature = 1.0, .top_k = 50, .top_p = 0.9, .seed = 5});
    sample(bench, "top-p", rows, {.temperature = 1.0, .top_p = 0.9, .seed = 5});
  }
  for (const int tokens : {1, 16, 63, 64, 512, 4096}) route(bench, tokens);
  return 0;
}
