// HTTP as the server's handlers see it, without a socket.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace moracle::serve {

using HeaderList = std::vector<std::pair<std::string, std::string>>;

struct Route;  // of the handler's table

struct HttpRequest {
  std::string method;
  std::string path;    // without query
  std::string query;   // behind "?"
  HeaderList headers;  // names in lower case
  std::string body;
  std::string key{};             // the name of the key that was sent
  const Route* route = nullptr;  // who answers
  std::shared_ptr<void> held{};  // the server counts the body's bytes for as long as this lives, on any thread

  // Empty: there is none.
  [[nodiscard]] std::string_view header(std::string_view name) const {
    for (const auto& [key_, value] : headers) {
      if (key_ == name) return value;
    }
    return {};
  }
};

struct HttpReply {
  int status = 200;
  std::string type = "application/json";
  std::string body{};
  HeaderList headers{};
};

// One request and its answer. Used on the I/O thread alone.
class Exchange {
 public:
  virtual ~Exchange() = default;
  // The whole answer.
  virtual void reply(HttpReply reply) = 0;
  // An answer in pieces: status 200, text/event-stream. Comments keep it alive where nothing is written.
  virtual void begin_stream(HeaderList headers) = 0;
  virtual void write(std::string piece) = 0;
  virtual void end() = 0;
  // Called once, where the client left before the end or does not read: "disconnect", "stalled", "shutdown".
  virtual void on_disconnect(std::function<void(std::string_view cause)> callback) = 0;
  // Called where the client of a stream reads more slowly than pieces come, and where it has caught up.
  virtual void on_backlog(std::function<void(bool backlogged)> callback) = 0;
};

class HttpHandler {
 public:
  virtual ~HttpHandler() = default;
  // Before the body is read: an answer refuses the request. Sets request.key and request.route.
  virtual std::optional<HttpReply> refuse(HttpRequest& request) = 0;
  virtual void handle(HttpRequest&& request, std::shared_ptr<Exchange> exchange) = 0;
  // The answer to what is no request, or no whole one: `request` is what was read of its head; `code` as of Error.
  virtual HttpReply fault(const HttpRequest& request, const std::string& code, const std::string& wanted,
                          const std::string& found) = 0;
  // About four times a second.
  virtual void tick() {}
};

}  // namespace moracle::serve
