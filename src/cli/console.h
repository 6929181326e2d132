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
  void warn(std::string_view text);  // which may come from a file
  // The same of what is no warning and no error, which --quiet leaves out.
  void info(std::string_view text);
  void be_quiet() { quiet_ = true; }
  // One line for the error; returns the exit code: 2 where the words on the command line were wrong, else 1, or that of
  // the signal which caused it.
  int fail(const Error& error);
  // What is wrong with the words on the command line, and which command's help tells more; returns 2.
  int wrong_usage(std::string_view what, std::string_view command);

  // A bar on standard error, on a terminal only, redrawn at most ten times a second. Callable from several threads. Of
  // bytes it tells amount, rate and time left.
  enum class Unit : std::uint8_t { share, bytes };
  void progress(std::string_view label, double done, double total, Unit unit = Unit::share);
  // A word in its place, for work whose end is not known.
  void status(std::string_view text);
  void end_progress();

  // The exit code, or 1 after telling that standard output could not be written.
  int finish(int code);

 private:
  bool closed_ = false;
  bool quiet_ = false;
  std::optional<Error> failure_;
  std::mutex progress_mutex_;
  bool progress_shown_ = false;
  double progress_at_ = -1;     // when the bar was last drawn
  double progress_begun_ = -1;  // when it was first asked for
  std::string progress_label_{};
};

[[nodiscard]] bool is_terminal(int fd);
// A terminal that shows colours, and whose user has not declined them (no-color.org).
[[nodiscard]] bool wants_color(int fd);

}  // namespace moracle::cli
