// Standard output and error: people's text, one JSON document, progress, errors.
#pragma once

#include <cstdint>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/json.h"
#include "base/result.h"

namespace moracle::cli {

// "moracle: warning: ..." with its end of line; `text` may come from a file.
[[nodiscard]] std::string warning_line(std::string_view text);

class Console {
 public:
  // Writes to standard output at once. A reader that went away (closed pipe) is not an error: see closed(). Any other
  // failure is kept for finish().
  void out(std::string_view text);
  void json(const Json& document);
  // Nobody reads standard output any more: there is no point in going on.
  [[nodiscard]] bool closed() const { return closed_; }

  // Writes to standard error; failures are ignored.
  void note(std::string_view text);
  void warn(std::string_view text) { note(warning_line(text)); }
  // One line for the error; returns the exit code: 2 where the words on the command line were wrong, else 1, or that of
  // the signal which caused it.
  int fail(const Error& error);

  // A bar on standard error, on a terminal only, redrawn at most ten times a second. Callable from several threads.
  void progress(std::string_view label, double done, double total);
  void end_progress();

  // The exit code, or 1 after telling that standard output could not be written.
  int finish(int code);

 private:
  bool closed_ = false;
  std::optional<Error> failure_;
  std::mutex progress_mutex_;
  bool progress_shown_ = false;
  double progress_at_ = -1;
};

[[nodiscard]] bool is_terminal(int fd);
// A terminal that shows colours, and whose user has not declined them (no-color.org).
[[nodiscard]] bool wants_color(int fd);
[[nodiscard]] std::string human_bytes(std::uint64_t bytes);  // "7.3 MiB"
[[nodiscard]] std::string human_count(std::uint64_t count);  // "30.5 B"

// Rows of text with columns padded to their widest cell; the first row is the heading. `right[i]` aligns column i.
// Cells may come from files: they are shown by printable().
[[nodiscard]] std::string text_table(std::vector<std::vector<std::string>> rows, const std::vector<bool>& right);

}  // namespace moracle::cli
