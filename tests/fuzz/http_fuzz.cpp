// What a client sends, in pieces split at bytes 0, to the server's connection: whole answers, whatever it is; the same
// requests are handled however the bytes arrive; bodies become requests within their limits, or errors that name them.
#include <poll.h>
#include <sys/socket.h>

#include <array>
#include <boost/asio/io_context.hpp>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "fuzz_input.h"
#include "serve/api/anthropic.h"
#include "serve/api/api_error.h"
#include "serve/api/request.h"
#include "serve/api/responses.h"
#include "serve/http/access.h"
#include "serve/http/connection.h"

namespace {

using moracle::fuzz::require;
using namespace moracle::serve;  // NOLINT(google-build-using-namespace)

constexpr std::size_t kPieces = 4;

struct Handled {
  std::string method, path, query, body;
  bool operator==(const Handled&) const = default;
};

void check(const ApiRequest& request) {
  require(request.n >= 1 && request.n <= 16 && request.inputs.size() <= 256);
  require(request.stop.size() <= 16 && request.logit_bias.size() <= 1024 && request.min_tokens >= 0);
  const auto temperature = request.sampling.get(&moracle::SamplingOptions::temperature);
  const auto top_p = request.sampling.get(&moracle::SamplingOptions::top_p);
  require(!temperature || (*temperature >= 0 && *temperature <= 100));
  require(!top_p || (*top_p > 0 && *top_p <= 1));
  require(!request.logprobs || (*request.logprobs >= 0 && *request.logprobs <= 20));
  require(!request.max_tokens || *request.max_tokens >= 0);
}

moracle::Result<ApiRequest> read_body(std::string_view path, RequestBody body, bool strict) {
  if (path == "/v1/messages") return read_anthropic_request(std::move(body), strict);
  if (path == "/v1/responses") return read_responses_request(std::move(body), strict);
  const GenerationApi api = path == "/v1/chat/completions" ? GenerationApi::chat : GenerationApi::completions;
  return read_request(api, std::move(body), strict);
}

HttpReply reply_of(const moracle::Error& error) {
  moracle::fuzz::check_error(error);
  const ApiError wrong = api_error(error);
  require(wrong.status >= 400 && wrong.status <= 503);
  return {.status = wrong.status, .body = error_body(wrong)};
}

class Handler final : public HttpHandler {
 public:
  std::optional<HttpReply> refuse(HttpRequest& request) override {
    const auto name = access_.check({.path = request.path,
                                     .host = request.header("host"),
                                     .origin = request.header("origin"),
                                     .authorization = request.header("authorization"),
                                     .api_key = request.header("x-api-key")});
    if (!name.ok()) return reply_of(name.error());
    request.key = *name;
    return std::nullopt;
  }
  void handle(HttpRequest&& request, std::shared_ptr<Exchange> exchange) override {
    handled.push_back({request.method, request.path, request.query, request.body});
    if (request.path == "/stream") {
      exchange->begin_stream({});
      exchange->write("data: 1\n\n");
      exchange->write("data: [DONE]\n\n");
      exchange->end();
      return;
    }
    auto body = parse_body(request.body);
    const auto read = body.ok() ? read_body(request.path, *std::move(body), request.query == "strict")
                                : moracle::Result<ApiRequest>(body.error());
    if (read.ok()) check(*read);
    exchange->reply(read.ok() ? HttpReply{.body = "{}"} : reply_of(read.error()));
  }
  HttpReply fault(const HttpRequest& /*request*/, const std::string& code, const std::string& wanted,
                  const std::string& found) override {
    return reply_of({.code = code, .wanted = wanted, .found = found});
  }
  std::vector<Handled> handled;

 private:
  Access access_{AccessRules{}};
};

// Takes what the server has written.
void drain(int fd, std::string& answers) {
  std::array<char, 4096> piece;  // NOLINT(cppcoreguidelines-pro-type-member-init)
  for (ssize_t size = 0; (size = recv(fd, piece.data(), piece.size(), MSG_DONTWAIT)) > 0;) {
    answers.append(piece.data(), static_cast<std::size_t>(size));
  }
}

std::vector<Handled> serve(const std::vector<std::string_view>& pieces) {
  std::array<int, 2> ends{};
  require(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends.data()) == 0);
  const moracle::FileDescriptor client(ends[0]);
  Handler handler;
  const HttpOptions options;
  ConnectionSet set{.options = options, .handler = handler};
  std::string answers;
  {
    boost::asio::io_context context(1);
    const auto settle = [&] {
      context.restart();
      while (context.poll() > 0) drain(client.get(), answers);
      drain(client.get(), answers);
    };
    Socket socket(context, boost::asio::generic::stream_protocol(AF_UNIX, 0), ends[1]);
    const auto connection = std::make_shared<Connection>(std::move(socket), set, "");
    connection->start();
    for (std::string_view piece : pieces) {
      while (!piece.empty()) {
        const ssize_t sent = send(client.get(), piece.data(), piece.size(), MSG_NOSIGNAL | MSG_DONTWAIT);
        settle();
        if (sent <= 0) break;  // it has closed, or waits until its answers are taken
        piece.remove_prefix(static_cast<std::size_t>(sent));
      }
    }
    settle();
    connection->tick(Clock::now());
    connection->close("shutdown");
    settle();
  }
  require(answers.empty() || answers.starts_with("HTTP/1.1 "));
  require(answers.size() < 12 || (answers[9] >= '1' && answers[9] <= '5'));
  require(handler.handled.empty() || !answers.empty());
  require(*set.bodies_bytes == 0);
  return std::move(handler.handled);
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const auto pieces = moracle::fuzz::parts_of(std::span(data, size), kPieces);
  std::string whole;
  for (const std::string_view piece : pieces) whole += piece;
  require(serve(pieces) == serve({whole}));
  return 0;
}
