#include "bench/routing_trace.h"

#include <algorithm>

#include "base/generic/count.h"
#include "base/json.h"

namespace moracle {

namespace {

Error write_error(const std::string& path) {
  return {.code = "file.write", .where = path, .wanted = "a file that can be written", .found = "an error"};
}

}  // namespace

RoutingTrace::RoutingTrace(const std::string& path, std::int64_t layers, std::int64_t experts)
    : path_(path),
      experts_(count(experts)),
      counts_(count(layers * experts)),
      file_(path, std::ios::binary | std::ios::trunc) {}

Result<RoutingTrace> RoutingTrace::create(const std::string& path, std::int64_t layers, std::int64_t experts) {
  RoutingTrace trace(path, layers, experts);
  trace.file_ << Json{{"layers", layers}, {"experts", experts}}.dump() << '\n';
  if (!trace.file_) return write_error(path);
  return trace;
}

void RoutingTrace::end_call() {
  Json layers = Json::array();
  for (std::size_t first = 0; first < counts_.size(); first += experts_) {
    Json& chosen = layers.emplace_back(Json::array());
    for (std::size_t expert = 0; expert < experts_; ++expert) {
      if (counts_[first + expert] > 0) chosen.push_back(expert);
    }
  }
  file_ << layers.dump() << '\n';
  std::ranges::fill(counts_, 0U);
}

Result<> RoutingTrace::close() {
  file_.close();
  if (!file_) return write_error(path_);
  return Ok{};
}

}  // namespace moracle
