#include "slots/expert_pool.h"

#include <algorithm>
#include <utility>

#include "base/first_error.h"
#include "base/generic/count.h"

namespace moracle {

namespace {

// Uses of any expert until one counts half: so many times all experts of the model.
constexpr double kHalfLife = 4.0;

}  // namespace

// The experts of one layer. A call gives what is in slots first, while the rest is read.
class ExpertPool::Layer final : public LayerExperts {
 public:
  Layer(ExpertPool& pool, CanonicalExperts experts, PackExpert pack)
      : pool_(pool),
        first_(pool.added_),
        experts_(std::move(experts)),
        pack_(std::move(pack)),
        blocks_(experts_.experts.size(), nullptr) {
    given_.reserve(blocks_.size());
  }

  void begin(std::span<const std::int32_t> experts) override {
    let_go();
    pool_.drop_call();
    missing_.clear();
    for (const std::int32_t expert : experts) {
      const std::size_t of_pool = first_ + count(expert);
      pool_.policy_.use(of_pool);
      const std::size_t slot = pool_.slot_of_[of_pool];
      if (slot != kNone) {
        give(expert, slot);
      } else if (!pool_.adopt(of_pool)) {
        missing_.push_back(missing(expert));
      }
    }
    pool_.forget_expected();
    std::ranges::sort(missing_, {}, [](const Missing& each) { return each.extents.first(); });
    pool_.counters_.uses += experts.size();
    pool_.counters_.hits += given_.size();
    fresh_ = true;
    start_reads();
  }

  std::span<const std::int32_t> next(ThreadPool& pool) override {
    if (std::exchange(fresh_, false) && !given_.empty()) return given_;
    let_go();
    while (given_.empty() && (!missing_.empty() || std::ranges::any_of(pool_.reads_, is_wanted))) {
      start_reads();
      pool_.reader_->wait([&] { return can_go_on(); });
      pack_those_read(pool);
    }
    start_reads();
    return given_;
  }

  void expect(std::span<const std::int32_t> experts) override {
    if (!pool_.reader_->reads_ahead()) return;
    pool_.expect(this);
    expected_.clear();
    for (const std::int32_t expert : experts) {
      if (expert < 0) continue;
      const std::size_t slot = pool_.slot_of_[first_ + count(expert)];
      if (slot != kNone) {
        pool_.slots_[slot].expected = true;
      } else if (expected_.size() < PoolSize::kReads &&
                 std::ranges::find(expected_, expert, &Missing::expert) == expected_.end()) {
        expected_.push_back(missing(expert));
      }
    }
  }

  [[nodiscard]] std::span<const std::byte* const> blocks() const override { return blocks_; }

 private:
  struct Missing {
    ExpertExtents extents;
    std::int32_t expert;
  };

  // A read that is done, and where it is packed.
  struct Pack {
    Read* read = nullptr;
    std::size_t slot = kNone;  // kNone: it failed
    Result<> result = Ok{};
  };

  static bool is_wanted(const Read& read) { return read.want == Want::now; }

  // Something can be packed, or another read begun: what was dropped may take all memory that is read into for a while.
  [[nodiscard]] bool can_go_on() const {
    return std::ranges::any_of(pool_.reads_, &Read::ready) ||
           (!missing_.empty() && std::ranges::any_of(pool_.reads_, &Read::free));
  }

  [[nodiscard]] Missing missing(std::int32_t expert) const {
    return {ExpertExtents(experts_.experts[count(expert)], *pool_.checkpoint_), expert};
  }

  void give(std::int32_t expert, std::size_t slot) {
    pool_.slots_[slot].held = true;
    blocks_[count(expert)] = pool_.block(slot).data();
    given_.push_back(expert);
  }

  void let_go() {
    for (const std::int32_t expert : given_) {
      pool_.slots_[pool_.slot_of_[first_ + count(expert)]].held = false;
      blocks_[count(expert)] = nullptr;
    }
    given_.clear();
  }

