// A client of few words: bytes to a port of this machine, and what comes back.
#pragma once

#include <arpa/inet.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <chrono>
#include <string>
#include <string_view>

#include "base/json.h"

namespace moracle::test {

struct HttpAnswer {
  int status = 0;      // 0: none came
  std::string head{};  // with the line of the status
  std::string body{};  // of chunks: joined
  bool whole = true;   // false: it broke off

  [[nodiscard]] Json json() const { return Json::parse(body, nullptr, false); }
  [[nodiscard]] bool has(std::string_view words) const { return (head + body).find(words) != std::string::npos; }
};

class HttpClient {
 public:
  explicit HttpClient(std::uint16_t port, const std::string& host = "127.0.0.1")
      : socket_(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_port = htons(port);
    inet_pton(AF_INET, host.c_str(), &address.sin_addr);
    connected_ = connect(socket_, reinterpret_cast<sockaddr*>(&address), sizeof address) == 0;
  }
  ~HttpClient() { close(socket_); }
  HttpClient(const HttpClient&) = delete;
  HttpClient& operator=(const HttpClient&) = delete;

  [[nodiscard]] bool connected() const { return connected_; }
  bool send(std::string_view bytes) {
    return ::send(socket_, bytes.data(), bytes.size(), MSG_NOSIGNAL) == static_cast<ssize_t>(bytes.size());
  }
  void half_close() { shutdown(socket_, SHUT_WR); }
  // One more piece of what comes; empty: the end, or nothing within the time.
  std::string receive(int milliseconds = 5000) {
    pollfd watched{.fd = socket_, .events = POLLIN, .revents = 0};
    if (poll(&watched, 1, milliseconds) <= 0) return "";
    std::string piece(65536, '\0');
    const ssize_t got = recv(socket_, piece.data(), piece.size(), 0);
    piece.resize(got > 0 ? static_cast<std::size_t>(got) : 0);
    return piece;
  }
  // Until the text is there; false: it did not come.
  bool receive_until(std::string_view words, int milliseconds = 5000) {
    while (held_.find(words) == std::string::npos) {
      const std::string piece = receive(milliseconds);
      if (piece.empty()) return false;
      held_ += piece;
    }
    return true;
  }
  // The next answer of this connection.
  HttpAnswer answer(bool has_body = true, int milliseconds = 10000) {
    HttpAnswer result;
    if (!receive_until("\r\n\r\n", milliseconds)) return {.head = held_, .whole = false};
    std::size_t end = held_.find("\r\n\r\n") + 4;
    result.head = held_.substr(0, end);
    held_.erase(0, end);
    result.status = result.head.size() > 12 ? std::atoi(result.head.c_str() + 9) : 0;
    if (!has_body || result.status == 304 || result.status == 204 || result.status == 100) return result;
    if (result.head.find("Transfer-Encoding: chunked") != std::string::npos) {
      read_chunks(result, milliseconds);
    } else {
      const std::size_t at = result.head.find("Content-Length: ");
      const std::size_t size = at == std::string::npos ? SIZE_MAX : std::stoul(result.head.substr(at + 16));
      while (held_.size() < size) {
        const std::string piece = receive(milliseconds);
        if (piece.empty()) break;
        held_ += piece;
      }
      result.whole = held_.size() >= size || size == SIZE_MAX;
      result.body = held_.substr(0, size);
      held_.erase(0, size);
    }
    return result;
  }

 private:
  void read_chunks(HttpAnswer& result, int milliseconds) {
    for (;;) {
      while (held_.find("\r\n") == std::string::npos) {
        const std::string piece = receive(milliseconds);
        if (piece.empty()) {
          result.whole = false;
          return;
        }
        held_ += piece;
      }
      const std::size_t line = held_.find("\r\n");
      const std::size_t size = std::stoul(held_.substr(0, line), nullptr, 16);
      while (held_.size() < line + 4 + size) {
        const std::string piece = receive(milliseconds);
        if (piece.empty()) {
          result.whole = false;
          return;
        }
        held_ += piece;
      }
      result.body += held_.substr(line + 2, size);
      held_.erase(0, line + 4 + size);
      if (size == 0) return;
    }
  }

  int socket_;
  bool connected_ = false;
  std::string held_;
};

inline std::string post_text(std::string_view path, std::string_view body, std::string_view headers = "") {
  return "POST " + std::string(path) +
         " HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: " +
         std::to_string(body.size()) + "\r\n" + std::string(headers) + "\r\n" + std::string(body);
}
inline std::string get_text(std::string_view path, std::string_view headers = "") {
  return "GET " + std::string(path) + " HTTP/1.1\r\nHost: localhost\r\n" + std::string(headers) + "\r\n";
}

}  // namespace moracle::test
