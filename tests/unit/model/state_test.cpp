// Blocks of sequences: a budget that holds, sharing, copies on write, windows, snapshots, stored prefixes.
#include "model/state/state.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <limits>
#include <numeric>
#include <random>

#include "kernels/cpu/ops/kv_codes.h"
#include "model/state/prefix_store.h"
#include "scheme/codes.h"
#include "support/lone_state.h"

namespace moracle {
namespace {

constexpr std::int64_t kWindow = 100;

// Of whole pages, so that a budget can be counted in blocks.
constexpr std::int64_t kBytes = 4096;

std::shared_ptr<const StateLayout> layout_of(bool windowed, bool recurrent) {
  std::vector<LayerState> layers{{.block_bytes = kBytes}};
  if (windowed) layers.push_back({.block_bytes = kBytes, .window = kWindow});
  if (recurrent) layers.push_back({.fixed_floats = kBytes / 4});
  return std::make_shared<const StateLayout>(layers);
}

struct Store {
  explicit Store(std::shared_ptr<const StateLayout> made, std::int64_t blocks)
      : layout(std::move(made)),
        ledger(
            *BlockLedger::make(layout->block_bytes(), static_cast<std::size_t>(blocks * kBytes), test::host_stream())),
        prefixes(layout, ledger) {}

  [[nodiscard]] std::unique_ptr<SequenceState> sequence() const {
    return std::make_unique<SequenceState>(layout, ledger);
  }
  [[nodiscard]] std::int64_t used() const { return static_cast<std::int64_t>(ledger->used()) / kBytes; }

