// A map from numbers to small values in one block of memory. The keys may be a stranger's choice.
#pragma once

#include <cstddef>
#include <cstdint>
#include <limits>
#include <utility>
#include <vector>

#include "base/random/keyed_hash.h"

namespace moracle {

template <class Value>
class FlatMap {
 public:
  static constexpr std::uint64_t kNoKey = std::numeric_limits<std::uint64_t>::max();  // is no key

  [[nodiscard]] const Value* find(std::uint64_t key) const {
    if (slots_.empty()) return nullptr;
    const Slot& slot = slots_[place_of(key)];
    return slot.key == key ? &slot.value : nullptr;
  }
  [[nodiscard]] bool contains(std::uint64_t key) const { return find(key) != nullptr; }
  [[nodiscard]] std::size_t size() const { return size_; }

  // The value of `key`, made where there is none.
  Value& operator[](std::uint64_t key) {
    if (2 * (size_ + 1) > slots_.size()) grow(2 * slots_.size());
    Slot& slot = slots_[place_of(key)];
    if (slot.key == kNoKey) {
      slot.key = key;
      ++size_;
    }
    return slot.value;
  }

  void reserve(std::size_t count) {
    std::size_t slots = kLeast;
    while (slots < 2 * count) slots *= 2;
    if (slots > slots_.size()) grow(slots);
  }

 private:
  static constexpr std::size_t kLeast = 16;  // a power of two, as every size is
  struct Slot {
    std::uint64_t key = kNoKey;
    Value value{};
  };

  // Of the key, or of the free slot where it would lie. At least half of the slots are free.
  [[nodiscard]] std::size_t place_of(std::uint64_t key) const {
    const std::size_t mask = slots_.size() - 1;
    std::size_t place = KeyedHash()(key) & mask;
    while (slots_[place].key != key && slots_[place].key != kNoKey) place = (place + 1) & mask;
    return place;
  }

  void grow(std::size_t slots) {
    std::vector<Slot> old = std::exchange(slots_, std::vector<Slot>(slots < kLeast ? kLeast : slots));
    for (Slot& slot : old) {
      if (slot.key != kNoKey) slots_[place_of(slot.key)] = std::move(slot);
    }
  }

  std::vector<Slot> slots_;
  std::size_t size_ = 0;
};

}  // namespace moracle
