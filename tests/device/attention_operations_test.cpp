// Attention over blocks of keys, values and latents: the device's against the host's over the same blocks in bf16,
// which computes with queries and weights in f32. The device rounds both to bf16, each number by up to 2^-9 of itself;
// scores of about unit size make as much of a query's rounding.
#include <gtest/gtest.h>

#include <cmath>

#include "device/operations_fixture.h"
#include "kernels/input_quant.h"
#include "machine/machine.h"

namespace moracle {
namespace {

constexpr double kTwoRoundings = 2 * 0x1p-9;

// Sequences over one pool of blocks, in a drawn order. Block 0 belongs to nobody.
class Sequences {
 public:
  Sequences(std::size_t count, std::size_t blocks, std::mt19937& rng) : tables_(count), lengths_(count, 0) {
    for (std::size_t i = 1; i < blocks; ++i) free_.push_back(static_cast<std::uint32_t>(i));
    std::shuffle(free_.begin(), free_.end(), rng);
  }
  // Shares the whole blocks of another one's first `length` positions.
  void fork(std::size_t from, std::size_t to, std::int64_t length) {
    tables_[to].assign(tables_[from].begin(), tables_[from].begin() + length / kKvBlock);
    lengths_[to] = length / kKvBlock * kKvBlock;
  }
  // Tokens that follow in one call, by sequence.
  std::vector<KvSpan> extend(const std::vector<std::int64_t>& counts) {
    std::vector<KvSpan> spans;
    std::int64_t begin = 0;
    for (std::size_t i = 0; i < counts.size(); ++i) {
      if (counts[i] == 0) continue;
      const std::int64_t end = lengths_[i] + counts[i];
      while (std::ssize(tables_[i]) * kKvBlock < end) {
        tables_[i].push_back(free_.back());
        free_.pop_back();
      }
      spans.push_back({.begin = begin, .count = counts[i], .start = lengths_[i], .table = tables_[i].data()});
      owners_.push_back(i);
      begin += counts[i];
      lengths_[i] = end;
    }
    return spans;
  }
  // The same spans with tables of the device.
  static std::vector<KvSpan> on_device(std::vector<KvSpan> spans, CallArrays& arrays) {
    for (KvSpan& span : spans) {
      const std::int64_t blocks = (span.start + span.count - 1) / kKvBlock + 1;
      span.table = arrays.hold(std::vector<std::uint32_t>(span.table, span.table + blocks));
    }
    return spans;
  }

 private:
  std::vector<std::vector<std::uint32_t>> tables_;
  std::vector<std::int64_t> lengths_;
  std::vector<std::size_t> owners_;
  std::vector<std::uint32_t> free_;
};

// One call after the other of the same sequences.
using Steps = std::vector<std::vector<std::int64_t>>;

std::size_t blocks_of(const Steps& steps) {
  std::size_t blocks = 2;
  for (const auto& counts : steps) {
    for (const std::int64_t count : counts) blocks += static_cast<std::size_t>(count / kKvBlock) + 2;
  }
  return blocks;
}

std::int64_t sum_of(const std::vector<std::int64_t>& counts) {
  return std::accumulate(counts.begin(), counts.end(), std::int64_t{0});
}

const Ops& fast_host_ops() {
  return host_ops(probe_machine().cpu_features);
}

std::size_t size_of(std::int64_t count) {
  return static_cast<std::size_t>(count);
}

class AttentionOperationsTest : public OperationsTest {
 protected:
  struct Options {
    AttentionShape shape;
    bool sinks = false;
    bool head_gate = false;
    std::int64_t norm = 0;  // numbers of a norm's row: 0, head_dim or the whole row
    std::int64_t half = 0;  // of rope
    std::int64_t fork = 0;  // positions of the first sequence that the last one shares after the first step
  };

  // Random numbers of one call, of which the host's copy is changed by it.
  struct Inputs {
    std::vector<float> q, k, v, head_gate, sinks, q_weight, k_weight, cos, sin;
  };

