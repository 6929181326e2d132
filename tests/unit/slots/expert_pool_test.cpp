// Slots under calls of any kind, with guesses right and wrong, on a disk that is slow and fails.
#include "slots/expert_pool.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstring>
#include <mutex>
#include <set>
#include <thread>
#include <vector>

#include "base/json.h"
#include "base/random/random.h"
#include "checkpoint/mapped_file.h"

namespace moracle {
namespace {

constexpr std::size_t kMatrix = 700;
constexpr std::int64_t kExperts = 6;
constexpr std::size_t kLayers = 3;
constexpr std::size_t kBlock = 3 * kMatrix;

// Bytes in a file.
class StoredMatrix final : public MatrixSource {
 public:
  explicit StoredMatrix(std::span<const std::byte> bytes) : MatrixSource({}), bytes_(bytes) {}
  [[nodiscard]] Result<> read(std::int64_t, std::int64_t, MatrixPanel&) const override { return Ok{}; }
  void list_stored(std::vector<std::span<const std::byte>>& parts) const override { parts.push_back(bytes_); }
  [[nodiscard]] std::shared_ptr<const MatrixSource> relocated(const MoveBytes& moved) const override {
    return std::make_shared<StoredMatrix>(moved(bytes_));
  }
  [[nodiscard]] std::span<const std::byte> bytes() const { return bytes_; }

 private:
  std::span<const std::byte> bytes_;
};

// One file of random bytes, which takes its time and fails where it is told to; it knows what it was asked for.
class Disk final : public Checkpoint {
 public:
  explicit Disk(std::size_t bytes) : buffer_(bytes + kDiskBlock) {
    Random random(3);
    for (std::byte& byte : buffer_) byte = static_cast<std::byte>(random.below(256));
    void* at = buffer_.data();
    std::size_t space = buffer_.size();
    file_ = {static_cast<const std::byte*>(std::align(kDiskBlock, bytes, at, space)), bytes};
  }
  [[nodiscard]] const std::filesystem::path& folder() const override { return folder_; }
  [[nodiscard]] const Json& config() const override { return config_; }
  [[nodiscard]] const std::map<std::string, TensorView, std::less<>>& tensors() const override { return tensors_; }
  [[nodiscard]] std::uint64_t total_bytes() const override { return file_.size(); }
  [[nodiscard]] Result<> verify_unchanged() const override { return Ok{}; }
  void release(std::span<const std::byte> /*bytes*/) const override {}
  [[nodiscard]] bool in_one_file(std::span<const std::byte> /*bytes*/) const override { return true; }
  [[nodiscard]] Result<std::span<const std::byte>> read(std::span<const std::byte> bytes,
                                                        std::span<std::byte> room) const override {
    const std::chrono::microseconds wait(delay_us);
    bool fails = false;
    {
      const std::scoped_lock lock(mutex_);
      asked_.push_back(bytes.data());
      fails = every > 0 && asked_.size() % every == 0;
    }
    if (wait.count() > 0) std::this_thread::sleep_for(wait);
    if (fails) return Error{.code = "file.read", .found = "an error of the disk"};
    return Checkpoint::read(bytes, room);
  }

  [[nodiscard]] std::span<const std::byte> file() const { return file_; }
  [[nodiscard]] std::vector<const std::byte*> asked() const {
    const std::scoped_lock lock(mutex_);
    return asked_;
  }
  std::size_t every = 0;
  std::atomic<std::int64_t> delay_us{0};

