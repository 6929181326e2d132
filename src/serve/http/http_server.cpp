#include "serve/http/http_server.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/address.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/local/stream_protocol.hpp>
#include <boost/asio/post.hpp>
#include <boost/asio/steady_timer.hpp>
#include <list>
#include <map>
#include <optional>
#include <thread>

#include "base/guarded.h"
#include "serve/http/access.h"
#include "serve/http/connection.h"

namespace moracle::serve {

namespace {

namespace asio = boost::asio;
using asio::ip::tcp;
using asio::local::stream_protocol;
using boost::system::error_code;

constexpr std::chrono::milliseconds kTick{250};
constexpr std::chrono::milliseconds kAcceptPause{100};  // where the system has no descriptor left
constexpr std::size_t kRefusals = 64;                   // connections above the limit that hear so
constexpr std::string_view kUnix = "unix:";

Error listen_error(const std::string& address, const error_code& error) {
  return Error{.code = "server.listen",
               .where = address,
               .wanted = "an address to listen at",
               .found = error.message(),
               .advice = error == boost::system::errc::address_in_use
                             ? "choose another --port, or end the program that listens there"
                             : "choose another --listen"};
}

Result<asio::ip::address> address_of(const std::string& listen) {
  const std::string host = listen == "localhost" ? "127.0.0.1" : listen;
  error_code error;
  const auto address = asio::ip::make_address(host, error);
  if (!error) return address;
  return Error{.code = "server.address",
               .where = "--listen",
               .wanted = "an IP address, localhost or unix:PATH",
               .found = "'" + host + "'"};
}

std::string peer_of(const tcp::socket& socket) {
  error_code error;
  const auto endpoint = socket.remote_endpoint(error);
  return error || endpoint.address().is_loopback() ? "" : endpoint.address().to_string();
}
std::string peer_of(const stream_protocol::socket& /*socket*/) {
  return "";
}

// Programs that this process starts have no part in it.
template <class Any>
void keep_to_process(Any& socket) {
  fcntl(socket.native_handle(), F_SETFD, FD_CLOEXEC);
}

void set_options(tcp::socket& socket) {
  error_code ignored;
  socket.set_option(tcp::no_delay(true), ignored);
}
void set_options(stream_protocol::socket& /*socket*/) {}

}  // namespace

class HttpServer::Impl {
 public:
  Impl(const HttpOptions& options, HttpHandler& handler)
      : options_(options),
        context_(1),
        timer_(context_),
        pause_(context_),
        set_{.options = options_, .handler = handler} {}

  Result<> listen() {
    if (options_.listen.starts_with(kUnix)) return listen_unix(options_.listen.substr(kUnix.size()));
    MORACLE_ASSIGN(const auto address, address_of(options_.listen));
    const tcp::endpoint endpoint(address, options_.port);
    tcp_.emplace(context_);
    if (const auto failed = open_acceptor(*tcp_, endpoint))
      return listen_error(fmt::format("{}:{}", address.to_string(), options_.port), failed);
    error_code error;
    const auto bound = tcp_->local_endpoint(error);
    const std::string shown = address.is_v6() ? "[" + address.to_string() + "]" : address.to_string();
    address_ = fmt::format("http://{}:{}", shown, bound.port());
    return Ok{};
  }

  void start() {
    thread_ = std::thread([this] { run(); });
  }

  void post(std::function<void()> work) { asio::post(context_, std::move(work)); }

  void drain() {
    set_.draining = true;
    for (const auto& connection : std::list(connections_)) connection->drain();
  }

  void stop() {
    if (!thread_.joinable()) return;
    post([this] {
      close_acceptors();
      timer_.cancel();
      pause_.cancel();
      stopping_ = true;
      for (const auto& connection : std::list(connections_)) connection->close("shutdown");
      connections_.clear();
      context_.stop();
    });
    thread_.join();
    if (!unix_path_.empty()) unlink(unix_path_.c_str());
  }

  [[nodiscard]] const std::string& address() const { return address_; }
  [[nodiscard]] std::size_t connections() const { return count_.load(); }
  [[nodiscard]] std::size_t bodies_bytes() const { return set_.bodies_bytes->load(); }

 private:
  // An exception of the library or of memory ends what it happened in, not the server.
  void run() {
    while (!context_.stopped()) {
      const auto done = guarded("serve", [&]() -> Result<> {
        resume();
        context_.run();
        return Ok{};
      });
      if (done.ok()) break;
    }
  }

  // Begins what has not begun, or what an exception has ended.
  void resume() {
    if (stopping_) return;
    if (tcp_ && !accepting_) accept(*tcp_);
    if (unix_ && !accepting_) accept(*unix_);
    if (!ticking_) tick();
  }