  // Those of the call, then those that are expected.
  void start_reads() {
    start_reads(missing_, Want::now);
    if (missing_.empty() && pool_.expecting_ != nullptr)
      pool_.expecting_->start_reads(pool_.expecting_->expected_, Want::ahead);
  }
  void start_reads(std::deque<Missing>& experts, Want want) {
    for (Read& read : pool_.reads_) {
      if (experts.empty()) return;
      if (!read.free()) continue;
      pool_.read(read, first_ + count(experts.front().expert), std::move(experts.front().extents), want);
      experts.pop_front();
    }
  }

  // As many as there are slots for; several threads pack an expert where there are fewer of these.
  void pack_those_read(ThreadPool& pool) {
    packs_.clear();
    for (Read& read : pool_.reads_) {
      if (!read.ready() || packs_.size() == pool_.slots_.size()) continue;
      Pack& pack = packs_.emplace_back();
      pack.read = &read;
      pack.result = read.job.error->take();
      if (pack.result.ok()) pack.slot = pool_.take_slot();
    }
    if (packs_.empty()) return;
    const std::int64_t parts = std::max<std::int64_t>(1, pool.threads() / std::ssize(packs_));
    std::array<FirstError, PoolSize::kReads> failed;
    pool.parallel_for(std::ssize(packs_) * parts, [&](std::int64_t task, int) {
      const Pack& pack = packs_[count(task / parts)];
      if (pack.slot != kNone) failed[count(task / parts)].keep(task, pack_part(pack, {task % parts, parts}));
    });
    for (std::size_t i = 0; i < packs_.size(); ++i) {
      Pack& pack = packs_[i];
      settle(*pack.read, pack.slot, pack.result.ok() ? failed[i].take() : std::move(pack.result));
    }
  }

  [[nodiscard]] Result<> pack_part(const Pack& pack, const BlockPart& part) const {
    const std::size_t expert = pack.read->expert - first_;
    const ReadJob& job = pack.read->job;
    return pack_(static_cast<std::int64_t>(expert), job.extents.relocated(experts_.experts[expert], job.room),
                 pool_.block(pack.slot), part);
  }

  void settle(Read& read, std::size_t slot, Result<> result) {
    const std::size_t expert = read.expert;
    read.want = Want::none;
    ++pool_.counters_.reads;
    if (result.ok()) {
      pool_.slots_[slot].expert = expert;
      pool_.slot_of_[expert] = slot;
      return give(static_cast<std::int32_t>(expert - first_), slot);
    }
    if (slot != kNone) pool_.slots_[slot].held = false;
    ++pool_.counters_.failures;
    pool_.last_error_ = std::move(result).error();
  }

