// The server of an open engine, on a thread of its own.
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <ctime>
#include <mutex>
#include <optional>
#include <thread>

#include "api/server.h"
#include "base/guarded.h"
#include "checkpoint/hub_cache.h"
#include "serve/server.h"

namespace moracle::api {

namespace {

class EngineServer final : public OpenServer {
 public:
  EngineServer(std::shared_ptr<OpenEngine> engine, std::unique_ptr<serve::Server> server,
               std::vector<std::string> names)
      : engine_(std::move(engine)),
        server_(std::move(server)),
        names_(std::move(names)),
        facts_{.decision = engine_->decision(),
               .batch_invariant = engine_->policy().batch_invariant,
               .numerics = engine_->policy().numerics == Numerics::fast ? "fast" : "exact"} {}
  ~EngineServer() override { join(); }

  // Returns once requests are taken.
  Result<> start() {
    thread_ = std::thread([this] { run(); });
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [this] { return ready_ || ended_; });
    if (failed_) return *failed_;
    return Ok{};
  }

  [[nodiscard]] Json describe() const override {
    return {{"address", server_->address()}, {"names", names_}, {"batch_invariant", facts_.batch_invariant}};
  }
  void stop() override {
    auto serving = serve::ServerCommand::serve;
    if (!command_.compare_exchange_strong(serving, serve::ServerCommand::drain)) command_ = serve::ServerCommand::end;
  }
  Result<bool> wait(double seconds) override {
    std::unique_lock lock(mutex_);
    const auto ended = [this] { return ended_; };
    if (seconds < 0) {
      changed_.wait(lock, ended);
    } else {
      changed_.wait_for(lock, std::chrono::duration<double>(seconds), ended);
    }
    if (failed_) return *failed_;
    return ended_;
  }
  Result<> end() override {
    MORACLE_TRY(engine_->lock().check_not_held());
    join();
    return Ok{};
  }

 private:
  void run() {
    auto done = guarded("serve", [this]() -> Result<> {
      server_->serve(engine_->session(), facts_, [this] { note(ready_); }, [this] { return command_.load(); });
      return Ok{};
    });
    if (!done.ok()) {
      const std::lock_guard lock(mutex_);
      failed_ = std::move(done).error();
    }
    note(ended_);
  }
  void note(bool& what) {
    const std::lock_guard lock(mutex_);
    what = true;
    changed_.notify_all();
  }
  void join() {
    command_ = serve::ServerCommand::end;
    const std::lock_guard lock(joining_);
    if (thread_.joinable()) thread_.join();
  }

  std::shared_ptr<OpenEngine> engine_;
  std::unique_ptr<serve::Server> server_;
  std::vector<std::string> names_;
  serve::ServedFacts facts_;
  std::atomic<serve::ServerCommand> command_{serve::ServerCommand::serve};
  std::mutex mutex_;
  std::condition_variable changed_;
  bool ready_ = false;
  bool ended_ = false;
  std::optional<Error> failed_;
  std::mutex joining_;
  std::thread thread_;
};

}  // namespace

Result<std::shared_ptr<OpenServer>> open_server(std::shared_ptr<OpenEngine> engine, ServerChoice choice) {
  constexpr double kUsualDrain = 30;
  serve::ServerOptions options;
  options.http.listen = std::move(choice.listen);
  options.http.port = choice.port;
  if (choice.names.empty()) choice.names.push_back(model_name(engine->session().folder()));
  options.service.names = choice.names;
  options.service.any_model = choice.any_model;
  options.service.strict = choice.strict;
  options.service.version = MORACLE_VERSION;
  options.service.created = std::time(nullptr);
  if (!choice.keys.empty()) {
    MORACLE_ASSIGN(options.access.keys, serve::parse_keys(choice.keys));
  }
  options.access.allowed_hosts = std::move(choice.hosts);
  options.access.cors_origins = std::move(choice.origins);
  options.everybody = choice.everybody;
  options.scheduler = choice.scheduler;
  options.drain_s = choice.drain_s > 0 ? choice.drain_s : choice.drain_s < 0 ? 0 : kUsualDrain;
  options.turn = &engine->lock().mutex();
  MORACLE_ASSIGN(auto server, serve::Server::open(options));
  auto made = std::make_shared<EngineServer>(std::move(engine), std::move(server), std::move(choice.names));
  MORACLE_TRY(made->start());
  return std::shared_ptr<OpenServer>(std::move(made));
}

}  // namespace moracle::api