 private:
  std::vector<std::byte> buffer_;
  std::span<const std::byte> file_;
  std::filesystem::path folder_ = "/nowhere";
  Json config_;
  std::map<std::string, TensorView, std::less<>> tensors_;
  mutable std::mutex mutex_;
  mutable std::vector<const std::byte*> asked_;
};

CanonicalExperts layer_of(const Disk& disk, std::size_t layer) {
  CanonicalExperts experts;
  experts.name = "layer " + std::to_string(layer);
  for (std::int64_t e = 0; e < kExperts; ++e) {
    const std::size_t first = (layer * static_cast<std::size_t>(kExperts) + static_cast<std::size_t>(e)) * kBlock;
    const auto matrix = [&](std::size_t i) {
      return CanonicalLinear{.weight =
                                 std::make_shared<StoredMatrix>(disk.file().subspan(first + i * kMatrix, kMatrix))};
    };
    experts.experts.push_back({.gate = matrix(0), .up = matrix(1), .down = matrix(2)});
  }
  return experts;
}

Result<> pack(std::int64_t /*expert*/, const CanonicalExperts::Expert& stored, std::span<std::byte> block,
              const BlockPart& part) {
  std::size_t at = 0;
  std::int64_t i = 0;
  for (const CanonicalLinear* linear : {&stored.gate, &stored.up, &stored.down}) {
    const std::span<const std::byte> bytes = dynamic_cast<const StoredMatrix&>(*linear->weight).bytes();
    if (i++ % part.count == part.index) std::ranges::copy(bytes, block.subspan(at).begin());
    at += bytes.size();
  }
  return Ok{};
}

struct Pool {
  std::shared_ptr<Disk> disk = std::make_shared<Disk>(kLayers * kExperts * kBlock);
  std::shared_ptr<ExpertPool> pool;
  std::vector<std::unique_ptr<LayerExperts>> layers;
  ThreadPool threads{2};

  explicit Pool(std::size_t slots) {
    const std::size_t room = ExpertExtents(layer_of(*disk, 0).experts.front(), *disk).room() + 2 * kDiskBlock;
    auto made = ExpertPool::make(
        disk, {.slots = slots, .slot_bytes = kBlock, .read_bytes = room, .experts = kLayers * kExperts});
    pool = *made;
    for (std::size_t l = 0; l < kLayers; ++l) {
      auto added = pool->add(layer_of(*disk, l), kBlock, pack);
      EXPECT_TRUE(added.ok());
      EXPECT_EQ(pool->newest(), added->get());
      layers.push_back(std::move(*added));
    }
  }

  [[nodiscard]] bool holds(const std::byte* block, std::size_t layer, std::int32_t expert) const {
    const std::size_t first = (layer * static_cast<std::size_t>(kExperts) + static_cast<std::size_t>(expert)) * kBlock;
    return block != nullptr && std::memcmp(block, disk->file().data() + first, kBlock) == 0;
  }

