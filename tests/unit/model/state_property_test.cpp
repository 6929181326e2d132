// Sequences that grow, fork, go back and end at random, over pages of the host and over slabs of one buffer, beside a
// list of what each has written: every position and every recurrent state stays what its own sequence made it.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <random>

#include "model/state/prefix_store.h"
#include "support/fake_device.h"
#include "support/lone_state.h"

namespace moracle {
namespace {

constexpr std::int64_t kWindow = 100;
constexpr std::int64_t kDrafts = 8;

struct Tracked {
  std::unique_ptr<SequenceState> state;
  std::vector<std::uint32_t> written;  // by position
  std::vector<float> sums;             // the recurrent state behind so many positions
  std::optional<std::size_t> checkpoint{};
};

class Sequences {
 public:
  Sequences(std::shared_ptr<const StateLayout> layout, std::shared_ptr<BlockLedger> ledger, unsigned seed)
      : layout_(std::move(layout)), ledger_(std::move(ledger)), rng_(seed) {}

  void step() {
    if (all_.empty() || (all_.size() < 6 && rng_() % 8 == 0)) {
      all_.push_back({.state = std::make_unique<SequenceState>(layout_, ledger_), .written = {}, .sums = {0.0F}});
    }
    const std::size_t at = rng_() % all_.size();
    Tracked& of = all_[at];
    switch (rng_() % 8) {
      case 0:
        fork(of);
        break;
      case 1:
        of.state->checkpoint();
        of.checkpoint = of.written.size();
        break;
      case 2:
        go_back(of);
        break;
      case 3:
        if (rng_() % 8 == 0) all_.erase(all_.begin() + static_cast<std::ptrdiff_t>(at));
        break;
      case 4:
        run(of, static_cast<std::int64_t>(rng_() % 200), true);
        break;
      default:
        run(of, static_cast<std::int64_t>(1 + rng_() % kDrafts), rng_() % 8 != 0);
    }
  }

  void check() {
    for (const Tracked& of : all_) {
      ASSERT_EQ(of.state->length(), std::ssize(of.written));
      for (std::size_t position = 0; position < of.written.size(); ++position) {
        ASSERT_EQ(*at(*of.state, 0, position), of.written[position]);
        if (position + kWindow > of.written.size()) {
          ASSERT_EQ(*at(*of.state, 1, position), of.written[position]);
        }
      }
      if (!of.written.empty()) {
        ASSERT_EQ(of.state->fixed(2)[0], of.sums.back());
      }
    }
  }
  void clear() { all_.clear(); }

 private:
  static std::uint32_t* at(const SequenceState& state, std::size_t layer, std::size_t position) {
    const auto index = static_cast<std::int64_t>(position);
    return reinterpret_cast<std::uint32_t*>(state.block(layer, index / kBlockTokens)) + index % kBlockTokens;
  }
  // One call over so many positions, which may come to nothing.
  void run(Tracked& of, std::int64_t count, bool works) {
    const std::int64_t length = of.state->length();
    if (count == 0 || !of.state->reserve(length + count).ok()) return;
    float sum = of.state->fixed(2)[0];
    ASSERT_EQ(sum, of.sums.back());
    for (std::int64_t i = 0; i < count; ++i) {
      const auto mark = static_cast<std::uint32_t>(rng_());
      const auto position = static_cast<std::size_t>(length + i);
      *at(*of.state, 0, position) = mark;
      *at(*of.state, 1, position) = mark;
      sum += static_cast<float>(mark % 16);
      if (!works) continue;
      of.written.push_back(mark);
      of.sums.push_back(sum);
    }
    of.state->next_fixed(2)[0] = sum;
    if (works) of.state->commit(length + count);
  }
  void fork(const Tracked& of) {
    if (all_.size() >= 6) return;
    Tracked copy{.state = of.state->fork(), .written = of.written, .sums = of.sums};
    all_.push_back(std::move(copy));
  }
  void go_back(Tracked& of) {
    const std::size_t length = rng_() % 4 == 0 ? 0 : of.checkpoint.value_or(of.written.size());
    const Result<> done = of.state->truncate(static_cast<std::int64_t>(length));
    ASSERT_TRUE(done.ok()) << done.error().message();
    of.written.resize(length);
    of.sums.resize(length + 1);
    if (of.checkpoint.value_or(0) > length) of.checkpoint.reset();
    ASSERT_EQ(of.state->checkpoint_length().has_value(), of.checkpoint.has_value());
  }

