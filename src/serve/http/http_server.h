// HTTP/1.1 over TCP or a Unix socket: one thread, thousands of connections.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "base/result.h"
#include "serve/http/http.h"
#include "serve/limits.h"

namespace moracle::serve {

struct HttpOptions {
  std::string listen = "127.0.0.1";  // an address, or unix:PATH
  std::uint16_t port = 8080;         // 0: any that is free
  std::size_t connections = 2048;
  std::size_t connections_per_peer = 256;  // off loopback
  std::size_t header_bytes = std::size_t{16} << 10;
  std::size_t body_bytes = kBodyBytes;
  std::size_t bodies_bytes = std::size_t{256} << 20;  // of all bodies that are read, or that handlers hold
  std::size_t stream_bytes = std::size_t{256} << 10;  // of a stream that its reader has not taken
  std::size_t backlog_bytes = std::size_t{4} << 10;   // of such a stream, behind which its handler hears of it
  double header_s = 10;                               // from the first byte of a head to its last
  double body_rate = 1024;                            // bytes a second at least, after `header_s`
  double idle_s = 75;
  double write_s = 30;       // without a byte taken
  double keep_alive_s = 15;  // of silence, before a comment
};

class HttpServer {
 public:
  // Whether there can be such an address; nothing listens yet. Error: "server.address".
  static Result<> check_address(const std::string& listen);
  // Binds and listens; nothing is answered before start(). The handler outlives the server. Errors: "server.address",
  // "server.listen".
  static Result<std::unique_ptr<HttpServer>> open(const HttpOptions& options, HttpHandler& handler);
  ~HttpServer();
  HttpServer(const HttpServer&) = delete;
  HttpServer& operator=(const HttpServer&) = delete;

  void start();
  // Runs `work` on the I/O thread, in order. Callable from any thread; after stop() it is dropped.
  void post(std::function<void()> work);
  // Connections that idle are closed; each other one, and each new one, behind its next answer. On the I/O thread.
  void drain();
  // Closes all and ends the thread.
  void stop();

  [[nodiscard]] std::string address() const;  // "http://127.0.0.1:8080", "unix:/run/moracle.sock"
  [[nodiscard]] std::size_t connections() const;
  [[nodiscard]] std::size_t bodies_bytes() const;  // now

 private:
  HttpServer();
  class Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace moracle::serve
