#include "serve/http/connection.h"

#include <fmt/chrono.h>
#include <fmt/format.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/socket.h>

#include <boost/asio/buffer.hpp>
#include <boost/asio/post.hpp>
#include <boost/beast/http/error.hpp>
#include <boost/beast/http/status.hpp>
#include <ctime>

namespace moracle::serve {

namespace {

namespace http = boost::beast::http;
using boost::system::error_code;

constexpr std::size_t kReadBytes = std::size_t{4} << 10;
constexpr std::size_t kBodyReadBytes = std::size_t{64} << 10;
constexpr std::size_t kBufferedBytes = std::size_t{64} << 10;  // of requests that wait behind an answer
constexpr double kDrainSeconds = 2;
// What the system takes of a stream beside its queue: in all, and of that what it can't send yet.
constexpr int kStreamSendBytes = 32 << 10;
constexpr int kStreamUnsentBytes = 4 << 10;

std::string_view text_of(boost::beast::string_view text) {
  return {text.data(), text.size()};
}

std::string lower(std::string_view text) {
  std::string out(text);
  for (char& c : out) c = c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c;
  return out;
}

std::string head_text(int status, bool keep_alive, const HeaderList& headers) {
  std::string head = fmt::format("HTTP/1.1 {} {}\r\nDate: {:%a, %d %b %Y %H:%M:%S} GMT\r\nConnection: {}\r\n", status,
                                 text_of(http::obsolete_reason(static_cast<http::status>(status))),
                                 fmt::gmtime(std::time(nullptr)), keep_alive ? "keep-alive" : "close");
  for (const auto& [name, value] : headers) head += name + ": " + value + "\r\n";
  return head + "\r\n";
}

// Whether a line of a head goes on in the next one, which proxies and servers read in different ways.
bool has_folded_line(std::string_view head) {
  head = head.substr(0, head.find("\r\n\r\n"));
  return head.find("\r\n ") != std::string_view::npos || head.find("\r\n\t") != std::string_view::npos;
}

}  // namespace

// The handle that handlers hold; it outlives the connection harmlessly.
class ConnectionExchange final : public Exchange {
 public:
  ConnectionExchange(const std::shared_ptr<Connection>& connection, std::uint64_t number)
      : connection_(connection), number_(number) {}

  void reply(HttpReply reply) override {
    if (const auto open = current()) open->send_reply(std::move(reply));
  }
  void begin_stream(HeaderList headers) override {
    if (const auto open = current()) open->begin_stream(std::move(headers));
  }
  void write(std::string piece) override {
    if (const auto open = current()) open->stream(std::move(piece));
  }
  void end() override {
    if (const auto open = current()) open->end_stream();
  }
  void on_disconnect(std::function<void(std::string_view)> callback) override {
    if (const auto open = current()) {
      open->on_disconnect_ = std::move(callback);
    } else {
      callback("disconnect");
    }
  }
  void on_backlog(std::function<void(bool)> callback) override {
    if (const auto open = current()) open->on_backlog_ = std::move(callback);
  }