  ExpertPool& pool_;
  std::size_t first_;  // number of its first expert in the pool
  CanonicalExperts experts_;
  PackExpert pack_;
  std::vector<const std::byte*> blocks_;
  // Of the call under way.
  std::vector<std::int32_t> given_;
  std::deque<Missing> missing_;  // in the order of the files
  std::vector<Pack> packs_;
  bool fresh_ = false;  // next() was not called yet
  // Of the next one, while the pool is expecting this layer.
  std::deque<Missing> expected_;
};

ExpertPool::ExpertPool(std::shared_ptr<const Checkpoint> checkpoint, const PoolSize& size)
    : checkpoint_(std::move(checkpoint)),
      size_(size),
      slots_(size.slots),
      slot_of_(size.experts, kNone),
      policy_(size.experts, kHalfLife * static_cast<double>(size.experts)) {}

Result<std::shared_ptr<ExpertPool>> ExpertPool::make(std::shared_ptr<const Checkpoint> checkpoint,
                                                     const PoolSize& size) {
  std::shared_ptr<ExpertPool> pool(new ExpertPool(std::move(checkpoint), size));
  MORACLE_ASSIGN(pool->slots_memory_, PageBuffer::allocate(size.slots * size.slot_bytes));
  MORACLE_ASSIGN(pool->read_memory_, PageBuffer::allocate(PoolSize::kReads * size.read_bytes));
  std::span<std::byte> memory(pool->read_memory_.data(), pool->read_memory_.size());
  for (Read& read : pool->reads_) {
    read.job.room = memory.first(size.read_bytes);
    memory = memory.subspan(size.read_bytes);
  }
  pool->reader_.emplace(*pool->checkpoint_, DiskReader::kThreads);
  return pool;
}

Result<std::unique_ptr<LayerExperts>> ExpertPool::add(CanonicalExperts experts, std::size_t block_bytes,
                                                      PackExpert pack) {
  std::size_t room = 0;
  bool complete = true;
  for (const CanonicalExperts::Expert& expert : experts.experts) {
    const ExpertExtents extents(expert, *checkpoint_);
    room = std::max(room, extents.room());
    complete = complete && extents.complete();
  }
  const bool fits =
      block_bytes <= size_.slot_bytes && room <= size_.read_bytes && experts.experts.size() <= slot_of_.size() - added_;
  if (!fits || !complete) {
    return Error{.code = "memory.slot",
                 .where = experts.name,
                 .wanted = "experts of a checkpoint, of the sizes that were planned",
                 .found = complete ? "larger ones, or more of them" : "a matrix that cannot be read again"};
  }
  const std::size_t added = experts.experts.size();
  auto layer = std::make_unique<Layer>(*this, std::move(experts), std::move(pack));
  added_ += added;
  newest_ = layer.get();
  return std::unique_ptr<LayerExperts>(std::move(layer));
}

LayerExperts* ExpertPool::newest() const {
  return newest_;
}

std::size_t ExpertPool::take_slot() {
  const auto list_evictable = [&](bool expected) {
    evictable_.clear();
    for (const Slot& slot : slots_) {
      if (!slot.held && slot.expected == expected) evictable_.push_back(slot.expert);
    }
  };
  const auto empty = std::ranges::find_if(slots_, [](const Slot& slot) { return !slot.held && slot.expert == kNone; });
  if (empty != slots_.end()) {
    empty->held = true;
    return count(empty - slots_.begin());
  }
  list_evictable(false);
  if (evictable_.empty()) list_evictable(true);
  const std::size_t expert = policy_.least(evictable_);
  const std::size_t slot = std::exchange(slot_of_[expert], kNone);
  slots_[slot] = {.expert = kNone, .held = true};
  return slot;
}

// A call that threw has left slots held, and reads.
void ExpertPool::drop_call() {
  for (Slot& slot : slots_) slot.held = false;
  const auto over = [](const Read& read) { return read.want != Want::now || read.job.done(); };
  reader_->wait([&] { return std::ranges::all_of(reads_, over); });
  for (Read& read : reads_) {
    if (read.want == Want::now) read.want = Want::none;
  }
}

void ExpertPool::read(Read& read, std::size_t expert, ExpertExtents extents, Want want) {
  read.expert = expert;
  read.job.extents = std::move(extents);
  read.want = want;
  if (want == Want::ahead) ++counters_.ahead;
  reader_->submit(read.job, want == Want::ahead ? ReadWhen::ahead : ReadWhen::now);
}

bool ExpertPool::adopt(std::size_t expert) {
  const auto found =
      std::ranges::find_if(reads_, [&](const Read& read) { return read.want == Want::ahead && read.expert == expert; });
  if (found == reads_.end()) return false;
  found->want = Want::now;
  ++counters_.foreseen;
  reader_->hasten(found->job);
  return true;
}

void ExpertPool::forget_expected() {
  for (Read& read : reads_) {
    if (read.want != Want::ahead) continue;
    read.want = Want::dropped;
    reader_->drop(read.job);
  }
  if (!std::exchange(foretold_, false)) expect(nullptr);
}

void ExpertPool::expect(Layer* layer) {
  expecting_ = layer;
  foretold_ = layer != nullptr;
  for (Slot& slot : slots_) slot.expected = false;
}

PoolCounts ExpertPool::counts() const {
  return {.uses = counters_.uses,
          .hits = counters_.hits,
          .reads = counters_.reads,
          .read_bytes = reader_->bytes(),
          .ahead = counters_.ahead,
          .foreseen = counters_.foreseen,
          .failures = counters_.failures};
}

}  // namespace moracle
