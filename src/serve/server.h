// `moracle serve` without a command line: listens, tells of the load, serves, drains.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "base/fair_mutex.h"
#include "base/json.h"
#include "base/result.h"
#include "generate/scheduler.h"
#include "generate/session.h"
#include "serve/http/access.h"
#include "serve/http/http_server.h"
#include "serve/service.h"

namespace moracle::serve {

struct ServerOptions {
  HttpOptions http{};
  ServiceOptions service{};
  AccessRules access{};
  SchedulerOptions scheduler{};
  bool supervised = false;  // systemd is told, where it started this process
  bool everybody = false;   // may ask, without a key, at an address that others reach
  int log = -1;             // descriptor; negative: none
  double drain_s = 30;      // for replies that are under way at the end
  // Called once all is loaded and open, before a request is served: the process gives up what serving does not need.
  // Whether it did; empty: it keeps all.
  std::function<bool()> enter_sandbox{};
  FairMutex* turn = nullptr;  // held while the model computes; null: nobody else uses it
};

// The owner's wish while a server serves.
enum class ServerCommand : std::uint8_t {
  serve,
  drain,  // refuse what is new, finish what is under way within drain_s
  end,    // now
};

// Facts that tell a client where its tokens come from.
struct ServedFacts {
  Json decision{};               // `explain --json`
  bool batch_invariant = false;  // whether it was asked of the kernels
  std::string numerics;          // "exact", "fast"
};

class Server {
 public:
  // Listens and answers: 503 to what needs the model. Errors: those of HttpServer::open, "access.open" (an address
  // that others reach, without keys).
  static Result<std::unique_ptr<Server>> open(const ServerOptions& options);
  ~Server();
  Server(const Server&) = delete;
  Server& operator=(const Server&) = delete;

  [[nodiscard]] std::string address() const;
  // The share of the load that is done; callable from any thread.
  void set_progress(double done, double total);

  // Serves as `command` says, which is asked twenty times a second, until the end. `on_ready` is called once requests
  // are taken. Once for each server.
  void serve(Session& session, const ServedFacts& facts, const std::function<void()>& on_ready,
             const std::function<ServerCommand()>& command);

 private:
  Server();
  struct Parts;
  std::unique_ptr<Parts> parts_;
};

// "fp_0123456789abcdef": a hash of program, checkpoint, kernels and numerics. Equal ones, with a request's seed, mean
// equal replies; where batches may change bits it ends in "-batch".
[[nodiscard]] std::string fingerprint_of(const Session& session, const ServedFacts& facts, const std::string& version);

}  // namespace moracle::serve
