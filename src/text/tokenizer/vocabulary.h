// The tables of a model: token texts and ids. They are constant once made, for every thread.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "base/generic/flat_map.h"
#include "base/random/keyed_hash.h"

namespace moracle {

using IdByText = std::unordered_map<std::string, std::int32_t, KeyedHash, std::equal_to<>>;

// A one-to-one map between token texts and ids, in a few blocks of memory, so that half a million are read in little
// time.
class Vocabulary {
 public:
  struct Token {
    std::string_view text;
    std::int32_t id;
  };

  // Before the first token: how many come, and their bytes.
  void reserve(std::size_t tokens, std::size_t bytes);
  // False when the text or the id is taken. `id` is 0 or more.
  bool add(std::string_view text, std::int32_t id);
  [[nodiscard]] std::optional<std::int32_t> id(std::string_view text) const {
    const Slot* const slot = find(text, KeyedHash()(text));
    return slot == nullptr || slot->number == kFree ? std::nullopt : std::optional(tokens_[slot->number].id);
  }
  // The view lives until the next add(), or as long as the vocabulary, also when that is moved.
  [[nodiscard]] std::optional<std::string_view> text(std::int32_t id) const {
    const std::uint32_t* const number = id < 0 ? nullptr : numbers_.find(static_cast<std::uint64_t>(id));
    return number == nullptr ? std::nullopt : std::optional(text_of(tokens_[*number]));
  }
  [[nodiscard]] std::size_t size() const { return tokens_.size(); }
  [[nodiscard]] std::int32_t largest_id() const { return largest_; }  // -1 when empty
  [[nodiscard]] Token token(std::size_t number) const { return {text_of(tokens_[number]), tokens_[number].id}; }

 private:
  struct Place {
    std::size_t begin;
    std::uint32_t size;
    std::int32_t id;
  };
  static constexpr std::uint32_t kFree = 0xFFFFFFFF;
  struct Slot {
    std::uint32_t hash = 0;  // its upper half: most texts that differ are told apart without a look at them
    std::uint32_t number = kFree;
  };

  [[nodiscard]] std::string_view text_of(const Place& place) const { return {bytes_.data() + place.begin, place.size}; }
  // Of the text, or the free slot where it would lie; null where no slot is.
  [[nodiscard]] const Slot* find(std::string_view text, std::size_t hash) const;
  void grow(std::size_t slots);

  std::vector<char> bytes_;  // of all texts
  std::vector<Place> tokens_;
  std::vector<Slot> slots_;         // by text; a power of two, at least half of it free
  FlatMap<std::uint32_t> numbers_;  // by id
  std::int32_t largest_ = -1;
};

}  // namespace moracle
