// The tables of a model: token texts and ids.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>

#include "base/random/keyed_hash.h"
#include "base/result.h"

namespace moracle {

using IdByText = std::unordered_map<std::string, std::int32_t, KeyedHash, std::equal_to<>>;

// A one-to-one map between token texts and ids.
class Vocabulary {
 public:
  // False when the text or the id is taken.
  bool add(std::string text, std::int32_t id) {
    const auto [place, added] = ids_.try_emplace(std::move(text), id);
    if (!added) return false;
    if (!texts_.try_emplace(id, place->first).second) {
      ids_.erase(place);
      return false;
    }
    if (id > largest_) largest_ = id;
    return true;
  }
  [[nodiscard]] std::optional<std::int32_t> id(std::string_view text) const {
    const auto found = ids_.find(text);
    return found == ids_.end() ? std::nullopt : std::optional(found->second);
  }
  // The view lives as long as the vocabulary.
  [[nodiscard]] std::optional<std::string_view> text(std::int32_t id) const {
    const auto found = texts_.find(id);
    return found == texts_.end() ? std::nullopt : std::optional(found->second);
  }
  [[nodiscard]] std::size_t size() const { return ids_.size(); }
  [[nodiscard]] std::int32_t largest_id() const { return largest_; }  // -1 when empty
  [[nodiscard]] const IdByText& ids() const { return ids_; }

 private:
  IdByText ids_;  // nodes stay in place, so the views below do too, also when the vocabulary is moved
  std::unordered_map<std::int32_t, std::string_view, KeyedHash> texts_;
  std::int32_t largest_ = -1;
};

}  // namespace moracle
