#include "bench/load/call.h"

#include <algorithm>
#include <boost/beast/core/error.hpp>
#include <boost/beast/http/error.hpp>
#include <boost/beast/http/read.hpp>
#include <boost/beast/http/write.hpp>
#include <chrono>
#include <utility>

#include "base/json.h"

namespace moracle::load {

namespace {

namespace beast = boost::beast;
namespace http = boost::beast::http;

constexpr std::uint64_t kBodyBytes = std::uint64_t{1} << 30;
constexpr std::size_t kBufferBytes = std::size_t{1} << 16;
constexpr std::size_t kWordsBytes = 300;  // of a server's error that are shown

// What the server says is wrong: the message of an error as OpenAI's API has it, else the beginning of the body.
std::string words_of(const std::string& body) {
  const auto json = parse_json(body, "answer", {.bytes = std::size_t{1} << 20});
  if (json.ok() && json->is_object()) {
    const Json& error = json->contains("error") ? (*json)["error"] : *json;
    if (error.is_string()) return error.get<std::string>().substr(0, kWordsBytes);
    if (error.is_object() && error.contains("message") && error["message"].is_string()) {
      return error["message"].get<std::string>().substr(0, kWordsBytes);
    }
  }
  return body.substr(0, kWordsBytes);
}

bool is_port(std::string_view text) {
  return !text.empty() && text.size() <= 5 && text.find_first_not_of("0123456789") == std::string_view::npos &&
         std::stoi(std::string(text)) <= 65535;
}

}  // namespace

Result<ServerAddress> parse_server_address(const std::string& url) {
  const Error wrong{.code = "bench.url",
                    .where = "'" + url + "'",
                    .wanted = "http://HOST:PORT",
                    .found = url.starts_with("https://") ? "https" : "another form",
                    .advice = "TLS is a proxy's: ask the server behind it"};
  constexpr std::string_view kScheme = "http://";
  if (!url.starts_with(kScheme)) return wrong;
  std::string_view rest = std::string_view(url).substr(kScheme.size());
  const std::size_t slash = std::min(rest.find('/'), rest.size());
  std::string_view authority = rest.substr(0, slash);
  std::string_view base = rest.substr(slash);
  while (base.ends_with('/')) base.remove_suffix(1);
  if (base.ends_with("/v1")) base.remove_suffix(3);
  ServerAddress address{.host = {}, .port = "80", .base = std::string(base), .text = {}};
  std::size_t colon = authority.rfind(':');
  if (authority.starts_with('[')) {  // an IPv6 address
    const std::size_t close = authority.find(']');
    if (close == std::string_view::npos) return wrong;
    address.host = authority.substr(1, close - 1);
    if (colon < close) colon = std::string_view::npos;
    if (colon == std::string_view::npos && close + 1 != authority.size()) return wrong;
  } else {
    address.host = authority.substr(0, colon);
  }
  if (colon != std::string_view::npos) address.port = authority.substr(colon + 1);
  const auto plain = [](unsigned char c) { return c > ' ' && c < 0x7F && c != '@' && c != '?' && c != '#'; };
  if (address.host.empty() || !is_port(address.port) || !std::all_of(url.begin(), url.end(), plain)) return wrong;
  address.text = std::string(kScheme) + std::string(authority) + address.base;
  return address;
}

Call::Call(boost::asio::io_context& context, const ServerAddress& server, double timeout_s, Listener listener)
    : server_(server), timeout_s_(timeout_s), listener_(std::move(listener)), stream_(context), buffer_(kBufferBytes) {}

// A handler that keeps the call alive, and does nothing once it has ended.
template <class Handler>
auto Call::guard(Handler handler) {
  stream_.expires_after(std::chrono::milliseconds(static_cast<std::int64_t>(timeout_s_ * 1000)));
  return [self = shared_from_this(), handler](beast::error_code error, auto&&... /*sizes*/) {
    if (!self->ended_) handler(*self, error);
  };
}

void Call::start(const Endpoints& endpoints, const Asked& asked) {
  request_.method(asked.body.empty() ? http::verb::get : http::verb::post);
  request_.target(server_.base + asked.path);
  request_.version(11);
  request_.set(http::field::host, server_.host.find(':') == std::string::npos
                                      ? server_.host + ":" + server_.port
                                      : "[" + server_.host + "]:" + server_.port);
  request_.set(http::field::user_agent, "moracle-bench");
  request_.set(http::field::connection, "close");
  if (!asked.key.empty()) request_.set(http::field::authorization, "Bearer " + asked.key);
  if (!asked.body.empty()) {
    request_.set(http::field::content_type, "application/json");
    request_.body() = asked.body;
  }
  request_.prepare_payload();
  parser_.emplace();
  parser_->body_limit(kBodyBytes);
  stream_.async_connect(endpoints, guard([](Call& call, beast::error_code error) {
                          if (error) {
                            call.end(call.failed(error, "bench.connect"));
                            return;
                          }
                          beast::error_code ignored;
                          call.stream_.socket().set_option(boost::asio::ip::tcp::no_delay(true), ignored);
                          http::async_write(call.stream_, call.request_,
                                            call.guard([](Call& written, beast::error_code failure) {
                                              // A server that refuses may answer before it has read everything: its
                                              // words come first.
                                              if (failure && failure != boost::asio::error::broken_pipe &&
                                                  failure != boost::asio::error::connection_reset) {
                                                written.end(written.failed(failure, "bench.gone"));
                                              } else {
                                                written.read();
                                              }
                                            }));
                        }));
}

void Call::read() {
  http::async_read_some(stream_, buffer_, *parser_,
                        guard([](Call& call, beast::error_code error) { call.on_read(error); }));
}

void Call::on_read(beast::error_code error) {
  if (error) {
    end(failed(error, error.category() == http::make_error_code(http::error::end_of_stream).category() &&
                              error != http::error::end_of_stream && error != http::error::partial_message
                          ? "bench.stream"
                          : "bench.gone"));
    return;
  }
  const bool done = parser_->is_done();
  if (parser_->is_header_done() && parser_->get().result() == http::status::ok) {
    const std::string piece = std::exchange(parser_->get().body(), {});
    if (!piece.empty()) {
      auto taken = listener_.on_piece(piece);
      if (!taken.ok()) {
        end(std::move(taken));
        return;
      }
    }
    if (done) end(Ok{});
  } else if (done) {
    end(refused());
  }
  if (!ended_) read();
}

Error Call::refused() const {
  const std::string words = words_of(parser_->get().body());
  return Error{.code = "bench.refused",
               .where = server_.text + std::string(request_.target()),
               .wanted = "status 200",
               .found = "status " + std::to_string(parser_->get().result_int()) + (words.empty() ? "" : ": " + words)};
}

Error Call::failed(beast::error_code error, const char* code) const {
  if (error == beast::error::timeout) {
    return Error{
        .code = "bench.timeout",
        .where = server_.text,
        .wanted = "an answer that goes on within " + std::to_string(static_cast<std::int64_t>(timeout_s_)) + " seconds",
        .found = "silence",
        .advice = "--timeout gives it more time"};
  }
  const std::string_view kind(code);
  if (kind == "bench.connect") {
    return Error{.code = code,
                 .where = server_.text,
                 .wanted = "a server that listens",
                 .found = error.message(),
                 .advice = "start it first, and look at its address"};
  }
  if (kind == "bench.stream") {
    return Error{.code = code, .where = server_.text, .wanted = "an answer in HTTP", .found = error.message()};
  }
  return Error{.code = code,
               .where = server_.text,
               .wanted = "an answer up to its end",
               .found = "a connection that ended: " + error.message(),
               .advice = "look at the server's log"};
}

void Call::end(Result<> outcome) {
  if (std::exchange(ended_, true)) return;
  stream_.close();
  listener_.on_end(std::move(outcome));
}

void Call::drop() {
  if (std::exchange(ended_, true)) return;
  stream_.close();
}

}  // namespace moracle::load