  Result<> listen_unix(const std::string& path) {
    struct stat found{};
    if (lstat(path.c_str(), &found) == 0 && S_ISSOCK(found.st_mode)) {
      // A socket that nobody listens at is what an earlier process left.
      stream_protocol::socket probe(context_);
      error_code answered;
      if (path.size() < sizeof(sockaddr_un::sun_path)) probe.connect(stream_protocol::endpoint(path), answered);
      if (answered) unlink(path.c_str());
    }
    if (path.empty() || path.size() >= sizeof(sockaddr_un::sun_path)) {
      return Error{.code = "server.address",
                   .where = "--listen",
                   .wanted = fmt::format("unix:PATH, a path of 1 to {} bytes", sizeof(sockaddr_un::sun_path) - 1),
                   .found = fmt::format("{} bytes", path.size())};
    }
    unix_.emplace(context_);
    if (const auto failed = open_acceptor(*unix_, stream_protocol::endpoint(path))) return listen_error(path, failed);
    unix_path_ = path;
    address_ = options_.listen;
    return Ok{};
  }

  template <class Acceptor, class Endpoint>
  error_code open_acceptor(Acceptor& acceptor, const Endpoint& endpoint) {
    error_code error;
    acceptor.open(endpoint.protocol(), error);
    if (!error) keep_to_process(acceptor);
    if (!error) acceptor.set_option(asio::socket_base::reuse_address(true), error);
    if (!error) acceptor.bind(endpoint, error);
    if (!error) acceptor.listen(asio::socket_base::max_listen_connections, error);
    return error;
  }

  template <class Acceptor>
  void accept(Acceptor& acceptor) {
    acceptor.async_accept([this, &acceptor](error_code error, auto socket) {
      accepting_ = false;
      if (!acceptor.is_open()) return;
      if (error) {  // no descriptor is left: those that wait are taken later
        pause_.expires_after(kAcceptPause);
        pause_.async_wait([this, &acceptor](error_code cancelled) {
          accepting_ = false;
          if (!cancelled && acceptor.is_open()) accept(acceptor);
        });
        accepting_ = true;
        return;
      }
      keep_to_process(socket);
      set_options(socket);
      std::string peer = peer_of(socket);
      add(Socket(std::move(socket)), std::move(peer));
      accept(acceptor);
    });
    accepting_ = true;
  }

  void add(Socket socket, std::string peer) {
    sweep();
    if (connections_.size() >= options_.connections + kRefusals) return;
    const auto same = std::count_if(connections_.begin(), connections_.end(),
                                    [&](const auto& other) { return !peer.empty() && other->peer() == peer; });
    const bool full =
        connections_.size() >= options_.connections || static_cast<std::size_t>(same) >= options_.connections_per_peer;
    auto connection = std::make_shared<Connection>(std::move(socket), set_, std::move(peer));
    connections_.push_back(connection);
    count_ = connections_.size();
    if (full) {
      connection->refuse();
    } else {
      connection->start();
    }
  }

  void sweep() {
    connections_.remove_if([](const auto& connection) { return connection->closed(); });
    count_ = connections_.size();
  }

  void tick() {
    timer_.expires_after(kTick);
    timer_.async_wait([this](error_code cancelled) {
      ticking_ = false;
      if (cancelled || stopping_) return;
      tick();
      const auto now = Clock::now();
      for (const auto& connection : std::list(connections_)) connection->tick(now);
      sweep();
      set_.handler.tick();
    });
    ticking_ = true;
  }

  void close_acceptors() {
    error_code ignored;
    if (tcp_) tcp_->close(ignored);
    if (unix_) unix_->close(ignored);
  }

  HttpOptions options_;
  asio::io_context context_;
  asio::steady_timer timer_;
  asio::steady_timer pause_;
  std::optional<tcp::acceptor> tcp_;
  std::optional<stream_protocol::acceptor> unix_;
  std::string unix_path_;
  std::string address_;
  ConnectionSet set_;
  std::list<std::shared_ptr<Connection>> connections_;
  std::atomic<std::size_t> count_{0};
  bool stopping_ = false;
  bool accepting_ = false;  // or about to, behind a pause
  bool ticking_ = false;
  std::thread thread_;
};

HttpServer::HttpServer() = default;
HttpServer::~HttpServer() {
  if (impl_) impl_->stop();
}

Result<> HttpServer::check_address(const std::string& listen) {
  if (!listen.starts_with(kUnix)) MORACLE_TRY(address_of(listen));
  return Ok{};
}

Result<std::unique_ptr<HttpServer>> HttpServer::open(const HttpOptions& options, HttpHandler& handler) {
  std::unique_ptr<HttpServer> server(new HttpServer);
  server->impl_ = std::make_unique<Impl>(options, handler);
  MORACLE_TRY(guarded("listen", [&] { return server->impl_->listen(); }));
  return server;
}

void HttpServer::start() {
  impl_->start();
}
void HttpServer::post(std::function<void()> work) {
  impl_->post(std::move(work));
}
void HttpServer::drain() {
  impl_->drain();
}
void HttpServer::stop() {
  impl_->stop();
}
std::string HttpServer::address() const {
  return impl_->address();
}
std::size_t HttpServer::connections() const {
  return impl_->connections();
}
std::size_t HttpServer::bodies_bytes() const {
  return impl_->bodies_bytes();
}

}  // namespace moracle::serve
