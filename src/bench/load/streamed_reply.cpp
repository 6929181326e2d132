#include "bench/load/streamed_reply.h"

#include <algorithm>

namespace moracle::load {

namespace {

constexpr std::size_t kEventBytes = std::size_t{1} << 20;
constexpr std::size_t kShownBytes = 100;
constexpr std::int64_t kMostTokens = std::int64_t{1} << 40;

Error stream_error(std::string wanted, std::string found) {
  return Error{.code = "bench.stream", .wanted = std::move(wanted), .found = std::move(found)};
}

}  // namespace

Result<> StreamedReply::take(std::string_view piece, Time now) {
  for (const char c : piece) {
    if (c != '\r') held_ += c;
  }
  std::size_t begin = 0;
  for (std::size_t end = held_.find('\n'); end != std::string::npos; end = held_.find('\n', begin)) {
    std::string_view line = std::string_view(held_).substr(begin, end - begin);
    begin = end + 1;
    if (line.empty() || line.front() == ':') continue;  // the end of an event, a comment
    constexpr std::string_view kData = "data:";
    if (!line.starts_with(kData)) {
      const bool other = line.starts_with("event:") || line.starts_with("id:") || line.starts_with("retry:");
      if (other) continue;
      return stream_error("lines 'data: {...}'", "'" + std::string(line.substr(0, kShownBytes)) + "'");
    }
    line.remove_prefix(kData.size());
    if (line.starts_with(' ')) line.remove_prefix(1);
    MORACLE_TRY(take_event(line, now));
  }
  held_.erase(0, begin);
  if (held_.size() > kEventBytes) return stream_error("events of at most 1 MiB", "a longer one");
  return Ok{};
}

Result<> StreamedReply::take_event(std::string_view data, Time now) {
  if (done_) return stream_error("nothing behind [DONE]", "'" + std::string(data.substr(0, kShownBytes)) + "'");
  if (data == "[DONE]") {
    done_ = true;
    return Ok{};
  }
  const auto event = parse_json(data, "event");
  if (!event.ok() || !event->is_object()) {
    return stream_error("events in JSON", "'" + std::string(data.substr(0, kShownBytes)) + "'");
  }
  if (event->contains("error")) {
    const Json& error = (*event)["error"];
    const bool said = error.is_object() && error.contains("message") && error["message"].is_string();
    return stream_error("a reply", "an error: " + (said ? error["message"].get<std::string>() : error.dump()));
  }
  if (event->contains("usage") && (*event)["usage"].is_object()) MORACLE_TRY(take_usage((*event)["usage"]));
  const auto choices = event->find("choices");
  if (choices == event->end() || !choices->is_array()) return stream_error("'choices' in each event", "none");
  if (choices->empty()) return Ok{};
  const Json& choice = choices->front();
  const bool speaks = choice.is_object() && choice.contains("text") && choice["text"].is_string();
  if (!speaks) return stream_error("'text' in each choice", choice.dump().substr(0, kShownBytes));
  if (choice["text"].get_ref<const std::string&>().empty()) return Ok{};
  if (first_ == Time{}) {
    first_ = now;
  } else {
    gaps_.push_back(seconds(last_, now));
  }
  last_ = now;
  return Ok{};
}

Result<> StreamedReply::take_usage(const Json& usage) {
  const JsonReader read(usage, "usage");
  const auto prompt = read.integer("prompt_tokens", 0, kMostTokens);
  const auto completion = read.integer("completion_tokens", 0, kMostTokens);
  if (!prompt.ok() || !completion.ok()) return stream_error("usage with counts of tokens", usage.dump());
  prompt_ = *prompt;
  completion_ = *completion;
  const auto details = usage.find("prompt_tokens_details");
  if (details == usage.end() || !details->is_object()) return Ok{};
  const auto cached = JsonReader(*details, "usage").integer_or("cached_tokens", 0, 0, kMostTokens);
  if (!cached.ok()) return stream_error("cached_tokens, a count", details->dump());
  cached_ = *cached;
  return Ok{};
}

Result<> StreamedReply::finish() const {
  if (!done_) return stream_error("[DONE] at the end of the stream", "none");
  if (first_ == Time{}) return stream_error("text", "none");
  if (completion_ < 1) return stream_error("usage, which stream_options asks for", "none");
  return Ok{};
}

}  // namespace moracle::load
