#include "slots/expert_pool.h"

#include <algorithm>
#include <utility>

#include "base/first_error.h"
#include "base/generic/count.h"

namespace moracle {

namespace {

// At a time, each of an expert: with fewer a disk of flash idles between requests.
constexpr int kReaders = 4;
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
      if (slot == kNone) {
        missing_.push_back({ExpertExtents(experts_.experts[count(expert)], *pool_.checkpoint_), expert});
      } else {
        give(expert, slot);
      }
    }
    std::ranges::sort(missing_, {}, [](const Missing& each) { return each.extents.first(); });
    pool_.counters_.uses += experts.size();
    pool_.counters_.hits += given_.size();
    fresh_ = true;
    start_reads();
  }

  std::span<const std::int32_t> next(ThreadPool& pool) override {
    if (std::exchange(fresh_, false) && !given_.empty()) return given_;
    let_go();
    while (given_.empty() && (!missing_.empty() || std::ranges::any_of(pool_.reads_, is_begun))) {
      start_reads();
      pool_.reader_->wait([&] { return std::ranges::any_of(pool_.reads_, is_done); });
      pack_those_read(pool);
    }
    start_reads();
    return given_;
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

  static bool is_begun(const Read& read) { return read.expert != kNone; }
  static bool is_done(const Read& read) { return read.expert != kNone && read.job.done(); }

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

  void start_reads() {
    for (Read& read : pool_.reads_) {
      if (missing_.empty()) return;
      if (read.expert != kNone) continue;
      read.expert = first_ + count(missing_.front().expert);
      read.job.extents = std::move(missing_.front().extents);
      missing_.pop_front();
      pool_.reader_->submit(read.job);
    }
  }

  // As many as there are slots for; several threads pack an expert where there are fewer of these.
  void pack_those_read(ThreadPool& pool) {
    packs_.clear();
    for (Read& read : pool_.reads_) {
      if (!is_done(read) || packs_.size() == pool_.slots_.size()) continue;
      Pack& pack = packs_.emplace_back();
      pack.read = &read;
      pack.result = read.job.error->take();
      if (pack.result.ok()) pack.slot = pool_.take_slot();
    }
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
    const std::size_t expert = std::exchange(read.expert, kNone);
    ++pool_.counters_.reads;
    pool_.counters_.read_bytes += read.job.extents.bytes();
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
  pool->reader_.emplace(*pool->checkpoint_, kReaders);
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
  return std::unique_ptr<LayerExperts>(std::move(layer));
}

std::size_t ExpertPool::take_slot() {
  evictable_.clear();
  for (std::size_t slot = 0; slot < slots_.size(); ++slot) {
    if (slots_[slot].held) continue;
    if (slots_[slot].expert == kNone) {
      slots_[slot].held = true;
      return slot;
    }
    evictable_.push_back(slots_[slot].expert);
  }
  const std::size_t expert = policy_.least(evictable_);
  const std::size_t slot = std::exchange(slot_of_[expert], kNone);
  slots_[slot] = {.expert = kNone, .held = true};
  return slot;
}

// A call that threw has left slots held, and reads.
void ExpertPool::drop_call() {
  for (Slot& slot : slots_) slot.held = false;
  reader_->wait([&] {
    return std::ranges::all_of(reads_, [](const Read& read) { return read.expert == kNone || read.job.done(); });
  });
  for (Read& read : reads_) read.expert = kNone;
}

PoolCounts ExpertPool::counts() const {
  return {.uses = counters_.uses,
          .hits = counters_.hits,
          .reads = counters_.reads,
          .read_bytes = counters_.read_bytes,
          .failures = counters_.failures};
}

}  // namespace moracle