  Inputs draw_inputs(const Options& options, std::int64_t tokens) {
    const AttentionShape& shape = options.shape;
    Inputs in;
    in.q = normal_values(size_of(tokens * shape.q_width()), rng_);
    in.k = normal_values(size_of(tokens * shape.kv_width()), rng_);
    in.v = normal_values(size_of(tokens * shape.kv_width()), rng_);
    if (options.head_gate) in.head_gate = normal_values(size_of(tokens * shape.heads), rng_);
    if (options.sinks) in.sinks = normal_values(size_of(shape.heads), rng_);
    const bool whole = options.norm > shape.head_dim;
    if (options.norm > 0) {
      in.q_weight = uniform_values(size_of(whole ? shape.width() : shape.head_dim), 0.5F, 1.5F);
      in.k_weight = uniform_values(size_of(whole ? shape.kv_width() : shape.head_dim), 0.5F, 1.5F);
    }
    for (std::int64_t i = 0; i < tokens * options.half; ++i) {
      const float angle = static_cast<float>(drawn(0, 6283)) / 1000.0F;
      in.cos.push_back(std::cos(angle));
      in.sin.push_back(std::sin(angle));
    }
    return in;
  }

  template <class Hold>
  static AttentionArgs arguments(const Options& options, std::int64_t tokens, Inputs& in, const Hold& hold) {
    AttentionArgs args{.shape = options.shape, .kv = KvType::bf16, .tokens = tokens};
    args.q_norm = {.weight = hold(in.q_weight), .size = std::ssize(in.q_weight), .eps = 1e-6F};
    args.k_norm = {.weight = hold(in.k_weight), .size = std::ssize(in.k_weight), .eps = 1e-6F};
    args.sinks = hold(in.sinks);
    args.rope = {.cos = hold(in.cos), .sin = hold(in.sin), .half = options.half};
    args.q = hold(in.q);
    args.k = hold(in.k);
    args.v = hold(in.v);
    args.head_gate = hold(in.head_gate);
    return args;
  }

