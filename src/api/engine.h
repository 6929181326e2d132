// The engine behind the C interface's handles.
#pragma once

#include <memory>
#include <mutex>
#include <utility>

#include "api/edge/call.h"
#include "generate/session.h"

namespace moracle::api {

class OpenEngine {
 public:
  static constexpr Kind kKind = Kind::engine;
  explicit OpenEngine(std::unique_ptr<Session> session) : session_(std::move(session)) {}

  [[nodiscard]] Session& session() { return *session_; }
  [[nodiscard]] std::mutex& mutex() { return mutex_; }  // held while the model computes

 private:
  std::unique_ptr<Session> session_;
  std::mutex mutex_;
};

inline constexpr std::uint64_t kMostIds = std::uint64_t{1} << 31;

// Errors: "argument.range", "argument.null", "text.utf8".
Result<GenerationChoice> read_choice(const moracle_generate_options& options);

}  // namespace moracle::api