  std::shared_ptr<const StateLayout> layout;
  std::shared_ptr<BlockLedger> ledger;
  PrefixStore prefixes;
};

// Appends positions that say which sequence wrote them.
void append(SequenceState& state, std::int64_t count, int mark) {
  for (std::int64_t i = 0; i < count; ++i) {
    const std::int64_t position = state.length();
    ASSERT_TRUE(state.reserve(position + 1).ok());
    std::byte* const at = state.block(0, position / kBlockTokens) + position % kBlockTokens;
    *at = static_cast<std::byte>(mark);
    if (state.layout()->fixed_bytes() > 0) {
      const std::size_t layer = state.layout()->kinds().size() > 1 ? 2 : 1;
      state.next_fixed(layer)[0] = state.fixed(layer)[0] + static_cast<float>(mark);
    }
    state.commit(position + 1);
  }
}

int mark_at(SequenceState& state, std::int64_t position) {
  return static_cast<int>(state.block(0, position / kBlockTokens)[position % kBlockTokens]);
}

std::vector<std::int32_t> ids_of(std::int64_t count, std::int32_t first = 0) {
  std::vector<std::int32_t> ids(static_cast<std::size_t>(count));
  std::iota(ids.begin(), ids.end(), first);
  return ids;
}

TEST(BlockLedger, NeverExceedsItsBudget) {
  const auto ledger = *BlockLedger::make({4096, 12288, 0}, 8 * 4096, test::host_stream());
  std::mt19937 rng(1);
  std::vector<std::pair<std::size_t, BlockId>> held;
  int refused = 0;
  for (int i = 0; i < 5000; ++i) {
    const std::size_t kind = rng() % 2;
    if (rng() % 2 == 0) {
      if (const auto block = ledger->take(kind)) {
        std::memset(ledger->block(kind, *block), 1, ledger->block_bytes(kind));
        held.emplace_back(kind, *block);
      } else {
        ++refused;
      }
    } else if (!held.empty()) {
      const std::size_t which = rng() % held.size();
      ledger->release(held[which].first, held[which].second);
      held.erase(held.begin() + static_cast<std::ptrdiff_t>(which));
    }
    std::size_t bytes = 0;
    for (const auto& [of, block] : held) bytes += ledger->footprint(of);
    ASSERT_EQ(ledger->used(), bytes);
    ASSERT_LE(ledger->committed(), ledger->budget());
    ASSERT_LE(ledger->used(), ledger->committed());
  }
  EXPECT_GT(refused, 0);
  EXPECT_FALSE(ledger->take(2).has_value());
  for (const auto& [kind, block] : held) ledger->release(kind, block);
  EXPECT_EQ(ledger->used(), 0U);
  EXPECT_TRUE(ledger->take(1) && ledger->take(1));  // what the other kind has left serves this one
}

TEST(SequenceState, LayersOfOneWindowShareBlocks) {
  const StateLayout layout({{.block_bytes = 40, .fixed_floats = 3},
                            {.block_bytes = 80, .window = 9},
                            {.fixed_floats = 5},
                            {.block_bytes = 70}});
  ASSERT_EQ(layout.kinds().size(), 2U);
  EXPECT_EQ(layout.place(3).kind, layout.place(0).kind);
  EXPECT_EQ(layout.place(3).offset, 64);
  EXPECT_EQ(layout.fixed_offset(2), 16);
  EXPECT_EQ(layout.block_bytes(), (std::vector<std::size_t>{64 + 128, 128, 128}));
  EXPECT_EQ(layout.bytes(65), 2U * (64 + 128) + 2U * 128 + 2 * 128);
  EXPECT_EQ(layout.bytes(6400), 100U * (64 + 128) + 10U * 128 + 2 * 128);
}

TEST(SequenceState, ForksShareUntilTheyWrite) {
  Store store(layout_of(false, true), 40);
  const auto state = store.sequence();
  EXPECT_EQ(store.used(), 0);
  append(*state, 100, 1);
  EXPECT_EQ(store.used(), 2 + 2);  // blocks, and the recurrent state twice
  const auto forked = state->fork();
  SequenceState& copy = *forked;
  EXPECT_EQ(copy.length(), 100);
  EXPECT_EQ(store.used(), 2 + 2);
  append(copy, 50, 2);
  append(*state, 3, 3);
  EXPECT_EQ(mark_at(copy, 99), 1);
  EXPECT_EQ(mark_at(copy, 100), 2);
  EXPECT_EQ(mark_at(*state, 100), 3);
  EXPECT_EQ(mark_at(*state, 0), 1);
  EXPECT_EQ(&state->block(0, 0)[0], &copy.block(0, 0)[0]);
  EXPECT_NE(&state->block(0, 1)[0], &copy.block(0, 1)[0]);
  EXPECT_EQ(state->fixed(1)[0], 109.0F);
  EXPECT_EQ(copy.fixed(1)[0], 200.0F);
}

TEST(SequenceState, StartsAsZerosOverWhatOthersLeft) {
  Store store(layout_of(false, true), 10);
  append(*store.sequence(), 10, 7);
  const auto state = store.sequence();
  ASSERT_TRUE(state->reserve(1).ok());
  EXPECT_EQ(state->fixed(1)[0], 0.0F);
}

TEST(SequenceState, TruncatesWhatCanGoBack) {
  Store store(layout_of(false, false), 40);
  const auto state = store.sequence();
  append(*state, 200, 1);
  const auto copy = state->fork();
  ASSERT_TRUE(state->truncate(70).ok());
  EXPECT_EQ(state->length(), 70);
  append(*state, 1, 2);
  EXPECT_EQ(mark_at(*state, 69), 1);
  EXPECT_EQ(mark_at(*state, 70), 2);
  EXPECT_EQ(mark_at(*copy, 70), 1);
  EXPECT_EQ(state->truncate(72).error().code, "state.truncate");
  EXPECT_EQ(state->truncate(-1).error().code, "state.truncate");
  ASSERT_TRUE(state->truncate(0).ok());
  EXPECT_EQ(store.used(), 4);  // the copy's

  Store recurrent(layout_of(false, true), 40);
  const auto other = recurrent.sequence();
  append(*other, 5, 1);
  EXPECT_EQ(other->truncate(4).error().code, "state.truncate");
  ASSERT_TRUE(other->truncate(0).ok());
  append(*other, 1, 1);
  EXPECT_EQ(other->fixed(1)[0], 1.0F);
}

// Spans of drafts: what a checkpoint keeps is there whatever ran behind it.
TEST(SequenceState, GoesBackToItsCheckpoint) {
  Store store(layout_of(true, true), 200);
  const auto state = store.sequence();
  append(*state, 150, 1);
  state->checkpoint();
  EXPECT_EQ(state->checkpoint_length(), 150);
  append(*state, 8, 2);
  EXPECT_EQ(state->fixed(2)[0], 166.0F);
  EXPECT_EQ(state->truncate(154).error().code, "state.truncate");  // a recurrent state is kept at the checkpoint alone
  ASSERT_TRUE(state->truncate(150).ok());
  ASSERT_TRUE(state->reserve(151).ok());
  EXPECT_EQ(state->fixed(2)[0], 150.0F);
  append(*state, 200, 3);  // the window leaves everything behind, but for the checkpoint
  EXPECT_EQ(mark_at(*state, 150), 3);
  ASSERT_TRUE(state->truncate(150).ok());
  EXPECT_EQ(mark_at(*state, 149), 1);
  EXPECT_EQ(state->fixed(2)[0], 150.0F);
  const std::int64_t held = store.used();
  append(*state, 1, 4);
  state->drop_checkpoint();
  EXPECT_EQ(state->truncate(150).error().code, "state.truncate");
  EXPECT_LE(store.used(), held + 1);
  ASSERT_TRUE(state->truncate(0).ok());
  EXPECT_EQ(store.used(), 0);
}

TEST(SequenceState, ACheckpointIsGoneWhereTheStateIsShorter) {
  Store store(layout_of(false, true), 40);
  const auto state = store.sequence();
  append(*state, 70, 1);
  state->checkpoint();
  ASSERT_TRUE(state->truncate(0).ok());
  EXPECT_FALSE(state->checkpoint_length().has_value());
  EXPECT_EQ(store.used(), 0);
  state->checkpoint();  // of an empty state
  append(*state, 3, 1);
  ASSERT_TRUE(state->truncate(0).ok());
  append(*state, 1, 5);
  EXPECT_EQ(state->fixed(1)[0], 5.0F);
}

TEST(SequenceState, WindowsGiveBlocksBack) {
  Store store(layout_of(true, false), 60);
  const auto state = store.sequence();
  append(*state, 64 * 20, 1);
  EXPECT_EQ(store.used(), 20 + 2);  // 100 positions behind 1280 lie in the last two
  append(*state, 1, 1);
  EXPECT_EQ(store.used(), 21 + 3);
  // 1280 - 99 = 1181 is in block 18, which is there; a window further back is not.
  EXPECT_TRUE(state->truncate(1280).ok());
  EXPECT_EQ(state->truncate(1100).error().code, "state.truncate");
}

TEST(SequenceState, AFullPoolRefusesAndChangesNothing) {
  Store store(layout_of(true, true), 12);
  const auto state = store.sequence();
  append(*state, 130, 1);
  const std::int64_t used = store.used();
  const Result<> refused = state->reserve(64 * 10);
  ASSERT_FALSE(refused.ok());
  EXPECT_EQ(refused.error().code, "memory.state");
  EXPECT_EQ(store.used(), used);
  EXPECT_EQ(mark_at(*state, 129), 1);
  append(*state, 1, 1);
}

TEST(PrefixStore, FindsTheLongestPrefixOfTheSameSalt) {
  Store store(layout_of(false, false), 100);
  const auto ids = ids_of(300);
  {
    const auto state = store.sequence();
    append(*state, 300, 1);
    store.prefixes.store(*state, ids, "a");
    store.prefixes.store(*state, ids, "a");
  }
  EXPECT_EQ(store.prefixes.blocks(), 4U);
  EXPECT_EQ(store.used(), 4);
  EXPECT_EQ(store.prefixes.bytes(), 4U * kBytes);
  const auto found = [&](const std::vector<std::int32_t>& wanted, const char* salt) {
    const auto state = store.sequence();
    const auto length = store.prefixes.restore(*state, wanted, salt);
    EXPECT_EQ(state->length(), length);
    if (length > 0) {
      EXPECT_EQ(mark_at(*state, length - 1), 1);
    }
    return length;
  };
  EXPECT_EQ(found(ids, "a"), 256);
  EXPECT_EQ(found(ids, "b"), 0);
  EXPECT_EQ(found(ids_of(256), "a"), 192);  // its last token is to be computed
  EXPECT_EQ(found(ids_of(257), "a"), 256);
  EXPECT_EQ(found(ids_of(300, 1), "a"), 0);
  auto other = ids;
  other[100] = -5;
  EXPECT_EQ(found(other, "a"), 64);
  // The second block's ids behind another first block are another prefix.
  std::vector<std::int32_t> shifted(ids.begin() + 64, ids.end());
  EXPECT_EQ(found(shifted, "a"), 0);
}

TEST(PrefixStore, GivesUpTheLeastRecentlyUsedThatIsFree) {
  Store store(layout_of(false, false), 100);
  const auto add = [&](std::int32_t first) {
    const auto state = store.sequence();
    append(*state, 128, 1);
    store.prefixes.store(*state, ids_of(128, first), "");
  };
  add(0);
  add(1000);
  const auto holder = store.sequence();
  EXPECT_EQ(store.prefixes.restore(*holder, ids_of(129), ""), 128);
  EXPECT_TRUE(store.prefixes.evict());  // of the other one the later block, then the first
  const auto state = store.sequence();
  EXPECT_EQ(store.prefixes.restore(*state, ids_of(129, 1000), ""), 64);
  ASSERT_TRUE(state->truncate(0).ok());
  EXPECT_TRUE(store.prefixes.evict());
  EXPECT_FALSE(store.prefixes.evict());  // the holder's are in use
  EXPECT_EQ(store.used(), 2);
  ASSERT_TRUE(holder->truncate(0).ok());
  EXPECT_TRUE(store.prefixes.evict());
  EXPECT_TRUE(store.prefixes.evict());
  EXPECT_EQ(store.used(), 0);
}

TEST(PrefixStore, RecurrentSequencesGoOnWhereOneStood) {
  Store store(layout_of(true, true), 100);
  const auto ids = ids_of(300);
  {
    const auto state = store.sequence();
    append(*state, 128, 1);
    store.prefixes.store(*state, ids_of(128), "");
    append(*state, 172, 1);
    store.prefixes.store(*state, ids, "");
  }
  const auto state = store.sequence();
  EXPECT_EQ(store.prefixes.restore(*state, ids, ""), 128);  // blocks go further, but no recurrent state
  ASSERT_TRUE(state->reserve(129).ok());
  EXPECT_EQ(state->fixed(2)[0], 128.0F);
  append(*state, 1, 5);
  EXPECT_EQ(state->fixed(2)[0], 133.0F);
  const auto again = store.sequence();
  EXPECT_EQ(store.prefixes.restore(*again, ids, ""), 128);
  EXPECT_EQ(again->fixed(2)[0], 128.0F);  // unharmed
  store.prefixes.clear();
}

TEST(KvCodes, RoundToNearest) {
  std::mt19937 rng(3);
  std::normal_distribution<float> normal;
  std::vector<float> x(50);
  for (float& value : x) value = normal(rng);
  std::vector<std::uint16_t> halves(100);
  EXPECT_EQ(cpu::store_kv(KvType::bf16, x, reinterpret_cast<std::byte*>(halves.data()), 2), 1.0F);
  for (std::size_t i = 0; i < x.size(); ++i) EXPECT_EQ(halves[2 * i], encode_bf16(x[i]));
  std::vector<std::int8_t> codes(50);
  const float scale = cpu::store_kv(KvType::int8, x, reinterpret_cast<std::byte*>(codes.data()));
  for (std::size_t i = 0; i < x.size(); ++i) {
    EXPECT_LE(std::abs(static_cast<float>(codes[i]) * scale - x[i]), scale * 0.5001F);
  }
  EXPECT_EQ(cpu::store_kv(KvType::int8, std::vector<float>(5, 0.0F), reinterpret_cast<std::byte*>(codes.data())), 0.0F);
  EXPECT_EQ(cpu::store_kv(KvType::int8, std::vector<float>(5, 1e-45F), reinterpret_cast<std::byte*>(codes.data())),
            0.0F);
  x[7] = std::numeric_limits<float>::infinity();
  EXPECT_TRUE(std::isnan(cpu::store_kv(KvType::int8, x, reinterpret_cast<std::byte*>(codes.data()))));
}

}  // namespace
}  // namespace moracle