  std::shared_ptr<const StateLayout> layout_;
  std::shared_ptr<BlockLedger> ledger_;
  std::mt19937 rng_;
  std::vector<Tracked> all_;
};

std::shared_ptr<const StateLayout> layout() {
  const std::vector<LayerState> layers{
      {.block_bytes = kBlockTokens * 4}, {.block_bytes = kBlockTokens * 4, .window = kWindow}, {.fixed_floats = 40}};
  return std::make_shared<const StateLayout>(layers);
}

TEST(SequenceStates, KeepWhatTheyWroteOnTheHost) {
  for (const unsigned seed : {1U, 2U, 3U}) {
    SCOPED_TRACE(seed);
    const auto ledger = *BlockLedger::make(layout()->block_bytes(), std::size_t{60} * 4096, test::host_stream());
    const auto made = layout();
    Sequences sequences(made, ledger, seed);
    for (int i = 0; i < 1500; ++i) {
      sequences.step();
      ASSERT_NO_FATAL_FAILURE(sequences.check());
    }
    sequences.clear();
    EXPECT_EQ(ledger->used(), 0U);
  }
}

// The fake's memory is the host's, so that the test may look into it.
TEST(SequenceStates, KeepWhatTheyWroteOnADevice) {
  test::FakeDevice fake;
  const auto device = *GpuDevice::open(fake.api(), 0);
  for (const unsigned seed : {1U, 2U, 3U}) {
    SCOPED_TRACE(seed);
    const auto stream = std::make_shared<Stream>(*device->make_stream());
    const auto made = layout();
    const auto ledger = *BlockLedger::make(*device, made->block_bytes(), std::size_t{8} << 20, stream);
    Sequences sequences(made, ledger, seed);
    for (int i = 0; i < 1500; ++i) {
      sequences.step();
      ASSERT_NO_FATAL_FAILURE(sequences.check());
    }
    sequences.clear();
    EXPECT_EQ(ledger->used(), 0U);
    EXPECT_TRUE(stream->wait().ok());
  }
  EXPECT_EQ(fake.live_bytes(), 0U);
}

TEST(SlabArena, KindsTakeAndReturnSlabs) {
  test::FakeDevice fake;
  const auto device = *GpuDevice::open(fake.api(), 0);
  const std::vector<std::size_t> bytes{300, 5000, 0};
  const auto arena = *SlabArena::make(*device, bytes, std::size_t{10} << 20);
  std::mt19937 rng(7);
  std::vector<std::pair<std::size_t, BlockId>> held;
  std::size_t refused = 0;
  for (int i = 0; i < 60000; ++i) {
    const std::size_t kind = rng() % 2;
    if (rng() % 16 < 9) {
      if (const auto block = arena->take(kind, 0)) {
        ASSERT_LT(arena->index(kind, *block), arena->capacity(kind));
        std::byte* const at = arena->data(kind) + *block * arena->stride(kind);
        std::memset(at, static_cast<int>(*block % 251), bytes[kind]);
        held.emplace_back(kind, *block);
      } else {
        ++refused;
      }
    } else if (!held.empty()) {
      const std::size_t which = rng() % held.size();
      std::swap(held[which], held.back());
      const auto [of, block] = held.back();
      const std::byte* const at = arena->data(of) + block * arena->stride(of);
      ASSERT_TRUE(
          std::all_of(at, at + bytes[of], [&](std::byte b) { return b == static_cast<std::byte>(block % 251); }));
      arena->give_back(of, block);
      held.pop_back();
    }
  }
  EXPECT_GT(refused, 0U);
  EXPECT_FALSE(arena->take(2, 0).has_value());
  for (const auto& [kind, block] : held) arena->give_back(kind, block);
  // All of it serves one kind again.
  std::size_t taken = 0;
  while (arena->take(1, 0)) ++taken;
  EXPECT_EQ(taken, arena->capacity(1));
}

TEST(SlabArena, SlabsWasteLittle) {
  const std::vector<std::size_t> sizes{6291456, 5242880, 1048832};
  const std::size_t slab = SlabArena::slab_for(sizes);
  for (const std::size_t bytes : sizes) EXPECT_LE(slab % bytes * 16, slab) << bytes;
  EXPECT_GE(SlabArena::slab_for({256}), std::size_t{2} << 20);
  EXPECT_GT(SlabArena::slab_for({}), 0U);
}

// A block that was copied for a call whose device fails: the state refers again to the one that it was copied from.
TEST(SequenceState, AbandonsWhatADeviceMayNotHaveCopied) {
  test::FakeDevice fake;
  const auto device = *GpuDevice::open(fake.api(), 0);
  const auto stream = std::make_shared<Stream>(*device->make_stream());
  const auto made = layout();
  const auto ledger = *BlockLedger::make(*device, made->block_bytes(), std::size_t{8} << 20, stream);
  SequenceState state(made, ledger);
  ASSERT_TRUE(state.reserve(10).ok());
  std::memset(state.block(0, 0), 7, 40);
  state.commit(10);
  const auto copy = state.fork();
  const std::byte* const shared = state.block(0, 0);
  fake.failure = {.call = "copy", .at = fake.calls("copy") + 1, .error = 700};
  ASSERT_TRUE(copy->reserve(11).ok());
  EXPECT_NE(copy->block(0, 0), shared);
  EXPECT_EQ(stream->wait().error().code, "device.call");
  copy->abandon();
  EXPECT_EQ(copy->block(0, 0), shared);
  ASSERT_TRUE(copy->reserve(11).ok());
  EXPECT_TRUE(stream->wait().ok());
  EXPECT_NE(copy->block(0, 0), shared);
  EXPECT_EQ(std::memcmp(copy->block(0, 0), shared, 40), 0);
}

}  // namespace
}  // namespace moracle