 private:
  [[nodiscard]] std::shared_ptr<Connection> current() const {
    auto open = connection_.lock();
    return open && !open->closed() && open->exchange_ == number_ ? open : nullptr;
  }
  std::weak_ptr<Connection> connection_;
  std::uint64_t number_;
};

Connection::Connection(Socket socket, ConnectionSet& set, std::string peer)
    : socket_(std::move(socket)),
      set_(set),
      peer_(std::move(peer)),
      buffer_(set.options.header_bytes + kBufferedBytes) {
  error_code ignored;
  socket_.non_blocking(true, ignored);
}

void Connection::start() {
  guard([this] { await_request(); });
}

void Connection::refuse() {
  guard([this] {
    fail("connections.full",
         fmt::format("at most {} connections, {} of one address", set_.options.connections,
                     set_.options.connections_per_peer),
         "more");
    read();
  });
}

void Connection::next_request() {
  if (set_.draining) {
    drain_input();
  } else {
    await_request();
  }
}

void Connection::await_request() {
  state_ = State::idle;
  since_ = Clock::now();
  ++exchange_;
  on_disconnect_ = nullptr;
  on_backlog_ = nullptr;
  backlogged_ = false;
  request_ = {};
  parser_.emplace();
  parser_->header_limit(static_cast<std::uint32_t>(set_.options.header_bytes));
  parser_->body_limit(set_.options.body_bytes);
  if (buffer_.size() > 0) parse();
  read();
}

void Connection::read() {
  if (reading_ || state_ == State::closed) return;
  const std::size_t room = buffer_.max_size() - buffer_.size();
  if (room == 0) return;  // the tick looks whether the client is still there
  const std::size_t size = state_ == State::body ? kBodyReadBytes : kReadBytes;
  if (chunk_.size() != size) {
    chunk_.resize(size);
    chunk_.shrink_to_fit();
  }
  socket_.async_read_some(boost::asio::buffer(chunk_.data(), std::min(room, size)),
                          [self = shared_from_this()](error_code error, std::size_t bytes) {
                            self->reading_ = false;
                            self->guard([&] { self->on_read(error, bytes); });
                          });
  reading_ = true;
}

void Connection::on_read(error_code error, std::size_t bytes) {
  if (state_ == State::closed) return;
  if (error) {
    close("disconnect");
    return;
  }
  if (state_ == State::draining) {
    read();
    return;
  }
  boost::asio::buffer_copy(buffer_.prepare(bytes), boost::asio::buffer(chunk_.data(), bytes));
  buffer_.commit(bytes);
  if (state_ == State::idle || state_ == State::head || state_ == State::body) parse();
  read();
}

void Connection::parse() {
  while (buffer_.size() > 0 && (state_ == State::idle || state_ == State::head || state_ == State::body)) {
    if (state_ == State::idle) {
      state_ = State::head;
      since_ = Clock::now();
    }
    error_code error;
    const std::size_t used = parser_->put(buffer_.data(), error);
    const bool folded = state_ == State::head && parser_->is_header_done() &&
                        has_folded_line({static_cast<const char*>(buffer_.data().data()), used});
    buffer_.consume(used);
    if (error == http::error::need_more) {
      if (state_ == State::head && buffer_.size() > set_.options.header_bytes)
        fail("request.header_size", fmt::format("a head of at most {} bytes", set_.options.header_bytes), "more");
      break;
    }
    if (error == http::error::header_limit) {
      fail("request.header_size", fmt::format("a head of at most {} bytes", set_.options.header_bytes), "more");
      return;
    }
    if (error == http::error::body_limit) {
      fail("request.too_large", fmt::format("a body of at most {} bytes", set_.options.body_bytes), "more");
      return;
    }
    if (error) {
      fail("request.invalid_http", "an HTTP request", error.message());
      return;
    }
    if (state_ == State::head && parser_->is_header_done()) {
      if (!check_head(folded)) return;
      begin_body();
    }
    if (state_ == State::body) {
      if (body_bytes_) body_bytes_->grow_to(parser_->get().body().size());
      if (body_bytes_ && *set_.bodies_bytes > set_.options.bodies_bytes) {
        fail("server.busy", fmt::format("at most {} bytes of requests at once", set_.options.bodies_bytes), "more");
        return;
      }
      if (parser_->is_done()) dispatch();
    }
  }
}

// What the parser has read of a request's head.
void Connection::take_head() {
  const auto& message = parser_->get();
  request_.method = std::string(text_of(message.method_string()));
  const std::string_view target = text_of(message.target());
  const std::size_t query = target.find('?');
  request_.path = std::string(target.substr(0, query));
  if (query != std::string_view::npos) request_.query = std::string(target.substr(query + 1));
  for (const auto& field : message)
    request_.headers.emplace_back(lower(text_of(field.name_string())), std::string(text_of(field.value())));
}

// Whether the request may go on; else it has its answer.
bool Connection::check_head(bool folded) {
  take_head();
  const auto& message = parser_->get();
  keep_alive_ = message.keep_alive();
  chunked_ = message.version() >= 11;
  head_only_ = message.method() == http::verb::head;
  const auto hosts = message.count(http::field::host);
  const auto encodings = message.count(http::field::transfer_encoding);
  const auto bad = [&](const char* wanted, const std::string& found) {
    fail("request.invalid_http", wanted, found);
    return false;
  };
  if (folded) return bad("a line for each field", "one that goes on in the next line");
  if (message.version() != 10 && message.version() != 11) return bad("HTTP/1.1", "another version");
  // The parser lets encodings pass that do not end in chunked, and then takes the body for none: the next request would
  // begin inside it.
  if (encodings > 0 && (encodings > 1 || !chunked_ || lower(request_.header("transfer-encoding")) != "chunked"))
    return bad("Transfer-Encoding: chunked", "another");
  if (encodings > 0 && !request_.header("content-length").empty())
    return bad("Transfer-Encoding or Content-Length", "both");
  if (hosts > 1 || (hosts == 0 && chunked_)) return bad("one Host", std::to_string(hosts));
  if (!request_.path.starts_with('/')) return bad("a path that begins with /", "another target");
  const std::string expects = lower(request_.header("expect"));
  if (!expects.empty() && expects != "100-continue") {
    fail("request.expectation", "100-continue", "another expectation");
    return false;
  }
  if (auto refusal = set_.handler.refuse(request_)) {
    keep_alive_ = keep_alive_ && parser_->is_done();
    state_ = State::handling;
    send_reply(*std::move(refusal));
    return false;
  }
  return true;
}

void Connection::begin_body() {
  state_ = State::body;
  since_ = Clock::now();
  if (parser_->is_done()) return;
  body_bytes_ = std::make_shared<BodyBytes>(set_.bodies_bytes);
  if (!request_.header("expect").empty()) send("HTTP/1.1 100 Continue\r\n\r\n");
}

void Connection::dispatch() {
  state_ = State::handling;
  since_ = Clock::now();
  request_.body = std::move(parser_->get().body());
  request_.held = std::move(body_bytes_);
  buffer_.shrink_to_fit();
  auto exchange = std::make_shared<ConnectionExchange>(shared_from_this(), exchange_);
  answers_ = exchange;
  set_.handler.handle(std::move(request_), std::move(exchange));
}

void Connection::fail(const std::string& code, const std::string& wanted, const std::string& found) {
  keep_alive_ = false;
  state_ = State::handling;
  if (parser_ && request_.headers.empty()) take_head();
  if (parser_) std::string().swap(parser_->get().body());
  body_bytes_.reset();
  send_reply(set_.handler.fault(request_, code, wanted, found));
}

void Connection::send_reply(HttpReply reply) {
  if (state_ != State::handling) return;
  if (set_.draining) keep_alive_ = false;
  HeaderList headers = std::move(reply.headers);
  if (reply.status != 204 && reply.status != 304) {  // which have no body
    headers.emplace_back("Content-Type", std::move(reply.type));
    headers.emplace_back("Content-Length", std::to_string(reply.body.size()));
  }
  headers.emplace_back("X-Content-Type-Options", "nosniff");
  std::string bytes = head_text(reply.status, keep_alive_, headers);
  if (!head_only_) bytes += reply.body;
  on_disconnect_ = nullptr;
  send(std::move(bytes));
  finish_answer();
}

void Connection::begin_stream(HeaderList headers) {
  if (state_ != State::handling) return;
  state_ = State::streaming;
  error_code ignored;
  socket_.set_option(boost::asio::socket_base::send_buffer_size(kStreamSendBytes), ignored);
  // No error: a socket of another family has no such limit.
  ::setsockopt(socket_.native_handle(), IPPROTO_TCP, TCP_NOTSENT_LOWAT, &kStreamUnsentBytes, sizeof kStreamUnsentBytes);
  if (!chunked_) keep_alive_ = false;
  headers.emplace_back("Content-Type", "text/event-stream; charset=utf-8");
  headers.emplace_back("Cache-Control", "no-cache");
  headers.emplace_back("X-Accel-Buffering", "no");
  headers.emplace_back("X-Content-Type-Options", "nosniff");
  if (chunked_) headers.emplace_back("Transfer-Encoding", "chunked");
  send(head_text(200, keep_alive_, headers));
}

void Connection::stream(std::string piece) {
  if (state_ != State::streaming || piece.empty()) return;
  if (queued_ > set_.options.stream_bytes) {  // of earlier pieces: one alone may be larger
    close("stalled");
    return;
  }
  send(chunked_ ? fmt::format("{:x}\r\n{}\r\n", piece.size(), piece) : std::move(piece));
  report_backlog();
}

void Connection::report_backlog() {
  const bool backlogged = state_ == State::streaming && queued_ > (backlogged_ ? 0 : set_.options.backlog_bytes);
  if (std::exchange(backlogged_, backlogged) != backlogged && on_backlog_) on_backlog_(backlogged);
}

void Connection::end_stream() {
  if (state_ != State::streaming) return;
  on_disconnect_ = nullptr;
  if (chunked_) send("0\r\n\r\n");
  finish_answer();
}

// The answer is queued. What comes next waits until it is written.
void Connection::finish_answer() {
  if (state_ == State::closed) return;
  ++exchange_;
  state_ = State::answered;
  write();
}

void Connection::send(std::string bytes) {
  if (queue_.empty()) last_write_ = Clock::now();
  queue_.push_back(std::move(bytes));
  queued_ += queue_.back().size();
  write();
}

// At once as much as the socket takes; the rest when it takes more.
void Connection::write() {
  if (writing_) return;
  while (!queue_.empty() && state_ != State::closed) {
    const std::string& first = queue_.front();
    const auto rest = boost::asio::buffer(first.data() + written_, first.size() - written_);
    error_code error;
    const std::size_t bytes = socket_.write_some(rest, error);
    if (error == boost::asio::error::would_block || error == boost::asio::error::try_again) {
      socket_.async_wait(Socket::wait_write, [self = shared_from_this()](error_code failed) {
        self->writing_ = false;
        self->guard([&] {
          if (failed) {
            self->close("disconnect");
          } else {
            self->write();
            self->report_backlog();
          }
        });
      });
      writing_ = true;
      return;
    }
    if (error) {
      close("disconnect");
      return;
    }
    last_write_ = Clock::now();
    written_ += bytes;
    queued_ -= bytes;
    if (written_ == queue_.front().size()) {
      queue_.pop_front();
      written_ = 0;
    }
  }
  if (state_ == State::answered) {
    boost::asio::post(socket_.get_executor(), [self = shared_from_this()] {
      self->guard([&self] {
        if (self->state_ != State::answered) return;
        if (self->keep_alive_) {
          self->next_request();
        } else {
          self->drain_input();
        }
      });
    });
  }
}

// The last answer is written. A client that still sends gets time to read it before the connection is reset.
void Connection::drain_input() {
  state_ = State::draining;
  since_ = Clock::now();
  error_code ignored;
  socket_.shutdown(Socket::shutdown_send, ignored);
  buffer_.consume(buffer_.size());
  read();
}

void Connection::disconnected(std::string_view cause) {
  ++exchange_;
  if (const auto callback = std::exchange(on_disconnect_, nullptr)) callback(cause);
}

void Connection::close(std::string_view cause) {
  if (state_ == State::closed) return;
  state_ = State::closed;
  body_bytes_.reset();
  error_code ignored;
  socket_.close(ignored);
  disconnected(cause);
}

// Who has just connected is about to ask, and hears of the drain.
void Connection::drain() {
  const bool asked = exchange_ > 1;
  if (state_ == State::idle && asked) close("shutdown");
}

void Connection::tick(Clock::time_point now) {
  if (state_ != State::closed) guard([&] { look_after(now); });
}

void Connection::look_after(Clock::time_point now) {
  const HttpOptions& options = set_.options;
  const double silent = std::chrono::duration<double>(now - last_write_).count();
  if (!queue_.empty() && silent > options.write_s) {
    close("stalled");
    return;
  }
  if (state_ == State::handling && answers_.expired()) {  // its handler has failed
    fail("internal.answer", "an answer", "none");
  } else if ((state_ == State::idle && since(now) > options.idle_s) ||
             (state_ == State::draining && since(now) > kDrainSeconds)) {
    close("disconnect");
  } else if (state_ == State::head && since(now) > options.header_s) {
    fail("request.timeout", fmt::format("a head within {} seconds", options.header_s), "none");
  } else if (state_ == State::body &&
             static_cast<double>(body_bytes_->bytes()) < options.body_rate * (since(now) - options.header_s)) {
    fail("request.timeout", fmt::format("at least {} bytes a second", options.body_rate), "fewer");
  } else if (state_ == State::streaming && queue_.empty() && silent > options.keep_alive_s) {
    stream(": keep-alive\n\n");
  } else if (!reading_ && (state_ == State::handling || state_ == State::streaming)) {
    pollfd watched{.fd = socket_.native_handle(), .events = POLLRDHUP, .revents = 0};
    if (poll(&watched, 1, 0) > 0 && (watched.revents & (POLLRDHUP | POLLHUP | POLLERR)) != 0) close("disconnect");
  }
}

}  // namespace moracle::serve
