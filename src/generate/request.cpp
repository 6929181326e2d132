#include "generate/request.h"

#include <algorithm>
#include <cmath>
#include <span>

namespace moracle {

namespace {

Error range_error(const char* where, std::string wanted, std::string found) {
  return Error{.code = "sampling.range", .where = where, .wanted = std::move(wanted), .found = std::move(found)};
}

Result<> check_ids(const char* where, std::span<const std::int32_t> ids, std::int64_t vocabulary) {
  for (std::size_t i = 0; i < ids.size(); ++i) {
    if (ids[i] >= 0 && ids[i] < vocabulary) continue;
    return Error{.code = "model.token",
                 .where = std::string(where) + "[" + std::to_string(i) + "]",
                 .wanted = "an id from 0 to " + std::to_string(vocabulary - 1),
                 .found = std::to_string(ids[i])};
  }
  return Ok{};
}

}  // namespace

std::string_view to_string(RequestEnd end) {
  switch (end) {
    case RequestEnd::stop:
      return "stop";
    case RequestEnd::length:
      return "length";
    case RequestEnd::cancelled:
      return "cancelled";
    case RequestEnd::error:
      return "error";
  }
  return "";
}

Error no_prompt() {
  return Error{.code = "prompt.empty", .wanted = "a prompt of at least one token", .found = "none"};
}

Result<> check(const Request& request, std::int64_t vocabulary) {
  if (request.prompt.empty()) return no_prompt();
  MORACLE_TRY(check_ids("prompt", request.prompt, vocabulary));
  MORACLE_TRY(check_ids("end_ids", request.end_ids, vocabulary));
  MORACLE_TRY(check_ids("stop_ids", request.stop_ids, vocabulary));
  MORACLE_TRY(check(request.sampling));
  for (const LogitBias& bias : request.logit_bias) {
    MORACLE_TRY(check_ids("logit_bias", {&bias.id, 1}, vocabulary));
    if (!(std::abs(bias.bias) <= static_cast<float>(kMostBias))) {
      const std::string most = std::to_string(kMostBias);
      return range_error("logit_bias", "a number from -" + most + " to " + most, std::to_string(bias.bias));
    }
  }
  const std::int64_t least = request.echo || request.state != nullptr ? 0 : 1;
  if (request.max_tokens && *request.max_tokens < least) {
    return range_error("max_tokens", "at least " + std::to_string(least), std::to_string(*request.max_tokens));
  }
  if (request.min_tokens < 0 || (request.max_tokens && request.min_tokens > *request.max_tokens)) {
    return range_error("min_tokens", "from 0 to max_tokens", std::to_string(request.min_tokens));
  }
  if (request.output && request.end_ids.empty())
    return range_error("output", "an end token, which a held answer ends with", "none");
  if (request.logprobs && (*request.logprobs < 0 || *request.logprobs > kMostTopLogprobs)) {
    return range_error("logprobs", "from 0 to " + std::to_string(kMostTopLogprobs), std::to_string(*request.logprobs));
  }
  return Ok{};
}

StopRule::StopRule(const Request& request) : ids_(request.stop_ids), min_tokens_(request.min_tokens) {
  if (!request.ignore_eos) ids_.insert(ids_.end(), request.end_ids.begin(), request.end_ids.end());
  std::sort(ids_.begin(), ids_.end());
}

bool StopRule::at(std::int32_t id, std::int64_t before) const {
  return allowed(before) && std::binary_search(ids_.begin(), ids_.end(), id);
}

}  // namespace moracle
