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

std::string scaled(double value, double step, const std::array<const char*, 5>& units) {
  std::size_t unit = 0;
  while (value >= step && unit + 1 < units.size()) {
    value /= step;
    ++unit;
  }
  return unit == 0 ? fmt::format("{:.0f}{}", value, units[0]) : fmt::format("{:.1f}{}", value, units[unit]);
}

// Terminal columns of UTF-8 text, near enough: its code points.
std::size_t width_of(const std::string& text) {
  return static_cast<std::size_t>(
      std::count_if(text.begin(), text.end(), [](char c) { return (static_cast<unsigned char>(c) & 0xC0U) != 0x80U; }));
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

int Console::fail(const Error& error) {
  if (error.code == "interrupted" && interrupted()) {
    note("moracle: interrupted: " + printable(error.found) + "\n");
    return interrupt_exit_code();
  }
  note("moracle: error: " + error.message() + "\n");
  return is_usage(error) ? 2 : 1;
}

void Console::progress(std::string_view label, double done, double total) {
  static const bool shown = is_terminal(STDERR_FILENO);
  if (!shown) return;
  const std::lock_guard lock(progress_mutex_);
  const double now = seconds_now();
  if (now - progress_at_ < 0.1 && done < total) return;
  progress_at_ = now;
  constexpr int kWidth = 32;
  const double share = total > 0 ? std::clamp(done / total, 0.0, 1.0) : 0.0;
  const auto filled = static_cast<std::size_t>(share * kWidth);
  write_all(STDERR_FILENO, fmt::format("\r\x1b[K{} [{}{}] {:3.0f} %", label, std::string(filled, '#'),
                                       std::string(kWidth - filled, ' '), share * 100));
  progress_shown_ = true;
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

std::string warning_line(std::string_view text) {
  return "moracle: warning: " + printable(text, kShownLineBytes) + "\n";
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

std::string human_bytes(std::uint64_t bytes) {
  return scaled(static_cast<double>(bytes), 1024, {" B", " KiB", " MiB", " GiB", " TiB"});
}

std::string human_count(std::uint64_t count) {
  return scaled(static_cast<double>(count), 1000, {"", " K", " M", " B", " T"});
}

std::string text_table(std::vector<std::vector<std::string>> rows, const std::vector<bool>& right) {
  std::vector<std::size_t> widths;
  for (auto& row : rows) {
    widths.resize(std::max(widths.size(), row.size()));
    for (std::size_t i = 0; i < row.size(); ++i) {
      row[i] = printable(row[i]);
      widths[i] = std::max(widths[i], width_of(row[i]));
    }
  }
  std::string text;
  for (const auto& row : rows) {
    std::string line;
    for (std::size_t i = 0; i < row.size(); ++i) {
      const std::string pad(widths[i] - width_of(row[i]), ' ');
      const bool flush_right = i < right.size() && right[i];
      line += (i == 0 ? "" : "  ") + (flush_right ? pad + row[i] : row[i] + pad);
    }
    line.erase(line.find_last_not_of(' ') + 1);
    text += line + "\n";
  }
  return text;
}

}  // namespace moracle::cli
