#include "text/tokenizer/vocabulary.h"

#include <algorithm>
#include <utility>

namespace moracle {
namespace {

constexpr std::size_t kLeastSlots = 16;

std::uint32_t upper_half(std::size_t hash) {
  return static_cast<std::uint32_t>(hash >> 32U);
}

}  // namespace

void Vocabulary::reserve(std::size_t tokens, std::size_t bytes) {
  bytes_.reserve(bytes);
  tokens_.reserve(tokens);
  numbers_.reserve(tokens);
  std::size_t slots = kLeastSlots;
  while (slots < 2 * tokens) slots *= 2;
  grow(slots);
}

bool Vocabulary::add(std::string_view text, std::int32_t id) {
  if (2 * (tokens_.size() + 1) > slots_.size()) grow(std::max(kLeastSlots, 2 * slots_.size()));
  const std::size_t hash = KeyedHash()(text);
  const auto at = static_cast<std::size_t>(find(text, hash) - slots_.data());
  const auto key = static_cast<std::uint64_t>(id);
  if (slots_[at].number != kFree || numbers_.contains(key)) return false;
  const auto number = static_cast<std::uint32_t>(tokens_.size());
  slots_[at] = {upper_half(hash), number};
  numbers_[key] = number;
  tokens_.push_back({bytes_.size(), static_cast<std::uint32_t>(text.size()), id});
  bytes_.insert(bytes_.end(), text.begin(), text.end());
  largest_ = std::max(largest_, id);
  return true;
}

const Vocabulary::Slot* Vocabulary::find(std::string_view text, std::size_t hash) const {
  if (slots_.empty()) return nullptr;
  const std::size_t mask = slots_.size() - 1;
  std::size_t at = hash & mask;
  while (slots_[at].number != kFree &&
         (slots_[at].hash != upper_half(hash) || text_of(tokens_[slots_[at].number]) != text)) {
    at = (at + 1) & mask;
  }
  return &slots_[at];
}

void Vocabulary::grow(std::size_t slots) {
  slots_.assign(slots, Slot());
  for (std::size_t number = 0; number < tokens_.size(); ++number) {
    const std::size_t hash = KeyedHash()(text_of(tokens_[number]));
    std::size_t at = hash & (slots - 1);
    while (slots_[at].number != kFree) at = (at + 1) & (slots - 1);
    slots_[at] = {upper_half(hash), static_cast<std::uint32_t>(number)};
  }
}

}  // namespace moracle
