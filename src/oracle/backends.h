// A decision by backend: the candidates of one backend are one entry, however many it has.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "oracle/decide.h"

namespace moracle {

enum class BackendVerdict : std::uint8_t {
  chosen,
  can,
  if_built,  // if this build had a kernel for it
  cannot,
};

struct BackendEntry {
  std::string_view backend;
  BackendVerdict verdict = BackendVerdict::cannot;
  // In the trace: the one that speaks for the backend first, which is chosen, or nearest to serving.
  std::vector<std::size_t> variants;
};

// The place in the trace of what the machine of the decision would use: the winner; where only the reference kernel is
// left, the best candidate that this build lacks. Empty: none.
[[nodiscard]] std::optional<std::size_t> used_candidate(const Decision& decision);

// The backend of used_candidate() first, then in the order of the table.
[[nodiscard]] std::vector<BackendEntry> fold_backends(const Decision& decision);

// Backends that would serve if they were asked for, in the order of the table.
[[nodiscard]] std::vector<std::string_view> usable_backends(const Decision& decision);

// What stands between a candidate of this kind and the question: "needs amx_tile, amx_int8, amx_bf16", "needs --policy
// fast", "layout known; this build has no kernel for it".
[[nodiscard]] std::string reason_phrase(const Reason& reason, CardKind kind);
// The phrases of all reasons, separated by "; ". Of several causes, what this build lacks is not told.
[[nodiscard]] std::string needs_of(const Candidate& candidate);

}  // namespace moracle
