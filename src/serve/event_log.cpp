#include "serve/event_log.h"

#include <poll.h>
#include <unistd.h>

#include <chrono>
#include <string>

#include "serve/api/json_text.h"

namespace moracle::serve {

void EventLog::line(Json event) {
  if (descriptor_ < 0) return;
  const auto now = std::chrono::system_clock::now().time_since_epoch();
  event["time"] = static_cast<double>(std::chrono::duration_cast<std::chrono::milliseconds>(now).count()) / 1000.0;
  if (dropped_ > 0) event["lines_dropped"] = dropped_;
  const std::string text = dump(event) + "\n";
  pollfd watched{.fd = descriptor_, .events = POLLOUT, .revents = 0};
  const bool open = poll(&watched, 1, 0) > 0 && (watched.revents & POLLOUT) != 0;
  if (open && write(descriptor_, text.data(), text.size()) == static_cast<ssize_t>(text.size())) {
    dropped_ = 0;
  } else {
    ++dropped_;
  }
}

}  // namespace moracle::serve
