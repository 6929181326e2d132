// The waiting requests, taken in turns by key. It belongs to the thread that drives the scheduler, and knows keys,
// priorities and lengths of prompts alone.
#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <list>
#include <optional>
#include <string>

#include "generate/request.h"

namespace moracle {

// Deficit round robin (Shreedhar and Varghese, SIGCOMM 1995): each turn a key may take kQuantum more tokens, so that a
// key with long prompts or many requests delays no other key by more than its share. Within a key lower priorities come
// first, then the order of submission.
class RequestQueue {
 public:
  static constexpr std::int64_t kQuantum = 512;  // tokens

  struct Entry {
    RequestId id = 0;
    std::int64_t priority = 0;
    std::int64_t tokens = 0;  // of the prompt
  };

  void push(const std::string& key, const Entry& entry);
  // Whose turn it is among the keys that may run more; empty: no such key. The same answer until something changes.
  [[nodiscard]] std::optional<RequestId> next(const std::function<bool(const std::string& key)>& may_run);
  // Takes a request out; of what next() said, its key pays for it. False: it does not wait.
  bool remove(RequestId id);
  [[nodiscard]] std::int64_t size() const { return size_; }
  // Of the keys that may run more.
  [[nodiscard]] std::int64_t size(const std::function<bool(const std::string& key)>& may_run) const;
  [[nodiscard]] std::int64_t tokens() const { return tokens_; }

 private:
  struct Key {
    std::string name;
    std::deque<Entry> waiting;
    std::int64_t deficit = 0;  // tokens it may take in this turn
  };
  void erase(std::list<Key>::iterator key, std::deque<Entry>::iterator entry);
  void advance();

  std::list<Key> keys_;  // those with something to wait for
  std::list<Key>::iterator turn_ = keys_.end();
  std::int64_t size_ = 0;
  std::int64_t tokens_ = 0;
};

}  // namespace moracle
