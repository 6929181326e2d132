// The program on a terminal of its own: what it writes there, and what is typed.
#pragma once

#include <poll.h>
#include <pty.h>
#include <signal.h>
#include <sys/ioctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <chrono>
#include <cstdlib>
#include <string>
#include <system_error>
#include <utility>
#include <vector>

namespace moracle::test {

class Terminal {
 public:
  using Environment = std::vector<std::pair<const char*, const char*>>;

  explicit Terminal(std::vector<std::string> arguments, const Environment& environment = {},
                    unsigned short columns = 500, const std::string& folder = "") {
    arguments.insert(arguments.begin(), MORACLE_BINARY);
    const winsize size{.ws_row = 50, .ws_col = columns, .ws_xpixel = 0, .ws_ypixel = 0};
    child_ = forkpty(&terminal_, nullptr, nullptr, &size);
    // A signal to child -1 would end every process that there is.
    if (child_ < 0) throw std::system_error(errno, std::generic_category(), "forkpty");
    if (child_ != 0) return;
    unsetenv("NO_COLOR");
    if (!folder.empty() && chdir(folder.c_str()) != 0) _exit(127);
    for (const auto& [name, value] : environment) setenv(name, value, 1);
    std::vector<char*> argv;
    for (std::string& argument : arguments) argv.push_back(argument.data());
    argv.push_back(nullptr);
    execv(argv[0], argv.data());
    _exit(127);
  }
  ~Terminal() {
    if (child_ > 0) {
      kill(child_, SIGKILL);
      reap();
    }
    close(terminal_);
  }
  Terminal(const Terminal&) = delete;
  Terminal& operator=(const Terminal&) = delete;

  // What was written so far, with what was typed and echoed; lines end in "\r\n".
  [[nodiscard]] const std::string& text() const { return text_; }

  void type(const std::string& text) {
    const char* at = text.data();
    for (std::size_t left = text.size(); left > 0;) {
      const ssize_t done = write(terminal_, at, left);
      if (done <= 0) return;
      at += done;
      left -= static_cast<std::size_t>(done);
    }
  }

  // Reads until `wanted` stands somewhere from the end of the last hit on, and returns what came before it; text()
  // as it is, up to the end, when the program ends or 60 seconds pass without it: `found` tells.
  std::string until(const std::string& wanted, bool& found) {
    std::size_t at = std::string::npos;
    while ((at = text_.find(wanted, seen_)) == std::string::npos && read_some()) {
    }
    found = at != std::string::npos;
    const std::string before = text_.substr(seen_, found ? at - seen_ : std::string::npos);
    seen_ = found ? at + wanted.size() : text_.size();
    return before;
  }

  // Reads to the end; the exit code, or 128 + n when a signal ended it. What says nothing for 60 seconds is killed.
  int finish() {
    while (read_some()) {
    }
    if (!ended_) kill(child_, SIGKILL);
    return reap();
  }
  // Types a key until the program ends: a signal that comes just before it starts to wait for a line is only noted.
  int finish_by(const std::string& key) {
    for (int tries = 0; tries < 30 && !ended_; ++tries) {
      type(key);
      while (read_some(2000)) {
      }
    }
    return finish();
  }

 private:
  // False when nothing came, and at the end, which a terminal whose other side has gone tells by EIO.
  bool read_some(int wait_ms = 60000) {
    if (ended_) return false;
    pollfd readable{terminal_, POLLIN, 0};
    if (poll(&readable, 1, wait_ms) <= 0) return false;
    std::array<char, 4096> buffer{};
    const ssize_t count = read(terminal_, buffer.data(), buffer.size());
    if (count > 0) text_.append(buffer.data(), static_cast<std::size_t>(count));
    ended_ = count <= 0;
    return !ended_;
  }
  int reap() {
    int status = 0;
    while (waitpid(child_, &status, 0) < 0 && errno == EINTR) {
    }
    child_ = -1;
    return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
  }

  int terminal_ = -1;
  pid_t child_ = -1;
  std::string text_;
  std::size_t seen_ = 0;
  bool ended_ = false;
};

}  // namespace moracle::test
