// One connection of the HTTP server. Included by http_server.cpp and connection.cpp alone: it needs Boost.
#pragma once

#include <atomic>
#include <boost/asio/generic/stream_protocol.hpp>
#include <boost/beast/core/flat_buffer.hpp>
#include <boost/beast/http/parser.hpp>
#include <boost/beast/http/string_body.hpp>
#include <chrono>
#include <deque>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/guarded.h"
#include "serve/http/http_server.h"

namespace moracle::serve {

using Socket = boost::asio::generic::stream_protocol::socket;
using Clock = std::chrono::steady_clock;

// What connections share.
struct ConnectionSet {
  const HttpOptions& options;
  HttpHandler& handler;
  bool draining = false;
  // Of bodies that are read, or that handlers hold.
  std::shared_ptr<std::atomic<std::size_t>> bodies_bytes = std::make_shared<std::atomic<std::size_t>>(0);
};

// The bytes of one body, counted among those of all until it is gone. Ends on any thread, also behind the server.
class BodyBytes {
 public:
  explicit BodyBytes(std::shared_ptr<std::atomic<std::size_t>> all) : all_(std::move(all)) {}
  ~BodyBytes() { *all_ -= bytes_; }
  BodyBytes(const BodyBytes&) = delete;
  BodyBytes& operator=(const BodyBytes&) = delete;

  void grow_to(std::size_t bytes) { *all_ += bytes - std::exchange(bytes_, bytes); }
  [[nodiscard]] std::size_t bytes() const { return bytes_; }

 private:
  std::shared_ptr<std::atomic<std::size_t>> all_;
  std::size_t bytes_ = 0;
};

// A read stays pending whatever else happens, so that a client that leaves is noticed at once. Reading, handling and
// writing take turns: a second request waits in the buffer until the first is answered.
class Connection : public std::enable_shared_from_this<Connection> {
 public:
  Connection(Socket socket, ConnectionSet& set, std::string peer);
  Connection(const Connection&) = delete;
  Connection& operator=(const Connection&) = delete;

  void start();
  // There are too many: answers so, and closes.
  void refuse();
  void tick(Clock::time_point now);
  void drain();
  // At once. An answer that is under way is given up.
  void close(std::string_view cause);

  [[nodiscard]] bool closed() const { return state_ == State::closed; }
  [[nodiscard]] const std::string& peer() const { return peer_; }

 private:
  friend class ConnectionExchange;
  enum class State : std::uint8_t {
    idle,       // before the first byte of a request
    head,       // of a request
    body,       // of a request
    handling,   // no answer yet
    streaming,  // an answer in pieces
    answered,   // the answer is queued
    draining,   // it is written, and what still arrives is dropped
    closed,
  };
  using Parser = boost::beast::http::request_parser<boost::beast::http::string_body>;

  // What runs out of memory, or fails otherwise, ends this connection alone.
  template <class Work>
  void guard(const Work& work) {
    const auto done = guarded("serve a connection", [&]() -> Result<> {
      work();
      return Ok{};
    });
    if (!done.ok()) close("failed");
  }
  void look_after(Clock::time_point now);
  void read();
  void on_read(boost::system::error_code error, std::size_t bytes);
  void parse();
  void take_head();
  bool check_head(bool folded);
  void begin_body();
  void dispatch();
  void fail(const std::string& code, const std::string& wanted, const std::string& found);
  void send_reply(HttpReply reply);
  void begin_stream(HeaderList headers);
  void stream(std::string piece);
  void end_stream();
  void finish_answer();
  void send(std::string bytes);
  void report_backlog();
  void write();
  void drain_input();
  void disconnected(std::string_view cause);
  void next_request();
  void await_request();
  [[nodiscard]] double since(Clock::time_point now) const {
    return std::chrono::duration<double>(now - since_).count();
  }

  Socket socket_;
  ConnectionSet& set_;
  std::string peer_;
  State state_ = State::idle;
  Clock::time_point since_ = Clock::now();  // when the state began
  boost::beast::flat_buffer buffer_;        // what no parser has taken yet
  std::vector<char> chunk_;                 // of the read that is pending
  std::optional<Parser> parser_;
  HttpRequest request_;
  bool reading_ = false;
  bool keep_alive_ = false;
  bool chunked_ = false;
  bool head_only_ = false;                 // HEAD
  std::shared_ptr<BodyBytes> body_bytes_;  // of a body that is read

  std::deque<std::string> queue_;
  std::size_t queued_ = 0;
  std::size_t written_ = 0;  // of the first in the queue
  bool writing_ = false;     // waits until the socket takes more
  Clock::time_point last_write_ = Clock::now();
  std::function<void(std::string_view)> on_disconnect_;
  std::function<void(bool)> on_backlog_;
  bool backlogged_ = false;
  std::uint64_t exchange_ = 0;  // the number of the answer that is under way
  std::weak_ptr<Exchange> answers_;
};

}  // namespace moracle::serve