  // What a call is given; each expert has its own bytes.
  std::set<std::int32_t> call(std::size_t layer, std::span<const std::int32_t> experts) {
    std::set<std::int32_t> given;
    layers[layer]->begin(experts);
    for (auto wave = layers[layer]->next(threads); !wave.empty(); wave = layers[layer]->next(threads)) {
      for (const std::int32_t expert : wave) {
        EXPECT_TRUE(given.insert(expert).second) << "given twice";
        EXPECT_TRUE(holds(layers[layer]->blocks()[static_cast<std::size_t>(expert)], layer, expert));
      }
    }
    return given;
  }
};

std::vector<std::int32_t> draw(Random& random, bool repeats) {
  std::vector<std::int32_t> all = {0, 1, 2, 3, 4, 5};
  for (std::size_t i = all.size(); i > 1; --i) std::swap(all[i - 1], all[random.below(static_cast<std::uint32_t>(i))]);
  all.resize(random.below(static_cast<std::uint32_t>(all.size())) + 1);
  if (repeats) all.insert(all.end(), {-1, all.front()});
  return all;
}

TEST(ExpertPool, GivesWhatIsAskedForWhateverWasExpected) {
  for (const std::size_t slots : {1U, 2U, 5U, 18U}) {
    for (const std::size_t every : {0U, 1U, 3U, 7U}) {
      SCOPED_TRACE(std::to_string(slots) + " slots, a failure every " + std::to_string(every));
      Pool pool(slots);
      pool.disk->every = every;
      Random random(slots * 10 + every);
      for (int round = 0; round < 60; ++round) {
        pool.disk->delay_us = random.below(3) == 0 ? 100 : 0;
        const std::size_t layer = random.below(kLayers);
        const std::vector<std::int32_t> asked = draw(random, false);
        // Right, wrong, of another layer, or twice.
        for (std::uint32_t guesses = random.below(3); guesses > 0; --guesses)
          pool.layers[random.below(kLayers)]->expect(draw(random, true));
        const std::size_t before = random.below(kLayers);
        if (random.below(2) == 0) {
          pool.layers[layer]->expect(asked);
          pool.call(before, draw(random, false));
        }
        const std::set<std::int32_t> given = pool.call(layer, asked);
        for (const std::int32_t expert : given) EXPECT_EQ(std::ranges::count(asked, expert), 1);
        EXPECT_TRUE(every > 0 || given.size() == asked.size());
      }
      const PoolCounts counts = pool.pool->counts();
      EXPECT_EQ(counts.reads, counts.uses - counts.hits);
      EXPECT_EQ(counts.failures > 0, every > 0);
      EXPECT_EQ(pool.pool->last_error().has_value(), every > 0);
      EXPECT_LE(counts.foreseen, counts.ahead);
    }
  }
}

TEST(ExpertPool, AnExpertThatIsReadAheadIsReadOnce) {
  Pool pool(8);
  const std::vector<std::int32_t> first = {0, 1};
  const std::vector<std::int32_t> second = {2, 3};
  pool.layers[1]->expect(second);
  EXPECT_EQ(pool.call(0, first).size(), 2U);
  EXPECT_EQ(pool.call(1, second).size(), 2U);
  const PoolCounts counts = pool.pool->counts();
  EXPECT_EQ(counts.ahead, 2U);
  EXPECT_EQ(counts.foreseen, 2U);
  EXPECT_EQ(counts.reads, 4U);
  EXPECT_EQ(counts.read_bytes, 4 * kBlock);
}

// Neither a slot nor an expert that the next call needs gives way to a guess.
TEST(ExpertPool, WhatIsExpectedGivesWayLast) {
  const std::vector<std::int32_t> often = {0};
  const std::vector<std::int32_t> once = {1};
  for (const bool expects : {false, true}) {
    Pool pool(3);
    for (int i = 0; i < 5; ++i) pool.call(0, often);
    pool.call(1, once);
    for (int i = 0; i < 2; ++i) pool.call(1, std::vector<std::int32_t>{2});
    // A call of the layer before, for which the one that was used least has to go.
    if (expects) pool.layers[1]->expect(once);
    pool.call(0, std::vector<std::int32_t>{3});
    const std::uint64_t before = pool.pool->counts().hits;
    pool.call(1, once);
    EXPECT_EQ(pool.pool->counts().hits - before, expects ? 1U : 0U);
  }
}

TEST(DiskReader, WhatIsWantedNowGoesFirst) {
  const auto disk = std::make_shared<Disk>(40 * kBlock);
  disk->delay_us = 2000;
  std::vector<PageBuffer> rooms;
  std::vector<ReadJob> jobs(20);
  for (std::size_t i = 0; i < jobs.size(); ++i) {
    CanonicalExperts::Expert expert;
    for (CanonicalLinear* linear : {&expert.gate, &expert.up, &expert.down})
      linear->weight = std::make_shared<StoredMatrix>(disk->file().subspan(2 * i * kBlock, kBlock));
    jobs[i].extents = ExpertExtents(expert, *disk);
    auto room = PageBuffer::allocate(jobs[i].extents.room());
    ASSERT_TRUE(room.ok());
    rooms.push_back(std::move(*room));
    jobs[i].room = {rooms.back().data(), jobs[i].extents.room()};
  }
  DiskReader reader(*disk, 4);
  for (std::size_t i = 1; i < jobs.size(); ++i) reader.submit(jobs[i], ReadWhen::ahead);
  std::this_thread::sleep_for(std::chrono::milliseconds(3));
  reader.submit(jobs[0]);
  reader.hasten(jobs[19]);
  reader.wait([&] { return jobs[0].done() && jobs[19].done(); });
  const std::vector<const std::byte*> asked = disk->asked();
  EXPECT_LT(asked.size(), 14U) << "most of what is read ahead waits";
  for (std::size_t i = 1; i < 19; ++i) reader.drop(jobs[i]);
  reader.wait([&] { return std::ranges::all_of(jobs, &ReadJob::done); });
  EXPECT_LT(disk->asked().size(), 18U) << "what was dropped is not read";
}

}  // namespace
}  // namespace moracle