  void compare(const Options& options, const Steps& steps, const std::string& name) {
    const AttentionShape& shape = options.shape;
    const std::size_t blocks = blocks_of(steps);
    Sequences sequences(steps.front().size(), blocks, rng_);
    const auto host_stride = size_of(fast_host_ops().block_bytes(shape, KvType::bf16));
    const auto stride = size_of(ops_->block_bytes(shape, KvType::bf16)) + 256;
    std::vector<std::byte> host_pages(blocks * host_stride);
    std::vector<std::byte> pages(blocks * stride, std::byte{0xFF});
    for (std::size_t step = 0; step < steps.size(); ++step) {
      if (step == 1 && options.fork > 0) sequences.fork(0, steps.front().size() - 1, options.fork);
      const std::int64_t tokens = sum_of(steps[step]);
      const std::vector<KvSpan> spans = sequences.extend(steps[step]);
      Inputs in = draw_inputs(options, tokens);
      CallArrays arrays(stream_);
      AttentionArgs args = arguments(options, tokens, in, [&](const auto& values) { return arrays.hold(values); });
      args.spans = arrays.hold(Sequences::on_device(spans, arrays));
      args.span_count = std::ssize(spans);
      std::byte* const memory = arrays.hold(pages);
      args.blocks = {.memory = memory, .stride = stride};
      args.out = arrays.out<float>(size_of(tokens * shape.width()));
      on_device(arrays, &Ops::attention, args);
      const auto found = arrays.read(args.out);
      pages = arrays.read(memory);
      for (std::size_t i = 0; i < stride; ++i) ASSERT_EQ(pages[i], std::byte{0xFF}) << "a block of nobody";
      AttentionArgs host = arguments(options, tokens, in, [](auto& values) { return values.data(); });
      if (in.sinks.empty()) host.sinks = nullptr;
      if (in.head_gate.empty()) host.head_gate = nullptr;
      host.spans = spans.data();
      host.span_count = std::ssize(spans);
      host.blocks = {.memory = host_pages.data(), .stride = host_stride};
      std::vector<float> wanted(found.size());
      host.out = wanted.data();
      on_host(fast_host_ops(), &Ops::attention, host);
      expect_rows_near(found, wanted, size_of(shape.head_dim), kTwoRoundings, name + ", call " + std::to_string(step));
    }
  }
};

TEST_F(AttentionOperationsTest, EverySizeOfHead) {
  for (std::int64_t dim = 16; dim <= 256; dim += 16) {
    for (const std::int64_t heads : {1, 2, 3, 4}) {
      const Options options{
          .shape = {.heads = heads, .kv_heads = heads == 4 && dim % 32 == 0 ? 2 : heads, .head_dim = dim}};
      compare(options, {{1, 5, 70}, {1, 1, 1}, {64, 1, 3}},
              "size " + std::to_string(dim) + ", heads " + std::to_string(heads));
    }
  }
}

TEST_F(AttentionOperationsTest, EveryGroup) {
  for (std::int64_t group = 1; group <= 16; ++group) {
    const std::int64_t kv_heads = group <= 4 ? 4 : 1 + group % 3;
    const Options options{.shape = {.heads = group * kv_heads, .kv_heads = kv_heads, .head_dim = 64}, .half = 32};
    compare(options, {{63, 1, 130}, {1, 1, 1}}, "group " + std::to_string(group));
  }
}

TEST_F(AttentionOperationsTest, EveryLength) {
  const Options options{.shape = {.heads = 8, .kv_heads = 2, .head_dim = 128}, .norm = 128, .half = 64};
  compare(options, {{1, 63, 64, 65}, {1, 1, 1, 1}, {1000, 0, 63, 1}, {1, 1, 1, 1}}, "short");
  const Options few{.shape = {.heads = 4, .kv_heads = 1, .head_dim = 64}};
  compare(few, {{4097, 1}, {1, 1}, {5, 1}}, "4097");
  compare(few, {{17000}, {1}, {1}}, "more sections than splits");
}

TEST_F(AttentionOperationsTest, WindowsSinksGatesNormsAndClip) {
  AttentionShape shape{.heads = 8, .kv_heads = 2, .head_dim = 64};
  shape.window = 128;
  compare({.shape = shape, .sinks = true, .half = 32}, {{300, 1, 700}, {1, 1, 1}, {100, 1, 1}}, "window and sinks");
  shape.window = 5;
  compare({.shape = shape}, {{130, 3, 0}, {1, 1, 1}}, "a window of five");
  shape = {.heads = 6, .kv_heads = 2, .head_dim = 80, .clip = 0.8F};
  compare({.shape = shape, .norm = shape.width(), .half = 20}, {{70, 1, 2}, {1, 1, 1}}, "norms of rows, clip");
  shape = {.heads = 16, .kv_heads = 2, .head_dim = 256, .element_gate = true};
  compare({.shape = shape, .norm = 256, .half = 32}, {{90, 1, 2}, {1, 1, 1}}, "gates of elements");
  shape = {.heads = 12, .kv_heads = 4, .head_dim = 96};
  compare({.shape = shape, .head_gate = true, .half = 48}, {{90, 1, 2}, {1, 1, 1}}, "gates of heads");
}

TEST_F(AttentionOperationsTest, ForkedTables) {
  const Options options{.shape = {.heads = 8, .kv_heads = 4, .head_dim = 64}, .half = 32, .fork = 192};
  compare(options, {{200, 70, 0}, {1, 1, 1}, {3, 1, 80}, {1, 1, 1}}, "forked");
}

TEST_F(AttentionOperationsTest, MoreSequencesThanSplitsHaveRoomFor) {
  std::vector<std::int64_t> first;
  for (int i = 0; i < 70; ++i) first.push_back(1 + drawn(0, 600) * (i % 3));
  compare({.shape = {.heads = 4, .kv_heads = 2, .head_dim = 32}}, {first, std::vector<std::int64_t>(70, 1)}, "70");
}

TEST_F(AttentionOperationsTest, AnyShape) {
  for (int i = 0; i < 24; ++i) {
    AttentionShape shape{.heads = 0, .kv_heads = drawn(1, 8), .head_dim = 16 * drawn(1, 16)};
    shape.heads = shape.kv_heads * drawn(1, std::min<std::int64_t>(16, 64 / shape.kv_heads));
    if (drawn(0, 2) == 0) shape.window = drawn(1, 600);
    shape.element_gate = drawn(0, 3) == 0;
    Options options{.shape = shape, .sinks = drawn(0, 1) == 0, .head_gate = drawn(0, 3) == 0};
    if (drawn(0, 1) == 0) options.norm = shape.head_dim;
    options.half = drawn(0, shape.head_dim / 2);
    Steps steps(3, std::vector<std::int64_t>(static_cast<std::size_t>(drawn(1, 5))));
    for (auto& counts : steps) {
      for (std::int64_t& count : counts) count = drawn(0, 1) == 0 ? 1 : drawn(1, 300);
    }
    compare(options, steps, "any " + std::to_string(i));
  }
}

// Where one order is asked for, a token's bits are those that it has alone, wherever its sequence stands in the batch.
TEST_F(AttentionOperationsTest, BitsDoNotDependOnOtherSequences) {
  const AttentionShape shape{.heads = 8, .kv_heads = 2, .head_dim = 128};
  const std::vector<std::int64_t> counts{1, 100, 1, 7, 1};
  const std::vector<std::int64_t> starts{900, 0, 0, 300, 5000};
  const std::int64_t tokens = sum_of(counts);
  Inputs in = draw_inputs({.shape = shape}, tokens);
  std::vector<std::vector<std::uint32_t>> tables;
  std::uint32_t next = 0;
  for (std::size_t i = 0; i < counts.size(); ++i) {
    std::vector<std::uint32_t>& table = tables.emplace_back();
    for (std::int64_t at = 0; at < starts[i] + counts[i]; at += kKvBlock) table.push_back(next++);
  }
  const auto stride = size_of(ops_->block_bytes(shape, KvType::bf16));
  std::vector<std::uint16_t> pages(next * stride / 2);
  for (std::uint16_t& number : pages)
    number = static_cast<std::uint16_t>(0x3F00 + rng_() % 256 + (rng_() % 2) * 0x8000);
  const auto run = [&](std::size_t first, std::size_t end) {
    CallArrays arrays(stream_);
    AttentionArgs args =
        arguments({.shape = shape}, tokens, in, [&](const auto& values) { return arrays.hold(values); });
    args.batch_invariant = 1;
    std::vector<KvSpan> spans;
    std::int64_t begin = 0;
    for (std::size_t i = 0; i < counts.size(); ++i) {
      if (i >= first && i < end)
        spans.push_back({.begin = begin, .count = counts[i], .start = starts[i], .table = tables[i].data()});
      begin += counts[i];
    }
    args.spans = arrays.hold(Sequences::on_device(spans, arrays));
    args.span_count = std::ssize(spans);
    args.blocks = {.memory = reinterpret_cast<std::byte*>(arrays.hold(pages)), .stride = stride};
    args.out = arrays.out<float>(size_of(tokens * shape.width()));
    on_device(arrays, &Ops::attention, args);
    return arrays.read(args.out);
  };
  const auto together = run(0, counts.size());
  std::int64_t begin = 0;
  for (std::size_t i = 0; i < counts.size(); ++i) {
    const auto alone = run(i, i + 1);
    const auto at = size_of(begin * shape.width());
    EXPECT_EQ(std::memcmp(&alone[at], &together[at], size_of(counts[i] * shape.width()) * sizeof(float)), 0) << i;
    begin += counts[i];
  }
}

class LatentOperationsTest : public OperationsTest {
 protected:
  void compare(const LatentAttentionShape& shape, const InputQuant& input, const Steps& steps,
               const std::string& name) {
    const std::size_t blocks = blocks_of(steps);
    Sequences sequences(steps.front().size(), blocks, rng_);
    const auto host_stride = size_of(fast_host_ops().block_bytes(shape, KvType::bf16));
    const auto stride = size_of(ops_->block_bytes(shape, KvType::bf16)) + 256;
    std::vector<std::byte> host_pages(blocks * host_stride);
    std::vector<std::byte> pages(blocks * stride, std::byte{0xFF});
    const auto weight = uniform_values(size_of(shape.kv_lora_rank), 0.5F, 1.5F);
    auto keys = normal_values(size_of(shape.heads * shape.qk_nope_head_dim * shape.kv_lora_rank), rng_);
    auto values = normal_values(size_of(shape.heads * shape.kv_lora_rank * shape.v_head_dim), rng_);
    // Projections keep the size of what they read.
    for (float& number : keys) number /= std::sqrt(static_cast<float>(shape.kv_lora_rank));
    for (float& number : values) number /= std::sqrt(static_cast<float>(shape.kv_lora_rank));
    for (std::size_t step = 0; step < steps.size(); ++step) {
      const std::int64_t tokens = sum_of(steps[step]);
      const std::vector<KvSpan> spans = sequences.extend(steps[step]);
      const auto q = normal_values(size_of(tokens * shape.heads * shape.q_head_dim()), rng_);
      const auto latents = normal_values(size_of(tokens * shape.latent_width()), rng_);
      std::vector<float> cos;
      std::vector<float> sin;
      for (std::int64_t i = 0; i < tokens * shape.qk_rope_head_dim / 2; ++i) {
        const float angle = static_cast<float>(drawn(0, 6283)) / 1000.0F;
        cos.push_back(std::cos(angle));
        sin.push_back(std::sin(angle));
      }
      const auto arguments = [&](const auto& hold) {
        LatentAttentionArgs args{.shape = shape, .kv = KvType::bf16, .tokens = tokens};
        args.kv_norm = {.weight = hold(weight), .size = shape.kv_lora_rank, .eps = 1e-6F};
        args.keys = hold(keys);
        args.values = hold(values);
        args.input = input;
        args.rope = {.cos = hold(cos), .sin = hold(sin), .half = shape.qk_rope_head_dim / 2};
        args.q = hold(q);
        args.latents = hold(latents);
        args.span_count = std::ssize(spans);
        return args;
      };
      CallArrays arrays(stream_);
      LatentAttentionArgs args = arguments([&](const auto& of) { return arrays.hold(of); });
      args.spans = arrays.hold(Sequences::on_device(spans, arrays));
      std::byte* const memory = arrays.hold(pages);
      args.blocks = {.memory = memory, .stride = stride};
      args.out = arrays.out<float>(size_of(tokens * shape.heads * shape.v_head_dim));
      on_device(arrays, &Ops::latent_attention, args);
      const auto found = arrays.read(args.out);
      pages = arrays.read(memory);
      LatentAttentionArgs host = arguments([](const auto& of) { return of.data(); });
      host.spans = spans.data();
      host.blocks = {.memory = host_pages.data(), .stride = host_stride};
      std::vector<float> wanted(found.size());
      host.out = wanted.data();
      on_host(fast_host_ops(), &Ops::latent_attention, host);
      expect_rows_near(found, wanted, size_of(shape.v_head_dim), kTwoRoundings,
                       name + ", call " + std::to_string(step));
    }
  }

