// One request to a server, whose answer is read piece by piece. Needs Boost.
#pragma once

#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/beast/core/flat_buffer.hpp>
#include <boost/beast/core/tcp_stream.hpp>
#include <boost/beast/http/message.hpp>
#include <boost/beast/http/parser.hpp>
#include <boost/beast/http/string_body.hpp>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "base/result.h"

namespace moracle::load {

// Where a server is: "http://HOST[:PORT][/v1][/]".
struct ServerAddress {
  std::string host, port, base;  // base: what stands before "/v1"
  std::string text;              // without "/v1"
};
// Error: "bench.url".
Result<ServerAddress> parse_server_address(const std::string& url);

class Call : public std::enable_shared_from_this<Call> {
 public:
  struct Asked {
    std::string path;    // "/v1/models"
    std::string body{};  // empty: GET
    std::string key{};
  };
  struct Listener {
    // A piece of the body of an answer with status 200. An error ends the call.
    std::function<Result<>(std::string_view piece)> on_piece;
    // Once, at the end.
    std::function<void(Result<> outcome)> on_end;
  };
  using Endpoints = boost::asio::ip::tcp::resolver::results_type;

  Call(boost::asio::io_context& context, const ServerAddress& server, double timeout_s, Listener listener);
  void start(const Endpoints& endpoints, const Asked& asked);
  // Ends it; on_end is not called any more.
  void drop();

 private:
  void read();
  void on_read(boost::beast::error_code error);
  void end(Result<> outcome);
  [[nodiscard]] Error failed(boost::beast::error_code error, const char* code) const;
  [[nodiscard]] Error refused() const;
  template <class Handler>
  auto guard(Handler handler);

  const ServerAddress& server_;
  double timeout_s_;
  Listener listener_;
  boost::beast::tcp_stream stream_;
  boost::beast::flat_buffer buffer_;
  boost::beast::http::request<boost::beast::http::string_body> request_;
  std::optional<boost::beast::http::response_parser<boost::beast::http::string_body>> parser_;
  bool ended_ = false;
};

}  // namespace moracle::load
