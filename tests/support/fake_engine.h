// Stand-ins for the scheduler, for tests of the server.
#pragma once

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <map>
#include <mutex>
#include <optional>
#include <thread>

#include "serve/engine/token_engine.h"

namespace moracle::test {

// Gives back the prompt's tokens, over and over, a token of each request a step.
class EchoEngine final : public serve::TokenEngine {
 public:
  struct Options {
    std::chrono::microseconds step{0};         // of time
    std::size_t running = 32;                  // the others wait
    std::size_t queue = 1024;                  // more are refused
    std::optional<std::size_t> fails_after{};  // tokens of each request
  };
  EchoEngine() : EchoEngine(Options()) {}
  explicit EchoEngine(const Options& options) : options_(options), thread_([this] { run(); }) {}
  ~EchoEngine() override { stop(); }
  // Nobody is listened to any more; it still tells its status.
  void stop() {
    if (!thread_.joinable()) return;
    {
      const std::lock_guard lock(mutex_);
      stopping_ = true;
    }
    wake_.notify_one();
    thread_.join();
  }
  EchoEngine(const EchoEngine&) = delete;
  EchoEngine& operator=(const EchoEngine&) = delete;

  Ticket submit(Request request, Listener listener) override {
    const std::lock_guard lock(mutex_);
    requests_[++tickets_] = {std::move(request), std::move(listener)};
    wake_.notify_one();
    return tickets_;
  }
  void cancel(Ticket ticket) override {
    const std::lock_guard lock(mutex_);
    const auto found = requests_.find(ticket);
    if (found != requests_.end()) found->second.cancelled = true;
    wake_.notify_one();
  }
  void hold(Ticket ticket, bool held) override {
    const std::lock_guard lock(mutex_);
    const auto found = requests_.find(ticket);
    if (found == requests_.end()) return;
    found->second.held = held;
    ++(held ? holds : releases);
  }
  [[nodiscard]] serve::EngineStatus status() const override {
    const std::lock_guard lock(mutex_);
    const auto all = static_cast<std::int64_t>(requests_.size());
    const auto running = std::min(all, static_cast<std::int64_t>(options_.running));
    return {.running = running,
            .waiting = all - running,
            .steps = steps_,
            .request_seconds = request_seconds,
            .stalled_s = stalled_s};
  }
  std::atomic<double> stalled_s{0}, request_seconds{0};  // what status() says
  std::atomic<int> holds{0}, releases{0};

 private:
  struct Running {
    Request request;
    Listener listener;
    bool cancelled = false, accepted = false, started = false, held = false;
    std::size_t made = 0;
  };

  void run() {
    for (;;) {
      std::unique_lock lock(mutex_);
      wake_.wait(lock, [&] { return stopping_ || !requests_.empty(); });
      if (stopping_) return;
      ++steps_;
      std::size_t place = 0;
      for (auto entry = requests_.begin(); entry != requests_.end();) {
        serve::EngineEvent event = step(entry->second, place++);
        const bool ended = event.outcome.has_value();
        const Listener listener = entry->second.listener;
        entry = ended ? requests_.erase(entry) : std::next(entry);
        listener(std::move(event));
      }
      lock.unlock();
      if (options_.step.count() > 0) std::this_thread::sleep_for(options_.step);
    }
  }

  serve::EngineEvent step(Running& running, std::size_t place) {
    serve::EngineEvent event;
    const auto end = [&](RequestEnd how) { event.outcome = RequestOutcome{.end = how}; };
    if (running.cancelled) {
      end(RequestEnd::cancelled);
      return event;
    }
    if (!running.accepted && place >= options_.queue) {
      end(RequestEnd::error);
      event.outcome->error = Error{.code = "scheduler.queue", .wanted = "fewer", .found = "more"};
      return event;
    }
    event.accepted = !std::exchange(running.accepted, true);
    if (place >= options_.running || running.held) return event;
    if (!std::exchange(running.started, true)) event.started = std::chrono::steady_clock::now();
    const Request& request = running.request;
    if (event.started && request.echo) {
      for (const std::int32_t id : request.prompt) event.prompt.push_back(scored(request, id));
      if (!event.prompt.empty()) event.prompt.front().logprob.reset();
    }
    if (options_.fails_after == running.made) {
      end(RequestEnd::error);
      event.outcome->error = Error{.code = "numeric.nan", .wanted = "a finite logit", .found = "NaN"};
      return event;
    }
    const auto most = static_cast<std::size_t>(request.max_tokens.value_or(16));
    if (running.made < most) {
      const std::int32_t id = request.prompt[running.made++ % request.prompt.size()];
      event.tokens.push_back(scored(request, id));
      const auto among = [id](const std::vector<std::int32_t>& ids) {
        return std::find(ids.begin(), ids.end(), id) != ids.end();
      };
      if (among(request.stop_ids) || (!request.ignore_eos && among(request.end_ids))) {
        end(RequestEnd::stop);
        event.outcome->stop_id = id;
        return event;
      }
    }
    if (running.made >= most) end(RequestEnd::length);
    return event;
  }

  static serve::OwnedToken scored(const Request& request, std::int32_t id) {
    serve::OwnedToken token{.id = id};
    if (!request.logprobs) return token;
    token.logprob = -0.5;
    for (std::int32_t i = 0; i < *request.logprobs; ++i) token.top.push_back({id + i, -0.5 - i});
    return token;
  }

  Options options_;
  mutable std::mutex mutex_;
  std::condition_variable wake_;
  std::map<Ticket, Running> requests_;
  Ticket tickets_ = 0;
  std::uint64_t steps_ = 0;
  bool stopping_ = false;
  std::thread thread_;  // last: it uses the rest
};

}  // namespace moracle::test