  static LatentAttentionShape shape_of(std::int64_t heads, std::int64_t nope, std::int64_t rope, std::int64_t value,
                                       std::int64_t rank) {
    return {.heads = heads,
            .qk_nope_head_dim = nope,
            .qk_rope_head_dim = rope,
            .v_head_dim = value,
            .kv_lora_rank = rank,
            .scale = 1.0F / std::sqrt(static_cast<float>(nope + rope))};
  }
};

TEST_F(LatentOperationsTest, ShapesOfModels) {
  compare(shape_of(4, 64, 32, 64, 128), {}, {{1, 65, 300}, {1, 1, 1}, {3, 1, 70}}, "small");
  compare(shape_of(20, 192, 64, 256, 512), {}, {{130, 1}, {1, 1}}, "GLM-4.7-Flash");
  compare(shape_of(128, 128, 64, 128, 512), {}, {{20, 1}, {1, 1}}, "DeepSeek-V3");
}

TEST_F(LatentOperationsTest, AnyShape) {
  for (int i = 0; i < 12; ++i) {
    LatentAttentionShape shape =
        shape_of(drawn(1, 70), drawn(1, 70), 2 * drawn(1, 32), drawn(1, 150), 16 * drawn(1, 16));
    shape.interleaved = drawn(0, 1) == 0;
    Steps steps(3, std::vector<std::int64_t>(static_cast<std::size_t>(drawn(1, 4))));
    for (auto& counts : steps) {
      for (std::int64_t& count : counts) count = drawn(0, 1) == 0 ? 1 : drawn(1, 150);
    }
    compare(shape, {}, steps, "any " + std::to_string(i));
  }
}

TEST_F(LatentOperationsTest, LongContextsAndManySequences) {
  compare(shape_of(4, 32, 16, 32, 64), {}, {{4097, 1, 300}, {1, 1, 1}, {1, 2, 1}}, "4097");
  std::vector<std::int64_t> first;
  for (int i = 0; i < 70; ++i) first.push_back(1 + drawn(0, 400) * (i % 3));
  compare(shape_of(3, 16, 16, 16, 32), {}, {first, std::vector<std::int64_t>(70, 1)}, "70 sequences");
}

// A number that lies on the border of two codes may become either: one step of the largest, of one number in thousands.
TEST_F(LatentOperationsTest, QuantizedLatents) {
  for (const InputKind kind : {InputKind::int8_token, InputKind::e4m3_token, InputKind::e4m3_group}) {
    const InputQuant input{.kind = kind, .group = kind == InputKind::e4m3_group ? 128 : 0};
    compare(shape_of(4, 64, 32, 64, 256), input, {{1, 65, 30}, {1, 1, 1}},
            "quantized " + std::to_string(static_cast<int>(kind)));
  }
}

}  // namespace
}  // namespace moracle
