// The streams of /v1/routing: which experts took how many tokens, of all requests and of one.
#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "base/json.h"
#include "serve/engine/token_engine.h"
#include "serve/http/http.h"

namespace moracle::serve {

// Used on the I/O thread alone.
class ExpertCounters {
 public:
  using Counts = std::vector<std::uint64_t>;  // [layers, experts]

  static constexpr std::size_t kWatchers = 16;
  static constexpr std::size_t kKept = 16;  // replies that have ended

  void set_shape(std::int64_t layers, std::int64_t experts);
  // Whether there are as many streams as there may be.
  [[nodiscard]] bool full();
  // An open stream hears of all requests, and of the reply whose id is `request`, or empty; only its own key's replies
  // are reported.
  void watch(std::shared_ptr<Exchange> exchange, std::string request, std::string key);
  [[nodiscard]] bool watched() const { return !watchers_.empty(); }
  // The counts of a reply that has ended. The latest kKept are held.
  void keep(std::string request, std::string key, Counts counts);
  // What a request that runs has so far; false: none of this id and key runs.
  using Running = std::function<bool(const std::string& request, const std::string& key, Counts& counts)>;
  // Tells each stream what it has not heard yet.
  void report(const RoutingSnapshot& now, const Running& running);
  // Ends all streams.
  void end();

 private:
  struct Watcher {
    std::shared_ptr<Exchange> exchange;
    std::string request, key;
    std::shared_ptr<bool> disconnected;
    std::uint64_t steps = 0;  // as of which it was reported
    bool reported = false, reported_end = false;
  };
  struct Ended {
    std::string request, key;
    Counts counts;
  };
  [[nodiscard]] const Ended* ended(const Watcher& watcher) const;
  [[nodiscard]] Json rows(const Counts& counts) const;

  std::int64_t layers_ = 0, experts_ = 0;
  std::vector<Watcher> watchers_;
  std::deque<Ended> ended_;
};

}  // namespace moracle::serve
