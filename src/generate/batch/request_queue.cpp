#include "generate/batch/request_queue.h"

#include <algorithm>
#include <iterator>

namespace moracle {

void RequestQueue::push(const std::string& key, const Entry& entry) {
  auto at = std::find_if(keys_.begin(), keys_.end(), [&](const Key& each) { return each.name == key; });
  if (at == keys_.end()) {
    // A new key comes last in the round that is going on.
    at = keys_.insert(turn_, Key{.name = key, .waiting = {entry}});
    if (turn_ == keys_.end()) {
      turn_ = at;
      turn_->deficit = kQuantum;
    }
  } else {
    const auto place =
        std::upper_bound(at->waiting.begin(), at->waiting.end(), entry, [](const Entry& a, const Entry& b) {
          return a.priority != b.priority ? a.priority < b.priority : a.id < b.id;
        });
    at->waiting.insert(place, entry);
  }
  ++size_;
  tokens_ += entry.tokens;
}

void RequestQueue::advance() {
  if (++turn_ == keys_.end()) turn_ = keys_.begin();
}

std::optional<RequestId> RequestQueue::next(const std::function<bool(const std::string& key)>& may_run) {
  if (std::none_of(keys_.begin(), keys_.end(), [&](const Key& key) { return may_run(key.name); })) return std::nullopt;
  while (!may_run(turn_->name) || turn_->waiting.front().tokens > turn_->deficit) {
    advance();
    if (may_run(turn_->name)) turn_->deficit += kQuantum;
  }
  return turn_->waiting.front().id;
}

std::int64_t RequestQueue::size(const std::function<bool(const std::string& key)>& may_run) const {
  std::int64_t sum = 0;
  for (const Key& key : keys_) sum += may_run(key.name) ? std::ssize(key.waiting) : 0;
  return sum;
}

bool RequestQueue::remove(RequestId id) {
  for (auto key = keys_.begin(); key != keys_.end(); ++key) {
    const auto entry =
        std::find_if(key->waiting.begin(), key->waiting.end(), [&](const Entry& each) { return each.id == id; });
    if (entry == key->waiting.end()) continue;
    if (key == turn_ && entry == key->waiting.begin()) key->deficit -= std::min(key->deficit, entry->tokens);
    erase(key, entry);
    return true;
  }
  return false;
}

void RequestQueue::erase(std::list<Key>::iterator key, std::deque<Entry>::iterator entry) {
  --size_;
  tokens_ -= entry->tokens;
  key->waiting.erase(entry);
  if (!key->waiting.empty()) return;
  const bool was_next = turn_ == key;
  const auto after = keys_.erase(key);
  if (!was_next) return;
  turn_ = after == keys_.end() ? keys_.begin() : after;
  if (turn_ != keys_.end()) turn_->deficit += kQuantum;
}

}  // namespace moracle
