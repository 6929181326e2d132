#include "serve/expert_counters.h"

#include <algorithm>
#include <utility>

#include "serve/api/json_text.h"

namespace moracle::serve {

void ExpertCounters::set_shape(std::int64_t layers, std::int64_t experts) {
  layers_ = layers;
  experts_ = experts;
}

bool ExpertCounters::full() {
  std::erase_if(watchers_, [](const Watcher& watcher) { return *watcher.disconnected; });
  return watchers_.size() >= kWatchers;
}

void ExpertCounters::watch(std::shared_ptr<Exchange> exchange, std::string request, std::string key) {
  auto disconnected = std::make_shared<bool>(false);
  exchange->on_disconnect([disconnected](std::string_view /*cause*/) { *disconnected = true; });
  watchers_.push_back({.exchange = std::move(exchange),
                       .request = std::move(request),
                       .key = std::move(key),
                       .disconnected = std::move(disconnected)});
}

void ExpertCounters::keep(std::string request, std::string key, Counts counts) {
  if (ended_.size() >= kKept) ended_.pop_front();
  ended_.push_back({.request = std::move(request), .key = std::move(key), .counts = std::move(counts)});
}

const ExpertCounters::Ended* ExpertCounters::ended(const Watcher& watcher) const {
  const auto found = std::find_if(ended_.rbegin(), ended_.rend(), [&](const Ended& each) {
    return each.request == watcher.request && each.key == watcher.key;
  });
  return found == ended_.rend() ? nullptr : &*found;
}

Json ExpertCounters::rows(const Counts& counts) const {
  Json rows = Json::array();
  const auto experts = static_cast<std::size_t>(experts_);
  for (std::size_t at = 0; at + experts <= counts.size() && experts > 0; at += experts) {
    rows.push_back(Counts(counts.begin() + static_cast<std::ptrdiff_t>(at),
                          counts.begin() + static_cast<std::ptrdiff_t>(at + experts)));
  }
  return rows;
}

void ExpertCounters::report(const RoutingSnapshot& now, const Running& running) {
  std::erase_if(watchers_, [](const Watcher& watcher) { return *watcher.disconnected; });
  Json all;
  for (Watcher& watcher : watchers_) {
    Json request = nullptr;
    bool ends = false;
    if (!watcher.request.empty()) {
      Counts counts(now.all.size());
      const bool runs = running(watcher.request, watcher.key, counts);
      const Ended* const done = runs ? nullptr : ended(watcher);
      ends = done != nullptr;
      if (ends) counts = done->counts;
      if (runs || ends) request = {{"id", watcher.request}, {"running", runs}, {"counts", rows(counts)}};
    }
    if (watcher.reported && watcher.steps == now.steps && watcher.reported_end == ends) continue;
    watcher.reported = true;
    watcher.reported_end = ends;
    watcher.steps = now.steps;
    if (all.is_null()) all = rows(now.all);
    watcher.exchange->write(
        event_of({{"layers", layers_}, {"experts", experts_}, {"all", all}, {"request", std::move(request)}}));
  }
}

void ExpertCounters::end() {
  for (const Watcher& watcher : std::exchange(watchers_, {})) watcher.exchange->end();
}

}  // namespace moracle::serve
