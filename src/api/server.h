// The server behind the C interface's handles.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "api/engine.h"
#include "base/json.h"
#include "base/result.h"
#include "generate/scheduler.h"

namespace moracle::api {

class OpenServer {
 public:
  static constexpr Kind kKind = Kind::server;

  OpenServer() = default;
  virtual ~OpenServer() = default;
  OpenServer(const OpenServer&) = delete;
  OpenServer& operator=(const OpenServer&) = delete;

  [[nodiscard]] virtual Json describe() const = 0;
  // Begins the end; a second time it comes now.
  virtual void stop() = 0;
  // Whether it has ended, within so many seconds; below 0: as long as it takes. Error: the one that ended it.
  virtual Result<bool> wait(double seconds) = 0;
  // Ends it now; nothing listens behind it. Error: "argument.nested" within a callback of the engine.
  virtual Result<> end() = 0;
};

struct ServerChoice {
  std::string listen = "127.0.0.1";
  std::uint16_t port = 0;
  std::vector<std::string> names{};
  std::vector<std::string> keys{};  // "name:key"
  std::vector<std::string> hosts{};
  std::vector<std::string> origins{};
  bool everybody = false;
  bool any_model = false;
  bool strict = false;
  double drain_s = 0;
  SchedulerOptions scheduler{};
};

// Serves. Errors: those of serve::Server::open, "access.keys", "server.absent" where it is not built.
Result<std::shared_ptr<OpenServer>> open_server(std::shared_ptr<OpenEngine> engine, ServerChoice choice);

}  // namespace moracle::api
