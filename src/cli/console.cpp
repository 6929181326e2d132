#include "cli/console.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <cstdlib>
#include <cstring>

#include "base/printable.h"
#include "cli/interrupt.h"
#include "cli/progress_bar.h"
#include "cli/screen.h"

namespace moracle::cli {

namespace {

// 0, or the errno of the failed write.
int write_all(int fd, std::string_view text) {
  while (!text.empty()) {
    const ssize_t done = ::write(fd, text.data(), text.size());
    if (done < 0 && errno == EINTR) continue;
    if (done < 0) return errno;
    text.remove_prefix(static_cast<std::size_t>(done));
  }
  return 0;
}

double seconds_now() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

// Errors that say that the command line, not the work, was wrong. What a file says is never usage.
bool is_usage(const Error& error) {
  if (!error.file.empty()) return false;
  static constexpr std::array kCodes = {"usage",       "device.unknown", "shape.unknown",
                                        "shape.range", "scheme.unknown", "sampling.range"};
  return std::any_of(kCodes.begin(), kCodes.end(), [&](const char* code) { return error.code == code; });
}

}  // namespace

void Console::out(std::string_view text) {
  if (closed_ || failure_) return;
  const int reason = write_all(STDOUT_FILENO, text);
  if (reason == EPIPE) {
    closed_ = true;
  } else if (reason != 0) {
    closed_ = true;
    failure_ = Error{.code = "file.write",
                     .file = "standard output",
                     .wanted = "to write",
                     .found = std::strerror(reason),
                     .advice = reason == ENOSPC ? "free space there, or write somewhere else" : ""};
  }
}

void Console::json(const Json& document) {
  out(printable_json(document.dump(2, ' ', false, Json::error_handler_t::replace)) + "\n");
}

void Console::note(std::string_view text) {
  end_progress();
  write_all(STDERR_FILENO, text);
}

void Console::warn(std::string_view text) {
  const std::string lead = "moracle: " + Paint(wants_color(STDERR_FILENO)).warning("warning") + ": ";
  note(paragraph(lead, printable(text, kShownLineBytes), screen_width(STDERR_FILENO), columns_of(lead)));
}

int Console::fail(const Error& error) {
  if (error.code == "interrupted" && interrupted()) {
    note("moracle: interrupted: " + printable(error.found) + "\n");
    return interrupt_exit_code();
  }
  note(hanging("moracle: error: " + error.message(), screen_width(STDERR_FILENO)));
  return is_usage(error) ? 2 : 1;
}

int Console::wrong_usage(std::string_view what, std::string_view command) {
  note(hanging(fmt::format("moracle: {}", what), screen_width(STDERR_FILENO)) +
       fmt::format("try `{} --help`\n", command));
  return 2;
}

void Console::info(std::string_view text) {
  if (!quiet_) note(text);
}

void Console::progress(std::string_view label, double done, double total, Unit unit) {
  static const bool shown = is_terminal(STDERR_FILENO);
  if (!shown || quiet_) return;
  const std::lock_guard lock(progress_mutex_);
  const double now = seconds_now();
  if (!progress_shown_) progress_begun_ = now;
  const bool due = now - progress_at_ >= 0.1 || done >= total || !progress_shown_;
  if (!due && label == progress_label_) return;
  progress_at_ = now;
  progress_label_ = label;
  progress_shown_ = true;
  write_all(STDERR_FILENO, "\r\x1b[K" + progress_bar({.label = label,
                                                      .done = done,
                                                      .total = total,
                                                      .of_bytes = unit == Unit::bytes,
                                                      .seconds = now - progress_begun_},
                                                     screen_width(STDERR_FILENO)));
}

void Console::status(std::string_view text) {
  static const bool shown = is_terminal(STDERR_FILENO);
  if (!shown || quiet_) return;
  const std::lock_guard lock(progress_mutex_);
  if (progress_shown_ && progress_label_ == text) return;
  progress_label_ = text;
  progress_shown_ = true;
  write_all(STDERR_FILENO, "\r\x1b[K" + progress_label_);
}

void Console::end_progress() {
  const std::lock_guard lock(progress_mutex_);
  if (progress_shown_) write_all(STDERR_FILENO, "\r\x1b[K");
  progress_shown_ = false;
}

int Console::finish(int code) {
  end_progress();
  if (!failure_) return code;
  const int failed = fail(*failure_);
  return code == 0 ? failed : code;
}

bool is_terminal(int fd) {
  return isatty(fd) == 1;
}

bool wants_color(int fd) {
  const char* const declined = std::getenv("NO_COLOR");
  const char* const terminal = std::getenv("TERM");
  return is_terminal(fd) && (declined == nullptr || *declined == '\0') &&
         (terminal == nullptr || std::string_view(terminal) != "dumb");
}

}  // namespace moracle::cli
